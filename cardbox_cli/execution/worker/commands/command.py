"""A command line of somebody else's, run as a process group: bytes in, bytes out, and never forever.

Owns the time limit, the order to stop and the death of whatever the command left running.
That it dies with us is `supervised.py`'s. Knows nothing of turns or of what the output means.
"""

import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from threading import Event

import msgspec

from cardbox_cli.execution.worker.commands.pipes import Heard, Pipes
from cardbox_cli.execution.worker.commands.supervised import SupervisedCommand
from cardbox_cli.limits import COMMAND_OUTPUT
from cardbox_cli.settings import STDERR_KEPT

# What a command may print before it is stopped, in bytes.
MAX_OUTPUT = COMMAND_OUTPUT.value << 20

# Seconds: how often a running command is looked after, how long it may take over SIGTERM, and how long
# what it left running may keep its pipes open.
_LOOK = 0.1
_GRACE = 5.0
_LINGER = 1.0


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """How a command went. `exit_code` is negative for a signal; `duration` is in seconds.

    `stderr` is what it wrote there, or the end of it, `stderr_bytes` how much it was in all.
    At most one of `timed_out`, `stopped` and `too_long` (it printed more than it may) is set; then it was
    killed, and its output is what there was until then.
    """

    exit_code: int
    stdout: bytes
    stderr: str
    stderr_bytes: int
    stderr_is_cut: bool
    timed_out: bool
    stopped: bool
    too_long: bool
    duration: float

    @property
    def came_to_its_end(self) -> bool:
        """Whether nobody killed it for what it did, or for how long."""
        return not (self.timed_out or self.stopped or self.too_long)

    @property
    def succeeded(self) -> bool:
        """Whether it came to its own end, with exit code 0."""
        return self.exit_code == 0 and self.came_to_its_end


def run_command(
    command: str,
    stdin: bytes,
    *,
    environment: Mapping[str, str],
    timeout: float,
    stop: Event,
    max_output: int = MAX_OUTPUT,
    keep_stderr: int = STDERR_KEPT.default,
    grace: float = _GRACE,
    heard: Heard = lambda piece: None,
) -> Ran:
    """Run `command` by `sh -c` with `stdin`, in `environment` and no more, for `timeout` seconds.

    Of its stderr the last `keep_stderr` bytes are kept. Once `stop` is set, the time is over, or it has
    printed more than `max_output` bytes, its process group gets SIGTERM, and `grace` seconds later SIGKILL.
    What it leaves running gets SIGKILL, too. `heard` gets each piece of what it prints as it comes.
    """
    began = time.monotonic()
    with (
        SupervisedCommand(command, environment) as supervised,
        closing(Pipes(supervised.process, max_output, keep_stderr, heard)) as pipes,
    ):
        process = supervised.process
        pipes.send(stdin, is_last=True)
        why = _until_over(process, pipes, stop, began + timeout)
        if why is not None:
            supervised.signal(signal.SIGTERM)
            _settle(process, pipes, grace)
        else:
            _settle(process, pipes, _LINGER)
        if why is not None or pipes.open:
            supervised.signal(signal.SIGKILL)
        exit_code = process.wait()
    return Ran(
        exit_code=exit_code,
        stdout=bytes(pipes.stdout),
        stderr=bytes(pipes.stderr).decode(errors="replace"),
        stderr_bytes=pipes.stderr_bytes,
        stderr_is_cut=pipes.stderr_bytes > len(pipes.stderr),
        timed_out=why == "timed_out",
        stopped=why == "stopped",
        too_long=pipes.too_long and why in (None, "too_long"),
        duration=time.monotonic() - began,
    )


def _until_over(process: subprocess.Popen[bytes], pipes: Pipes, stop: Event, deadline: float) -> str | None:
    """Serve the pipes until the command has ended; or until it must, and why."""
    while process.poll() is None:
        if stop.is_set():
            return "stopped"
        if time.monotonic() >= deadline:
            return "timed_out"
        if pipes.too_long:
            return "too_long"
        _serve(process, pipes)
    return None


def _settle(process: subprocess.Popen[bytes], pipes: Pipes, seconds: float) -> None:
    """Serve the pipes until nobody holds them and the command has ended, for so many seconds at most."""
    deadline = time.monotonic() + seconds
    while (pipes.open or process.poll() is None) and time.monotonic() < deadline:
        _serve(process, pipes)


def _serve(process: subprocess.Popen[bytes], pipes: Pipes) -> None:
    """Serve the pipes, or wait for the end of a command whose outputs nobody holds any more; for a look."""
    if pipes.open:
        pipes.serve(_LOOK)
        return
    # That it goes on is no failure: the caller looks again, for as long as it likes.
    with suppress(subprocess.TimeoutExpired):
        process.wait(_LOOK)
