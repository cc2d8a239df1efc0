"""A command as a process group that never outlives us, be we killed by whatever signal.

A supervisor in the group reads from a pipe that we alone can write to: when we are gone it reads its end, and
kills the group. It is a shell, which starts in a millisecond on every system. What leaves the group, by a
session of its own, is found by a variable of its environment once the command is over; where we die first, it
is beyond us.
"""

import os
import selectors
import signal
import subprocess
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

# How often what was started meanwhile is looked for again.
_LOOKS = 5

# It ignores what may be sent to its group, and is nobody's child, so that a command that waits for all of its
# children does not wait for it.
_SUPERVISOR = """\
( trap '' HUP INT QUIT USR1 USR2 ALRM TERM
  { read -r over; kill -KILL 0; } < "/dev/fd/$2" > /dev/null 2>&1 & )
exec /bin/sh -c "$1"
"""


class SupervisedCommand(AbstractContextManager["SupervisedCommand"]):
    """A running `sh -c COMMAND` with pipes, in `environment` and no more. Raises OSError.

    When the context is left, the group dies, and what has left it.
    """

    def __init__(self, command: str, environment: Mapping[str, str]) -> None:
        theirs, self._ours = os.pipe()
        self._id = uuid4().hex
        self._is_dead = False
        try:
            self.process = subprocess.Popen(
                ["/bin/sh", "-c", _SUPERVISOR, "cbx", command, str(theirs)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**environment, COMMAND_ID.name: self._id},
                start_new_session=True,
                pass_fds=[theirs],
            )
        except BaseException:
            os.close(self._ours)
            raise
        finally:
            os.close(theirs)

    def __exit__(self, *_: object) -> None:
        if not self._is_dead:
            self.signal(signal.SIGKILL)
        _kill_marked(f"{COMMAND_ID.name}={self._id}".encode())
        os.close(self._ours)
        # The first process of a container gets all orphans, and nobody else buries them.
        if os.getpid() == 1:
            with suppress(ChildProcessError):
                os.waitpid(-self.process.pid, 0)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole group."""
        # A group that has a member keeps its number, and one without has nobody left to hold a pipe. One
        # whose members have all become other users is beyond us.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)
        self._is_dead = number == signal.SIGKILL


def _kill_marked(mark: bytes) -> None:
    """Kill what has the mark in the environment that it was started with, where the system shows that."""
    for _ in range(_LOOKS):
        found = [pid for pid in _processes() if mark in _environment(pid)]
        if not found:
            return
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _environment(pid: int) -> list[bytes]:
    try:
        return Path("/proc", str(pid), "environ").read_bytes().split(b"\0")
    except OSError:
        return []


# The three pipes of a command, served without ever waiting for one of them alone.


_PIECE = 65536

# What is told each piece of a command's output.
Heard = Callable[[bytes], object]


class Pipes:
    """The three pipes of a command, served without ever waiting for one of them alone."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        max_output: int,
        keep_stderr: int,
        heard: Heard = lambda piece: None,
    ) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.stderr_bytes = 0
        self.too_long = False
        self._without_end = 0
        self._max_output = max_output
        self._keep_stderr = keep_stderr
        self._heard = heard
        self._unsent = memoryview(b"")
        self._is_last = False
        self._input: IO[bytes] = process.stdin
        self._outputs: tuple[IO[bytes], IO[bytes]] = (process.stdout, process.stderr)
        self._selector = selectors.DefaultSelector()
        os.set_blocking(self._input.fileno(), False)
        for output in self._outputs:
            self._register(output, selectors.EVENT_READ, partial(self._receive, output))

    def close(self) -> None:
        """Close them all."""
        self._selector.close()
        for pipe in (self._input, *self._outputs):
            pipe.close()

    @property
    def open(self) -> bool:
        """Whether somebody may still write to an output."""
        return any(not output.closed for output in self._outputs)

    def send(self, data: bytes, *, is_last: bool = False) -> None:
        """Write `data` as the command reads it, behind what it has not read yet; `is_last` ends its input."""
        if self._input.closed:
            return
        if not self._unsent:
            self._selector.register(self._input, selectors.EVENT_WRITE, self._send)
        self._unsent = memoryview(bytes(self._unsent) + data)
        self._is_last = is_last

    def take_line(self) -> bytes | None:
        """The first line of standard output, which is then held no more; None until there is one."""
        end = self.stdout.find(b"\n", self._without_end)
        if end < 0:
            self._without_end = len(self.stdout)
            return None
        self._without_end = 0
        line = bytes(self.stdout[:end])
        del self.stdout[: end + 1]
        return line

    def take_rest(self) -> bytes | None:
        """What is left of standard output, without the end of a line; None where nothing is."""
        rest = bytes(self.stdout)
        self.stdout.clear()
        self._without_end = 0
        return rest or None

    def forget_stderr(self) -> None:
        """Begin anew to count and to keep what comes on stderr."""
        self.stderr.clear()
        self.stderr_bytes = 0

    def serve(self, seconds: float) -> None:
        """Read and write what can be read and written at once, or within so many seconds."""
        for key, _ in self._selector.select(seconds):
            key.data()

    def _register(self, pipe: IO[bytes], events: int, when_ready: Callable[[], None]) -> None:
        os.set_blocking(pipe.fileno(), False)
        self._selector.register(pipe, events, when_ready)

    def _send(self) -> None:
        try:
            sent = os.write(self._input.fileno(), self._unsent[:_PIECE])
            self._unsent = self._unsent[sent:]
        except BlockingIOError:
            return
        except OSError:
            # It does not read its input: that is its own business.
            self._unsent = self._unsent[:0]
            self._is_last = True
        if self._unsent:
            return
        self._selector.unregister(self._input)
        if self._is_last:
            self._input.close()

    def _receive(self, pipe: IO[bytes]) -> None:
        try:
            piece = os.read(pipe.fileno(), _PIECE)
        except BlockingIOError:
            return
        if not piece:
            self._drop(pipe)
        elif pipe is self._outputs[0]:
            self._keep_output(piece)
        else:
            self._keep_end_of_stderr(piece)

    def _keep_output(self, piece: bytes) -> None:
        if len(self.stdout) + len(piece) > self._max_output:
            self.too_long = True
        else:
            self.stdout += piece
            self._heard(piece)

    def _keep_end_of_stderr(self, piece: bytes) -> None:
        self.stderr_bytes += len(piece)
        self.stderr += piece
        del self.stderr[: max(len(self.stderr) - self._keep_stderr, 0)]

    def _drop(self, pipe: IO[bytes]) -> None:
        self._selector.unregister(pipe)
        pipe.close()


# A command line of somebody else's, run as a process group: bytes in, bytes out, and never forever.
#
# Owns the time limit, the order to stop and the death of whatever the command left running.
# That it dies with us is `supervised.py`'s. Knows nothing of turns or of what the output means.


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
