"""Sends the answers of commands that read through a pager, by default `less -FRX`.

This module chooses, starts and ends the pager. Commands only write to stdout.
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
from typing import TextIO

from cardbox_cli.settings import PAGER, TERM
from cardbox_cli.text.escaping import escape_invisible

# git sets the same defaults: quit if the text fits, allow colours, and do not clear the screen.
_HABITS = {"LESS": "FRX", "LV": "-c"}


@contextmanager
def page_output() -> Iterator[None]:
    """Send what the block writes to the terminal through a pager, which starts with the first text.

    Returns when the pager has ended. If the person leaves it early, the block ends early, without an error.
    """
    command = _command()
    if not command or not sys.stdout.isatty() or TERM.text() == "dumb":
        yield
        return
    pager = _Pager(command)
    try:
        with ExitStack() as stack:
            stack.enter_context(redirect_stdout(_Stream(pager, sys.stdout)))
            if sys.stderr.isatty():
                stack.enter_context(redirect_stderr(_Stream(pager, sys.stderr)))
            yield
    except _PagerLeft:
        pass
    finally:
        pager.finish()


def _command() -> str:
    """Return the pager's command line. It is empty if the person wants no pager or less is not installed."""
    if setting := PAGER.find():
        command = setting[1].strip()
        return "" if command == "cat" else command
    return "less" if shutil.which("less") else ""


class _PagerLeft(Exception):
    """The person has left the pager."""


class _Pager:
    """A pager that starts with the first text. If it cannot start, the text goes to the terminal."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._err = sys.stderr
        self._process: subprocess.Popen[bytes] | None = None
        self._is_open = True

    def write(self, text: str, terminal: TextIO) -> None:
        """Show a text that was meant for `terminal`. Raises _PagerLeft after the person has left."""
        if self._process is None and self._is_open and text:
            self._start()
        if self._process is None:
            terminal.write(text)
            return
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(text.encode(terminal.encoding, "backslashreplace"))
        except BrokenPipeError:
            raise _PagerLeft from None

    def flush(self, terminal: TextIO) -> None:
        try:
            (terminal if self._process is None else self._process.stdin or terminal).flush()
        except BrokenPipeError:
            raise _PagerLeft from None

    def finish(self) -> None:
        """Wait for the person to leave the pager. Warns if it failed, because it may have shown nothing."""
        process, self._process, self._is_open = self._process, None, False
        if process is None:
            return
        assert process.stdin is not None
        # Ctrl-C is for the pager. Some people leave the pager with it.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            with suppress(BrokenPipeError):
                process.stdin.close()
            code = process.wait()
        finally:
            signal.signal(signal.SIGINT, before)
        if code not in (0, -signal.SIGINT, 128 + signal.SIGINT):
            state = f"exited with {code}" if code > 0 else f"was killed by signal {-code}"
            self._warn(f"the pager {self._command!r} {state}; CBX_PAGER=cat shows the output without it")

    def _start(self) -> None:
        self._is_open = False
        try:
            self._process = subprocess.Popen(
                shlex.split(self._command), stdin=subprocess.PIPE, env={**_HABITS, **os.environ}
            )
        except (OSError, ValueError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) else exc
            self._warn(f"cannot start the pager {self._command!r}: {reason}")

    def _warn(self, text: str) -> None:
        print(escape_invisible(f"warning: {text}"), file=self._err, flush=True)


class _Stream(TextIOBase):
    def __init__(self, pager: _Pager, terminal: TextIO) -> None:
        self._pager = pager
        self._terminal = terminal

    def write(self, text: str) -> int:
        self._pager.write(text, self._terminal)
        return len(text)

    def flush(self) -> None:
        self._pager.flush(self._terminal)

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._terminal.fileno()
