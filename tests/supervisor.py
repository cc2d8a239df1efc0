"""Runs a command of tests, and kills every process of theirs that is left when it ends.

    python -m tests.supervisor pytest -n auto

Servers detach from the test that starts them. On Linux this process adopts what detaches below it, so it finds
them all, also after an interrupt or the death of the test runner. A run that succeeds must leave nothing.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType

import psutil

_PR_SET_CHILD_SUBREAPER = 36
_LEFT_BEHIND = 1
_QUIT_TIMEOUT_SECONDS = 10.0


def main(command: Sequence[str], *, patience: float = 10.0) -> int:
    """Run `command`. The exit code is its own, or 1 if it succeeds and leaves processes behind.

    Processes may take `patience` seconds to end by themselves.
    """
    _adopt_orphans()
    tests = subprocess.Popen(command)
    _pass_signals_on(tests)
    code = _wait_for(tests)
    left = _descendants() if code else _wait_for_descendants(patience)
    for process in _without_parents(left):
        print(f"left behind by the tests: {_describe(process)}", file=sys.stderr)
    _kill(left)
    return code or (_LEFT_BEHIND if left else 0)


def _adopt_orphans() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _pass_signals_on(tests: "subprocess.Popen[bytes]") -> None:
    """Leave it to the tests to end. A terminal sends its interrupt to them, too."""

    def pass_on(number: int, _: FrameType | None) -> None:
        tests.send_signal(number)

    signal.signal(signal.SIGINT, lambda number, frame: None)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, pass_on)


def _wait_for(tests: "subprocess.Popen[bytes]") -> int:
    """Return the exit code of `tests`, as a shell has it. Collects adopted processes as they end."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == tests.pid:
            code = os.waitstatus_to_exitcode(status)
            tests.returncode = code
            return code if code >= 0 else 128 - code


def _descendants() -> list[psutil.Process]:
    _collect_ended()
    return psutil.Process().children(recursive=True)


def _collect_ended() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _wait_for_descendants(seconds: float) -> list[psutil.Process]:
    """Return the processes that do not end within `seconds`."""
    deadline = time.monotonic() + seconds
    while (left := _descendants()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def _without_parents(processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    """Return the processes that none of the others has started."""
    pids = {process.pid for process in processes}
    return [process for process in processes if _parent(process) not in pids]


def _parent(process: psutil.Process) -> int | None:
    try:
        return process.ppid()
    except psutil.Error:
        return None


def _describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {' '.join(process.cmdline())[:200]}"
    except psutil.Error:
        return str(process.pid)


def _kill(processes: Sequence[psutil.Process]) -> None:
    """Kill the processes, and those that they start meanwhile."""
    servers = [process for process in processes if _is_postgres(process)]
    if servers:
        # A server that quits removes its shared memory. One that is killed does not.
        _signal(servers, signal.SIGQUIT)
        psutil.wait_procs(servers, _QUIT_TIMEOUT_SECONDS)
    while left := _descendants():
        _signal(left, signal.SIGKILL)
        time.sleep(0.01)


def _is_postgres(process: psutil.Process) -> bool:
    try:
        return process.name() == "postgres"
    except psutil.Error:
        return False


def _signal(processes: Sequence[psutil.Process], number: int) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
