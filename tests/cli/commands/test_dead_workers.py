"""A dead process is known at once on its own machine; elsewhere only the heartbeat decides."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cardbox_cli import process_identity
from cardbox_cli.process_identity import is_dead, make_owner_name
from tests.cli.commands.test_worker import Dispatch, dispatch
from tests.cli.conftest import Shell, lines, succeed
from tests.conftest import Cbx
from tests.crash.processes import until

__all__ = ["dispatch"]

NAMING = "import sys; from cardbox_cli.process_identity import make_owner_name; print(make_owner_name(), flush=True); sys.stdin.read()"


@pytest.fixture
def other() -> Iterator[subprocess.Popen[str]]:
    """A process that has printed its name."""
    with subprocess.Popen(
        [sys.executable, "-c", NAMING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def name_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_process_is_dead_when_it_is_killed_even_before_its_parent_knows(
    other: "subprocess.Popen[str]",
) -> None:
    name = name_of(other)
    assert not is_dead(name)
    other.kill()
    until(lambda: is_dead(name))
    other.wait()
    assert is_dead(name)


def test_this_process_lives() -> None:
    assert not is_dead(make_owner_name())


def test_a_process_with_the_same_id_and_another_start_is_another_one() -> None:
    host, pid, some, place, started = make_owner_name().rsplit("-", 4)
    assert is_dead("-".join((host, pid, some, place, f"{int(started, 16) - 1:x}")))


def test_the_heartbeat_decides_about_other_machines_and_containers_with_the_same_host_name() -> None:
    host, _, some, place, started = make_owner_name().rsplit("-", 4)
    gone = str(2**22 - 3)
    assert is_dead("-".join((host, gone, some, place, started)))
    assert not is_dead("-".join((host, gone, some, "0" * 8, started)))


@pytest.mark.parametrize("name", ["", "host-1-abcdef12", "a-b-c-d-e", "worker-of-another-program"])
def test_names_of_other_forms_are_left_to_the_heartbeat(name: str) -> None:
    assert not is_dead(name)


def test_a_process_that_is_hidden_from_this_account_may_live(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name = make_owner_name()
    place = name.rsplit("-", 2)[1]
    monkeypatch.setattr(process_identity, "_PROC", tmp_path)
    monkeypatch.setattr(process_identity, "_location", lambda: place)
    assert not is_dead(name)


def test_a_system_without_namespaces_leaves_the_identity_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(process_identity, "_PROC", tmp_path)
    process_identity._location.cache_clear()
    name = make_owner_name()
    process_identity._location.cache_clear()
    assert name.split("-")[-2] == str(os.getpid())


def test_why_and_worker_list_report_a_killed_worker_at_once_and_reap_frees_its_turn(
    cbx: Cbx, dispatch: Dispatch, shell: Shell
) -> None:
    turn = dispatch()
    with shell.started("worker", "run", "--exec", "sleep 100") as worker:
        until(lambda: cbx("why", turn, "-o", "json").json()["rule"] == "running")
        worker.kill()
        worker.wait()
    why = cbx("why", turn, "-o", "json").json()
    assert (why["verdict"], why["rule"]) == ("stuck", "dead-while-running")
    assert any("which has ended on this machine" in each["shows"] for each in why["evidence"])
    assert lines(cbx("worker", "list", "-o", "id")) == []
    assert cbx("worker", "list", "--all", "-o", "json").json()[0]["live"] is False
    assert turn in succeed(cbx("reap"))
    assert cbx("why", turn, "-o", "json").json()["rule"] != "dead-while-running"


@pytest.mark.parametrize("repeated", [1, 2])
def test_a_worker_finishes_its_turn_after_sighup(
    cbx: Cbx, dispatch: Dispatch, shell: Shell, repeated: int
) -> None:
    import signal

    turn = dispatch()
    with shell.started("worker", "run", "--exec", "sleep 2; echo done") as worker:
        until(lambda: cbx("why", turn, "-o", "json").json()["rule"] == "running")
        for _ in range(repeated):
            worker.send_signal(signal.SIGHUP)
        assert worker.wait(60) == 0
    assert cbx("turn", "show", turn, "-o", "json").json()["end_status"] == "success"


def test_a_worker_under_nohup_ignores_sighup(cbx: Cbx, dispatch: Dispatch, shell: Shell) -> None:
    ran = shell.line(
        "trap '' HUP; cbx worker run --exec 'echo done' & W=$!; sleep 3; kill -HUP $W; "
        "sleep 1; kill -0 $W && echo alive; kill -TERM $W; wait $W"
    )
    assert ran.out == "alive\n"
