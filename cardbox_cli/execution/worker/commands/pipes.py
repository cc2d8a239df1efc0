"""The three pipes of a command, served without ever waiting for one of them alone."""

import os
import selectors
import subprocess
from collections.abc import Callable
from functools import partial
from typing import IO

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
