"""The harness of `make bench`: it lists, measures both sides, tells a missed target, and leaves nothing behind.

How fast anything is, no test asserts.
"""

import json
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

from benchmarks.__main__ import ROWS, main, run
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


def test_the_list_names_every_row_once() -> None:
    listed = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--list"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    names = [line.split()[0] for line in listed.stdout.splitlines()]
    assert names == [row.name for row in ROWS]
    assert len(set(names)) == len(names)


def test_json_holds_the_machine_and_every_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--row", CHEAP.name, "--rounds", "2", "--json"])
    answer = json.loads(capsys.readouterr().out)
    (row,) = answer["rows"]
    assert code == (0 if row["met"] else 8)
    assert (row["name"], row["target"]) == (CHEAP.name, {"kind": "at most", "limit": 1.1})
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
def test_a_missed_target_is_told_and_is_the_exit_code(
    target: Target, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([msgspec.structs.replace(CHEAP, target=target)], rounds=1) == code
    captured = capsys.readouterr()
    assert captured.err == said
    assert ("MISSED" in captured.out) == bool(code)
    assert f"{CHEAP.what} : {CHEAP.against}" in captured.out


@pytest.mark.usefixtures("workbench")
def test_memory_is_measured_in_mb_and_what_rows_share_is_made_once(
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
def test_a_row_that_cannot_be_measured_here_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    @contextmanager
    def prepare(_: Workbench) -> Iterator[tuple[Side, Side]]:
        raise Missing("no program")
        yield

    assert run([msgspec.structs.replace(CHEAP, prepare=prepare)], rounds=1) == 0
    assert capsys.readouterr().err == f"{CHEAP.name} was not measured: no program\n"


def test_a_side_may_tell_its_time() -> None:
    ours, peer = interleaved(
        Side(run=lambda: 0.5, tells=True), Side(run=lambda: 0.25, tells=True, units=9), rounds=2
    )
    assert (ours, peer) == ([0.5, 0.5], [0.25, 0.25])


@pytest.mark.parametrize(
    ("target", "ratio", "met"),
    [(at_most(2), 0.5, True), (at_most(0.4), 0.5, False), (at_least(2), 2, True), (at_least(3), 2, False)],
)
def test_a_ratio_looks_in_the_direction_of_its_target(target: Target, ratio: float, met: bool) -> None:
    found = target.ratio(ours=1, peer=2)
    assert (found, target.met(found)) == (ratio, met)


def test_the_sides_take_turns_in_beginning_and_the_first_round_does_not_count() -> None:
    ran: list[str] = []
    ours = Side(before=lambda: ran.append("before"), run=lambda: ran.append("ours"))
    times = interleaved(ours, Side(run=lambda: ran.append("peer")), rounds=2)
    assert ran == ["before", "ours", "peer", "before", "ours", "peer", "peer", "before", "ours"]
    assert [len(each) for each in times] == [2, 2]


def test_to_let_go_of_what_was_made_is_timed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []

    class Made:
        def __del__(self) -> None:
            happened.append("let go")

    def clock() -> float:
        happened.append("clock")
        return float(len(happened))

    monkeypatch.setattr("benchmarks.measure.perf_counter", clock)
    interleaved(Side(run=Made), Side(run=Made), rounds=1)
    assert happened == ["clock", "let go", "clock"] * 4


def test_ctrl_c_leaves_no_server_and_no_folder(folder: Path) -> None:
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
        (["--row", "nothing"], "argument --row: invalid choice: 'nothing'"),
        (["--rounds", "0"], "argument --rounds: '0' is no whole number above 0"),
        (["--rounds", "x"], "argument --rounds: 'x' is no whole number above 0"),
    ],
)
def test_a_wrong_option_is_a_usage_error(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err
