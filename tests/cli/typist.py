"""Somebody at a terminal: a program on a pseudo-terminal, keys that are typed, and what is then to be seen."""

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

PATIENCE = 120.0
# What terminals are told besides text: colours, cursor moves, titles.
_CONTROL = re.compile(
    r"\x1b\[[0-9;:?<>=]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][A-Z0-9]|\x1b[=>78]|[\x07\r]"
)


class Typist:
    """A program on a terminal of its own. Use as a context manager: it ends the program."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        self._ours, theirs = os.openpty()
        self.resize(40, 120)
        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=dict(environment),
            cwd=folder,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self._seen = b""

    def __enter__(self) -> "Typist":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self._ours)

    def resize(self, rows: int, columns: int) -> None:
        """Give the terminal another size, after forgetting what was seen so far."""
        self._seen = b""
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys: str) -> None:
        """Type, after forgetting what was seen so far."""
        self._seen = b""
        os.write(self._ours, keys.encode())

    def see(self, pattern: str, seconds: float = PATIENCE) -> "re.Match[str]":
        """Wait until `pattern` is to be seen in what came since the last keys."""
        found = self.glimpse(pattern, seconds)
        assert found is not None, f"{pattern!r} is not in:\n{self.seen}"
        return found

    def glimpse(self, pattern: str, seconds: float) -> "re.Match[str] | None":
        """As `see`, but None when it did not come."""
        deadline = time.monotonic() + seconds
        while (found := re.search(pattern, self.seen)) is None and time.monotonic() < deadline:
            if select.select([self._ours], [], [], 0.05)[0]:
                try:
                    self._seen += os.read(self._ours, 65536)
                except OSError:  # the program closed its end
                    return re.search(pattern, self.seen)
        return found

    def press_until(self, keys: str, pattern: str) -> "re.Match[str]":
        """Press `keys`, again every two seconds as a person would, until `pattern` is to be seen."""
        for _ in range(int(PATIENCE / 2)):
            os.write(self._ours, keys.encode())
            if found := self.glimpse(pattern, 2):
                return found
        return self.see(pattern, 0)

    @property
    def seen(self) -> str:
        """What came since the last keys, as text."""
        return _CONTROL.sub("", self._seen.decode(errors="replace"))

    @property
    def received(self) -> str:
        """What came since the last keys, with all that it tells the terminal."""
        return self._seen.decode(errors="replace")

    def end(self) -> int:
        """Wait for the program to end by itself; its exit code."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < deadline:
            self.glimpse(r"(?!)", 0.1)
        # What it said last may still be on its way.
        while select.select([self._ours], [], [], 0)[0]:
            before = len(self._seen)
            self.glimpse(r"(?!)", 0.05)
            if len(self._seen) == before:
                break
        return self.process.wait(1)
