"""Commands as process groups that never outlive cbx, even if a signal kills it.

Each group has a supervisor, which reads a pipe that only cbx can write to. When cbx dies, the pipe ends and
the supervisor kills the group. It is a shell, because a shell starts in a millisecond. A process can leave
the group. cbx finds such processes by an environment variable, and kills them when the command ends.
"""

import array
import fcntl
import os
import selectors
import signal
import subprocess
import termios
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing, suppress
from functools import partial
from pathlib import Path
from threading import Event
from typing import IO
from uuid import uuid4

import msgspec

from cardbox_cli.limits import COMMAND_OUTPUT
from cardbox_cli.settings import COMMAND_ID, STDERR_KEPT

# Processes may start others while they are being killed, so the search is repeated.
_MAX_SEARCHES = 5

# The supervisor ignores signals to its group. It is not a child of the command, because the command may wait
# for all its children.
_SUPERVISOR = """\
( trap '' HUP INT QUIT USR1 USR2 ALRM TERM
  { read -r over; kill -KILL 0; } < "/dev/fd/$2" > /dev/null 2>&1 & )
exec /bin/sh -c "$1"
"""


class SupervisedCommand(AbstractContextManager["SupervisedCommand"]):
    """A running `sh -c COMMAND` with pipes. Its whole environment is `environment`. Raises OSError.

    Leaving the context kills the process group and the processes that have left it.
    """

    def __init__(self, command: str, environment: Mapping[str, str]) -> None:
        their_end, our_end = os.pipe()
        # cbx also holds the reading end of the input, to see how much of it the command has read.
        self.reading_end, writing_end = os.pipe()
        self._ends = (our_end, self.reading_end)
        self._id = uuid4().hex
        self._is_dead = False
        try:
            self.process = subprocess.Popen(
                ["/bin/sh", "-c", _SUPERVISOR, "cbx", command, str(their_end)],
                stdin=self.reading_end,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**environment, COMMAND_ID.name: self._id},
                start_new_session=True,
                pass_fds=[their_end],
            )
        except BaseException:
            for end in (*self._ends, writing_end):
                os.close(end)
            raise
        finally:
            os.close(their_end)
        self.input: IO[bytes] = os.fdopen(writing_end, "wb", buffering=0)

    def __exit__(self, *_: object) -> None:
        if not self._is_dead:
            self.signal(signal.SIGKILL)
        _kill_marked(f"{COMMAND_ID.name}={self._id}".encode())
        self.input.close()
        for end in self._ends:
            os.close(end)
        # As the first process of a container, cbx becomes the parent of all orphans and must wait for them.
        if os.getpid() == 1:
            with suppress(ChildProcessError):
                os.waitpid(-self.process.pid, 0)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole group."""
        # Neither error matters. A group without members holds no pipe. cbx may not signal members that run as
        # another user. The id of a group with members is never reused, so the signal hits no other group.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)
        self._is_dead = number == signal.SIGKILL


def _kill_marked(mark: bytes) -> None:
    """Kill processes with `mark` in their environment, if the system shows environments."""
    for _ in range(_MAX_SEARCHES):
        processes = [path for path in Path("/proc").glob("[0-9]*") if mark in _environment(path)]
        if not processes:
            return
        for process in processes:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(int(process.name), signal.SIGKILL)


def _environment(process: Path) -> list[bytes]:
    try:
        return (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


_CHUNK_SIZE = 65536

# A function that gets each chunk of a command's output.
OutputHandler = Callable[[bytes], object]


class Pipes:
    """The three pipes of a command, served together so that none can block."""

    def __init__(
        self,
        command: SupervisedCommand,
        max_output: int,
        keep_stderr: int,
        heard: OutputHandler = lambda chunk: None,
    ) -> None:
        process = command.process
        assert process.stdout is not None
        assert process.stderr is not None
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.stderr_bytes = 0
        self.too_long = False
        self._searched = 0
        self._max_output = max_output
        self._keep_stderr = keep_stderr
        self._on_output = heard
        self._unsent = memoryview(b"")
        self._sent = 0
        self._is_last = False
        self._input = command.input
        self._reading_end = command.reading_end
        self._outputs: tuple[IO[bytes], IO[bytes]] = (process.stdout, process.stderr)
        self._selector = selectors.DefaultSelector()
        for pipe in (self._input, *self._outputs):
            os.set_blocking(pipe.fileno(), False)
        for output in self._outputs:
            self._selector.register(output, selectors.EVENT_READ, partial(self._receive, output))

    def close(self) -> None:
        self._selector.close()
        for pipe in (self._input, *self._outputs):
            pipe.close()

    @property
    def open(self) -> bool:
        """True while a process may still write to an output."""
        return any(not output.closed for output in self._outputs)

    @property
    def has_read(self) -> bool:
        """True if the command has read any of its input, or got none."""
        buffered = array.array("i", [0])
        fcntl.ioctl(self._reading_end, termios.FIONREAD, buffered)
        return self._sent > buffered[0] or not (self._sent or self._unsent)

    def send(self, data: bytes, *, is_last: bool = False) -> None:
        """Queue `data` for the command's input. If `is_last` is True, the input is closed after it."""
        if self._input.closed:
            return
        if not self._unsent:
            self._selector.register(self._input, selectors.EVENT_WRITE, self._send)
        self._unsent = memoryview(bytes(self._unsent) + data)
        self._is_last = is_last

    def take_line(self) -> bytes | None:
        """Remove and return the first line of standard output, or return None if no line is complete."""
        end = self.stdout.find(b"\n", self._searched)
        if end < 0:
            self._searched = len(self.stdout)
            return None
        self._searched = 0
        line = bytes(self.stdout[:end])
        del self.stdout[: end + 1]
        return line

    def take_rest(self) -> bytes | None:
        """Remove and return the output after the last line break, or return None if it is empty."""
        rest = bytes(self.stdout)
        self.stdout.clear()
        self._searched = 0
        return rest or None

    def serve(self, seconds: float) -> None:
        """Read and write all pipes that are ready within `seconds`."""
        for key, _ in self._selector.select(seconds):
            key.data()

    def _send(self) -> None:
        try:
            sent = os.write(self._input.fileno(), self._unsent[:_CHUNK_SIZE])
        except BlockingIOError:
            return
        self._sent += sent
        self._unsent = self._unsent[sent:]
        if self._unsent:
            return
        self._selector.unregister(self._input)
        if self._is_last:
            self._input.close()

    def _receive(self, pipe: IO[bytes]) -> None:
        try:
            chunk = os.read(pipe.fileno(), _CHUNK_SIZE)
        except BlockingIOError:
            return
        if not chunk:
            self._selector.unregister(pipe)
            pipe.close()
        elif pipe is self._outputs[1]:
            self.stderr_bytes += len(chunk)
            self.stderr += chunk
            del self.stderr[: max(len(self.stderr) - self._keep_stderr, 0)]
        elif len(self.stdout) + len(chunk) > self._max_output:
            self.too_long = True
        else:
            self.stdout += chunk
            self._on_output(chunk)


# In bytes. cbx stops a command that prints more.
MAX_OUTPUT = COMMAND_OUTPUT.value << 20

_POLL_INTERVAL = 0.1
# Seconds between SIGTERM and SIGKILL.
_TERMINATION_TIMEOUT_SECONDS = 5.0
# After a command has ended, processes that it left running may use its pipes for this many seconds.
_PIPES_TIMEOUT_SECONDS = 1.0


class CommandOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a command. `exit_code` is negative after a signal. `duration` is in seconds.

    `stderr` is the end of its stderr, and `stderr_bytes` is the size of its whole stderr. `too_long` means
    that it printed too much. If it, `timed_out` or `stopped` is True, cbx killed the command, and the output
    is incomplete. `has_read` is False if it ended before it read any of its input. `fault` is what cbx found
    wrong with the output of a long-running client, or None.
    """

    exit_code: int
    stdout: bytes
    stderr: str
    stderr_bytes: int
    stderr_is_cut: bool
    timed_out: bool
    stopped: bool
    too_long: bool
    has_read: bool
    duration: float
    fault: str | None = None

    @property
    def was_not_killed(self) -> bool:
        """True unless cbx killed it."""
        return not (self.timed_out or self.stopped or self.too_long)

    @property
    def succeeded(self) -> bool:
        """True if it ended with exit code 0 and cbx did not kill it."""
        return self.exit_code == 0 and self.was_not_killed


def run_command(
    command: str,
    stdin: bytes,
    *,
    environment: Mapping[str, str],
    timeout: float,
    stop: Event,
    max_output: int = MAX_OUTPUT,
    keep_stderr: int = STDERR_KEPT.default,
    grace: float = _TERMINATION_TIMEOUT_SECONDS,
    heard: OutputHandler = lambda chunk: None,
) -> CommandOutcome:
    """Run `sh -c COMMAND` for at most `timeout` seconds. Its whole environment is `environment`.

    Its process group gets SIGTERM if `stop` is set, the time is over, or the output exceeds `max_output`
    bytes. It gets SIGKILL after `grace` more seconds. Processes that the command leaves running also get
    SIGKILL. The outcome has the last `keep_stderr` bytes of stderr. `heard` gets each chunk of the output.
    """
    began = time.monotonic()
    with (
        SupervisedCommand(command, environment) as supervised,
        closing(Pipes(supervised, max_output, keep_stderr, heard)) as pipes,
    ):
        process = supervised.process
        pipes.send(stdin, is_last=True)
        why = _serve_until_end(process, pipes, stop, began + timeout)
        if why is not None:
            supervised.signal(signal.SIGTERM)
        _wait_for_end(process, pipes, _PIPES_TIMEOUT_SECONDS if why is None else grace)
        if why is not None or pipes.open:
            supervised.signal(signal.SIGKILL)
        exit_code = process.wait()
        has_read = pipes.has_read
    if why is None and pipes.too_long:
        why = "too_long"
    duration = time.monotonic() - began
    return outcome_of(pipes, exit_code, bytes(pipes.stdout), why, has_read=has_read, duration=duration)


def outcome_of(
    pipes: Pipes, exit_code: int, stdout: bytes, why: str | None, *, has_read: bool, duration: float
) -> CommandOutcome:
    """Return the outcome of a command. If cbx killed it, `why` names the field that becomes True."""
    return CommandOutcome(
        exit_code=exit_code,
        stdout=stdout,
        stderr=bytes(pipes.stderr).decode(errors="replace"),
        stderr_bytes=pipes.stderr_bytes,
        stderr_is_cut=pipes.stderr_bytes > len(pipes.stderr),
        timed_out=why == "timed_out",
        stopped=why == "stopped",
        too_long=why == "too_long",
        has_read=has_read,
        duration=duration,
    )


def _serve_until_end(
    process: subprocess.Popen[bytes], pipes: Pipes, stop: Event, deadline: float
) -> str | None:
    """Serve the pipes until the command ends or must be stopped. Return the reason for a stop, or None."""
    while process.poll() is None:
        if stop.is_set():
            return "stopped"
        if time.monotonic() >= deadline:
            return "timed_out"
        if pipes.too_long:
            return "too_long"
        _serve(process, pipes)
    return None


def _wait_for_end(process: subprocess.Popen[bytes], pipes: Pipes, seconds: float) -> None:
    """Serve the pipes until they are closed and the command has ended, for at most `seconds`."""
    deadline = time.monotonic() + seconds
    while (pipes.open or process.poll() is None) and time.monotonic() < deadline:
        _serve(process, pipes)


def _serve(process: subprocess.Popen[bytes], pipes: Pipes) -> None:
    """Serve the pipes for one poll interval. If they are closed, wait for the end of the command instead."""
    if pipes.open:
        pipes.serve(_POLL_INTERVAL)
        return
    # A command that still runs is not an error, because the caller polls again.
    with suppress(subprocess.TimeoutExpired):
        process.wait(_POLL_INTERVAL)
