"""A run of tests through `tests/supervisor.py` leaves no process, however it ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.crash.processes import until
from tests.store.embedded.helpers import is_gone

ROOT = Path(__file__).parents[1]

# A server is started in a session of its own, by a process that ends at once, and has processes of its own.
_SERVER = """setsid sh -c 'echo $$ > {file}; trap "" TERM; sleep 100 & sleep 100' &"""
_SUPERVISOR = "import sys; from tests.supervisor import main; sys.exit(main(sys.argv[1:], patience=0.5))"


def start(script: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", _SUPERVISOR, "sh", "-c", script],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def family_in(file: Path) -> list[psutil.Process]:
    """The server that wrote its id to `file`, and the processes that it started."""
    until(lambda: file.exists() and file.read_text().endswith("\n"))
    server = psutil.Process(int(file.read_text()))
    until(lambda: len(server.children()) == 2)
    return [server, *server.children()]


def test_a_successful_run_with_leftover_processes_fails(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    with start(f"{_SERVER.format(file=file)} read line") as run:
        family = family_in(file)
        _, said = run.communicate("\n", timeout=60)
    assert run.returncode == 1
    assert said.startswith(f"left behind by the tests: {family[0].pid} sh -c ")
    assert said.count("\n") == 1
    assert all(is_gone(each.pid) for each in family)


@pytest.mark.parametrize(("script", "code"), [("true", 0), ("exit 5", 5), ("kill -9 $$", 137)])
def test_the_exit_code_of_the_tests_is_returned(script: str, code: int) -> None:
    with start(script) as run:
        assert run.communicate(timeout=60) == ("", "")
    assert run.returncode == code


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_no_processes(number: signal.Signals, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    with start(f"{_SERVER.format(file=file)} exec sleep 100") as run:
        family = family_in(file)
        # A terminal sends its interrupt to all, `kill` to the one that is named.
        (os.killpg if number is signal.SIGINT else os.kill)(run.pid, number)
        run.communicate(timeout=60)
    assert run.returncode == 128 + number
    assert all(is_gone(each.pid) for each in family)
