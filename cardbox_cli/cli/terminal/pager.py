"""Answers that are longer than the terminal go through a pager; shorter ones come out as they are.

Owns which pager, when, and what becomes of it. Commands write to stdout and need not know: what they write is
held back until it is longer than the terminal is high.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from io import TextIOBase
from typing import IO, TextIO

from cardbox_cli.cli.terminal.escaping import printable
from cardbox_cli.settings import PAGER, TERM

# As git sets them where they are not set: quit if it fits, colours, no clearing of the screen.
_HABITS = {"LESS": "FRX", "LV": "-c"}


@contextmanager
def paged() -> Iterator[None]:
    """Within it, what is written to the terminal goes through a pager if it is long.

    Ends when the pager has ended. When the person has left it early, what is within ends early, too, and
    quietly.
    """
    pager = _pager()
    if not pager or not sys.stdout.isatty() or TERM.text() == "dumb":
        yield
        return
    paper = _Paper(pager)
    try:
        with paper.instead_of_the_terminal():
            yield
    except _Left:
        pass
    finally:
        paper.finish()


def _pager() -> str:
    """The pager's command line; nothing where none is wanted, or where the usual one is not installed."""
    if found := PAGER.found():
        named = found[1].strip()
        return "" if named == "cat" else named
    return "less" if shutil.which("less") else ""


class _Left(Exception):
    """The person has left the pager."""


class _Paper:
    """What is written to stdout, and to stderr if it is a terminal: held back, then given to the pager."""

    def __init__(self, pager: str) -> None:
        self._pager = pager
        self._out, self._err = sys.stdout, sys.stderr
        self._held: list[tuple[TextIO, str]] = []
        self._columns, self._lines = shutil.get_terminal_size()
        self._height = 0
        self._line = ""
        self._plain = False
        self._process: subprocess.Popen[bytes] | None = None

    @contextmanager
    def instead_of_the_terminal(self) -> Iterator[None]:
        """What is written meanwhile comes here."""
        with ExitStack() as stack:
            stack.enter_context(redirect_stdout(_Sheet(self, self._out)))
            if self._err.isatty():
                stack.enter_context(redirect_stderr(_Sheet(self, self._err)))
            yield

    def put(self, stream: TextIO, text: str) -> None:
        """Take what was meant for `stream`. Raises _Left when nobody reads any more."""
        if self._process is not None:
            self._feed(self._process, text)
        elif self._plain:
            stream.write(text)
        else:
            self._held.append((stream, text))
            if self._is_long(text):
                self._start()

    def flush(self, stream: TextIO) -> None:
        """See to it that the pager has what it was given. What is held back stays."""
        if self._process is not None:
            self._feed(self._process, "")
        elif self._plain:
            stream.flush()

    def finish(self) -> None:
        """Write what was held back, or wait for the person to leave the pager."""
        process, self._process = self._process, None
        if process is None:
            self._release()
            return
        self._plain = True
        assert process.stdin is not None
        # Ctrl-C is for the pager.
        with suppress(BrokenPipeError, KeyboardInterrupt):
            process.stdin.close()
        while process.poll() is None:
            with suppress(KeyboardInterrupt):
                process.wait()
        self._warn_of(process.returncode)

    def _warn_of(self, code: int) -> None:
        """Name a pager that failed: it may have shown nothing. Ctrl-C in it is how some people leave."""
        if code not in (0, -signal.SIGINT, 128 + signal.SIGINT):
            state = f"exited with {code}" if code > 0 else f"was ended by signal {-code}"
            note = f"warning: the pager {self._pager!r} {state}; CBX_PAGER=cat shows the answer without it"
            print(printable(note), file=self._err)

    def _is_long(self, text: str) -> bool:
        from rich.cells import cell_len

        *whole, self._line = (self._line + text).split("\n")
        for line in whole:
            self._height += max(1, -(-cell_len(line) // self._columns))
        return self._height + bool(self._line) >= self._lines

    def _start(self) -> None:
        try:
            self._process = subprocess.Popen(
                shlex.split(self._pager), stdin=subprocess.PIPE, env={**_HABITS, **os.environ}
            )
        except (OSError, ValueError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) else exc
            print(printable(f"warning: cannot start the pager {self._pager!r}: {reason}"), file=self._err)
            self._release()
            return
        held, self._held = self._held, []
        self._feed(self._process, "".join(text for _, text in held))

    def _release(self) -> None:
        self._plain = True
        held, self._held = self._held, []
        for stream, text in held:
            stream.write(text)
            stream.flush()

    def _feed(self, process: "subprocess.Popen[bytes]", text: str) -> None:
        pipe: IO[bytes] | None = process.stdin
        assert pipe is not None
        try:
            pipe.write(text.encode(self._out.encoding, "backslashreplace"))
            if not text:
                pipe.flush()
        except BrokenPipeError:
            raise _Left from None


class _Sheet(TextIOBase):
    """A stream that is the terminal for whoever writes to it."""

    def __init__(self, paper: _Paper, stream: TextIO) -> None:
        self._paper = paper
        self._stream = stream

    def write(self, text: str) -> int:
        self._paper.put(self._stream, text)
        return len(text)

    def flush(self) -> None:
        self._paper.flush(self._stream)

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()
