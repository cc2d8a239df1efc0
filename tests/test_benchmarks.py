"""The harness of `make bench`: it lists, measures both sides, reports missed targets, and leaves nothing behind.

How fast anything is, no test asserts.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import msgspec
import psutil
import pytest

from benchmarks.__main__ import ROWS, main, run, run_against
from benchmarks.measure import Missing, Row, Side, Target, at_least, at_most, interleaved
from benchmarks.workbench import Workbench, peer

ROOT = Path(__file__).parents[1]
CHEAP = next(row for row in ROWS if row.name == "startup-version")


@pytest.fixture(scope="module")
def started() -> Iterator[Workbench]:
    """A workbench with its server, which takes seconds to start."""
    with Workbench.open() as bench:
        yield bench


@pytest.fixture
def workbench(started: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the harness opens has been opened before."""

    @contextmanager
    def opened() -> Iterator[Workbench]:
        with ExitStack() as until_the_end:
            yield Workbench(started.server, started._admin, until_the_end)

    monkeypatch.setattr(Workbench, "open", opened)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a workbench makes its temporary folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_list_shows_every_row_once_with_its_affected_users() -> None:
    listed = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--list"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    lines = listed.stdout.splitlines()
    names = [line.split()[0] for line in lines[::2]]
    assert names == [row.name for row in ROWS]
    assert len(set(names)) == len(names)
    assert [line.strip() for line in lines[1::2]] == [f"felt by {row.felt_by}" for row in ROWS]


def test_each_row_describes_its_affected_users_in_one_line() -> None:
    said = {row.name: row.felt_by for row in ROWS if len(row.felt_by.split()) < 3 or "\n" in row.felt_by}
    assert said == {}


def test_rows_are_selected_by_patterns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "show-*", "startup-v*"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()[::2]]
    assert names == [
        "startup-version",
        "startup-validate",
        "show-json",
        "show-table",
        "show-growth",
        "show-memory",
    ]


def test_json_output_contains_the_machine_and_every_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main([CHEAP.name, "--rounds", "2", "--json"])
    answer = json.loads(capsys.readouterr().out)
    (row,) = answer["rows"]
    assert code == (0 if row["met"] else 8)
    assert (row["name"], row["target"]) == (CHEAP.name, {"kind": "at most", "limit": 1.1})
    assert row["felt_by"] == CHEAP.felt_by
    for side in (row["cbx"], row["peer"]):
        assert len(side["samples"]) == 2
        assert side["median"] == median(side["samples"]) > 0
    rounds = zip(row["cbx"]["samples"], row["peer"]["samples"], strict=True)
    assert row["ratio"] == median(ours / peer for ours, peer in rounds)
    assert answer["machine"]["cores"] >= 1
    assert answer["machine"]["packages"]["psycopg"]
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("workbench")
@pytest.mark.parametrize(
    ("target", "code", "said"),
    [
        (at_most(0), 8, f"1 of 1 targets missed: {CHEAP.name}\n"),
        (at_least(0), 0, ""),
    ],
)
def test_a_missed_target_is_reported_and_sets_the_exit_code(
    target: Target, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([msgspec.structs.replace(CHEAP, target=target)], rounds=1) == code
    captured = capsys.readouterr()
    assert captured.err == said
    assert ("MISSED" in captured.out) == bool(code)
    assert f"{CHEAP.what} : {CHEAP.against}" in captured.out
    assert f"felt by {CHEAP.felt_by}\n" in captured.out


@pytest.mark.usefixtures("workbench")
def test_a_page_shows_the_results(tmp_path: Path) -> None:
    page = tmp_path / "RESULTS.md"
    missed = msgspec.structs.replace(CHEAP, target=at_most(0))
    assert run([CHEAP, missed], rounds=1, page=page) == 8
    written = page.read_text(encoding="utf-8")
    first, second = [line for line in written.splitlines() if line.startswith(f"| {CHEAP.name} | ")]
    assert first.endswith(f"| {CHEAP.felt_by} | {CHEAP.what} : {CHEAP.against} |")
    assert "| ≤ 0 × | MISSED |" in second
    assert re.search(r"^- \d{4}-\d\d-\d\d, commit [0-9a-f]{7,}", written, re.MULTILINE)
    assert re.search(r"^- cpu .+ cores", written, re.MULTILINE)


@pytest.fixture
def slow_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A commit whose package takes half a second to import, and which has no row `startup-help`.

    Its objects are outside the repository.
    """
    (tmp_path / "git" / "objects").mkdir(parents=True)
    monkeypatch.setenv(
        "GIT_ALTERNATE_OBJECT_DIRECTORIES", str(ROOT / git("rev-parse", "--git-path", "objects"))
    )
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(tmp_path / "git" / "objects"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "git" / "index"))
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "bench")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "bench@example.org")
    git("read-tree", "HEAD")
    package, rows = "cardbox_cli/__init__.py", "benchmarks/startup.py"
    stage(package, git("show", f"HEAD:{package}") + "\nimport time\n\ntime.sleep(0.5)\n")
    stage(rows, git("show", f"HEAD:{rows}").replace('"startup-help"', '"startup-of-help"'))
    return git("commit-tree", "-m", "Sleep", git("write-tree"))


def stage(path: str, text: str) -> None:
    blob = git("hash-object", "-w", "--stdin", text=text)
    git("update-index", "--cacheinfo", f"100644,{blob},{path}")


def git(*words: str, text: str = "") -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, input=text, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_rows_can_be_compared_with_another_commit(
    slow_commit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    names = ("startup-version", "startup-help", "export-openai")
    assert run_against([row for row in ROWS if row.name in names], slow_commit, rounds=2, as_json=True) == 0
    captured = capsys.readouterr()
    command, function = json.loads(captured.out)["rows"]
    assert [command["name"], function["name"]] == ["startup-version", "export-openai"]
    assert min(command["there"]["samples"]) > 0.5
    assert command["ratio"]["min"] <= command["ratio"]["median"] <= command["ratio"]["max"] < 1
    assert len(function["here"]["samples"]) == len(function["there"]["samples"]) == 2
    assert captured.err == f"startup-help was not measured: {slow_commit}: it has no such row\n"
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("workbench")
def test_memory_is_measured_in_mb_and_shared_setup_runs_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    made: list[str] = []

    @contextmanager
    def make(bench: Workbench) -> Iterator[str]:
        made.append("made")
        yield sys.executable
        made.append("removed")

    @contextmanager
    def prepare(bench: Workbench) -> Iterator[tuple[Side, Side]]:
        words = peer("peak_memory", bench.shared(make), "-c", "bytearray(60_000_000)")
        yield (
            Side(run=lambda: float(subprocess.check_output(words)), tells=True),
            Side(run=lambda: 10, tells=True),
        )

    row = msgspec.structs.replace(CHEAP, unit="MB", target=at_most(9), prepare=prepare)
    assert run([row, row], rounds=1, as_json=True) == 0
    [one, other] = json.loads(capsys.readouterr().out)["rows"]
    assert {one["unit"], other["unit"]} == {"MB"}
    assert 60 < one["cbx"]["median"] < 90
    assert made == ["made", "removed"]
    assert run([row], rounds=1) == 0
    assert " 10.0 MB " in capsys.readouterr().out


@pytest.mark.usefixtures("workbench")
def test_a_row_that_cannot_be_measured_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    @contextmanager
    def prepare(_: Workbench) -> Iterator[tuple[Side, Side]]:
        raise Missing("no program")
        yield

    assert run([msgspec.structs.replace(CHEAP, prepare=prepare)], rounds=1) == 0
    assert capsys.readouterr().err == f"{CHEAP.name} was not measured: no program\n"


def test_a_side_can_report_its_own_time() -> None:
    ours, peer = interleaved(
        Side(run=lambda: 0.5, tells=True), Side(run=lambda: 0.25, tells=True, units=9), rounds=2
    )
    assert (ours, peer) == ([0.5, 0.5], [0.25, 0.25])


@pytest.mark.parametrize(
    ("target", "ratio", "met"),
    [(at_most(2), 0.5, True), (at_most(0.4), 0.5, False), (at_least(2), 2, True), (at_least(3), 2, False)],
)
def test_the_target_decides_the_direction_of_the_ratio(target: Target, ratio: float, met: bool) -> None:
    found = target.ratio(ours=1, peer=2)
    assert (found, target.met(found)) == (ratio, met)


def test_sides_alternate_and_the_first_round_is_a_warm_up() -> None:
    ran: list[str] = []
    ours = Side(before=lambda: ran.append("before"), run=lambda: ran.append("ours"))
    times = interleaved(ours, Side(run=lambda: ran.append("peer")), rounds=2)
    assert ran == ["before", "ours", "peer", "before", "ours", "peer", "peer", "before", "ours"]
    assert [len(each) for each in times] == [2, 2]


def test_the_measured_time_includes_deallocation(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []

    class Made:
        def __del__(self) -> None:
            happened.append("let go")

    def clock() -> float:
        happened.append("clock")
        return float(len(happened))

    monkeypatch.setattr("benchmarks.side.perf_counter", clock)
    interleaved(Side(run=Made), Side(run=Made), rounds=1)
    assert happened == ["clock", "let go", "clock"] * 4


def test_ctrl_c_removes_the_server_and_the_folder(folder: Path) -> None:
    servers: list[psutil.Process] = []

    @contextmanager
    def interrupted(bench: Workbench) -> Iterator[tuple[Side, Side]]:
        servers.append(psutil.Process(bench.server.status().pid))
        raise KeyboardInterrupt
        yield

    row: Row = msgspec.structs.replace(CHEAP, prepare=interrupted)
    with pytest.raises(KeyboardInterrupt):
        run([row])
    (server,) = servers
    server.wait(timeout=60)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing-*"], "no row is named 'nothing-*'; --list shows their names"),
        (["--against", "nothing"], "argument --against: fatal: not a valid object name: nothing"),
        (["--write-results", "show-json"], "argument --write-results: the page has all rows"),
        (["--rounds", "0"], "argument --rounds: '0' is no whole number above 0"),
        (["--rounds", "x"], "argument --rounds: 'x' is no whole number above 0"),
    ],
)
def test_an_invalid_option_is_a_usage_error(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err
