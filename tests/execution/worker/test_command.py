"""Commands as real processes: what they print, and that none of them can hold us."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from cardbox_cli.execution.worker.command_processes import CommandOutcome, run_command
from cardbox_cli.execution.worker.worker_program import INHERITED_VARIABLES, command_environment
from cardbox_cli.settings import STDERR_KEPT
from tests.crash.processes import until
from tests.store.embedded.helpers import is_gone


def run(command: str, stdin: bytes = b"", *, timeout: float = 120, **options: Any) -> CommandOutcome:
    settings: dict[str, Any] = {"environment": {}, "stop": Event(), "grace": 0.3, **options}
    return run_command(command, stdin, timeout=timeout, **settings)


def run_too_long(command: str) -> CommandOutcome:
    """Run a command that takes too long, but only once it has begun: a busy machine may need a while for that."""
    for timeout in (0.3, 3, 30):
        ran = run(command, timeout=timeout)
        if ran.stdout:
            break
    return ran


def python(code: str) -> str:
    return f"exec '{sys.executable}' -c '{code}'"


@pytest.mark.parametrize(
    ("command", "exit_code", "stdout", "stderr"),
    [
        ("cat", 0, b"in", ""),
        ("true", 0, b"", ""),
        ("echo $CBX_STEP", 0, b"1\n", ""),
        ("echo out; echo no >&2; exit 3", 3, b"out\n", "no\n"),
        ("kill -9 $$", -signal.SIGKILL, b"", ""),
        ("printf 'a\\000b' >&2", 0, b"", "a\x00b"),
        ("printf '\\377' >&2", 0, b"", "\ufffd"),
        # What closes its pipes goes on until it ends.
        ("exec <&- >&- 2>&-; sleep 0.1; exit 4", 4, b"", ""),
    ],
)
def test_the_exit_code_and_the_output_of_a_command_are_returned(
    command: str, exit_code: int, stdout: bytes, stderr: str
) -> None:
    ran = run(command, b"in", environment={"CBX_STEP": "1"})
    assert (ran.exit_code, ran.stdout, ran.stderr) == (exit_code, stdout, stderr)
    assert ran.succeeded == (exit_code == 0)
    assert (ran.timed_out, ran.stopped, ran.too_long) == (False, False, False)


def test_input_and_output_can_exceed_the_size_of_a_pipe() -> None:
    body = os.urandom(1_000_000)
    ran = run("tee /dev/stderr", body)
    assert ran.stdout == body
    assert (ran.stderr_bytes, ran.stderr_is_cut) == (len(body), True)
    assert ran.stderr == body[-STDERR_KEPT.default :].decode(errors="replace")


def test_a_command_can_ignore_a_large_request() -> None:
    ran = run("echo done", b"x" * 1_000_000)
    assert (ran.exit_code, ran.stdout) == (0, b"done\n")


def test_a_command_that_takes_too_long_is_killed_with_its_children(tmp_path: Path) -> None:
    ran = run_too_long(f"sleep 100 & echo $! > {tmp_path}/pid; echo begun; wait")
    assert (ran.timed_out, ran.succeeded, ran.stdout) == (True, False, b"begun\n")
    wait_for_end(int((tmp_path / "pid").read_text()))


def test_a_command_that_ignores_sigterm_is_killed() -> None:
    ran = run_too_long("trap '' TERM; echo begun; while :; do sleep 0.05; done")
    assert (ran.timed_out, ran.exit_code, ran.stdout) == (True, -signal.SIGKILL, b"begun\n")


def test_a_stopped_command_can_print_output_before_it_exits(tmp_path: Path) -> None:
    stop, begun = Event(), tmp_path / "begun"
    command = f"trap 'echo sorry; exit 5' TERM; touch {begun}; while :; do sleep 0.05; done"
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run, command, stop=stop, grace=100)
        until(begun.exists)
        stop.set()
        ran = running.result()
    assert (ran.stopped, ran.timed_out, ran.exit_code, ran.stdout) == (True, False, 5, b"sorry\n")


def test_a_background_child_cannot_block_the_pipes(tmp_path: Path) -> None:
    ran = run(f"sleep 100 & echo $! > {tmp_path}/pid; echo done")
    assert (ran.exit_code, ran.succeeded, ran.stdout) == (0, True, b"done\n")
    assert ran.duration < 100
    wait_for_end(int((tmp_path / "pid").read_text()))


def test_a_command_that_prints_endlessly_is_stopped() -> None:
    ran = run("yes", max_output=100_000)
    assert (ran.too_long, ran.succeeded) == (True, False)
    assert len(ran.stdout) <= 100_000


def test_a_command_that_prints_too_much_fails() -> None:
    ran = run(python("print(7 * 30000)") + "; true", max_output=2)
    assert (ran.too_long, ran.succeeded) == (True, False)


def test_a_command_that_waits_for_its_children_sees_only_its_own() -> None:
    ran = run(python("import os\ntry:\n while True: os.wait()\nexcept ChildProcessError: print(1)"))
    assert (ran.exit_code, ran.stdout) == (0, b"1\n")


@pytest.mark.parametrize("start", ["", "setsid "], ids=["in its group", "in a session of its own"])
def test_a_background_child_ends_with_its_command(tmp_path: Path, start: str) -> None:
    begun = f"{start}sh -c 'echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; exec sleep 100'"
    ran = run(f"{begun} < /dev/null > /dev/null 2>&1 & while ! [ -e {tmp_path}/pid ]; do sleep 0.01; done")
    assert ran.succeeded
    wait_for_end(int((tmp_path / "pid").read_text()))


def test_a_command_gets_only_the_given_environment(monkeypatch: Any) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    monkeypatch.setenv("LANG", "C.UTF-8")
    named = {
        line.partition("=")[0]
        for line in run("env", environment=command_environment()).stdout.decode().splitlines()
    }
    assert {"PATH", "LANG", "CBX_COMMAND_ID"} <= named
    assert named <= {*INHERITED_VARIABLES, "CBX_COMMAND_ID", "PWD", "SHLVL", "_", "OLDPWD"}
    assert (
        run("env", environment=command_environment(["OPENAI_API_KEY"])).stdout.count(b"OPENAI_API_KEY=sk-1")
        == 1
    )


@pytest.mark.parametrize(
    "stopping", ["", "trap '' TERM HUP; "], ids=["willing", "ignoring what stops others"]
)
def test_a_command_and_its_children_die_with_the_worker(tmp_path: Path, stopping: str) -> None:
    command = f"{stopping}sleep 100 < /dev/null > /dev/null 2>&1 & echo $! $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pids; wait"
    code = f"from tests.execution.worker.test_command import run; run({command!r})"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.DEVNULL) as ours:
        pids = read_soon(tmp_path / "pids")
        ours.kill()
    for pid in pids.split():
        wait_for_end(int(pid))


def read_soon(path: Path) -> str:
    """The text of a file that will be there soon."""
    until(path.exists)
    return path.read_text()


def wait_for_end(pid: int) -> None:
    """Wait until a process has ended, collected or not: it gives its pipes back a moment before."""
    until(lambda: is_gone(pid))
