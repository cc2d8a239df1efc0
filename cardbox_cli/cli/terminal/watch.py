"""Implements `--watch`: a terminal shows the newest state, and a pipe gets only new output.

It ends at Ctrl-C, at an error, or when the reader closes the pipe. It works for any output.
"""

import os
import select
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from typing import Never, TypeVar

import click

from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.table_layout import clip_line
from cardbox_cli.errors import UsageError
from cardbox_cli.settings import TERM

_Seen = TypeVar("_Seen")


def poll_interval(watch: bool, interval: float) -> float | None:
    """Return the seconds between refreshes (None without --watch). Raises UsageError for --interval alone."""
    source = click.get_current_context().get_parameter_source("interval")
    if not watch and source is not click.core.ParameterSource.DEFAULT:
        raise UsageError("--interval requires --watch", hint="add --watch, or remove --interval")
    return interval if watch else None


def keep_showing(
    look: Callable[[], _Seen], show: Callable[[_Seen], object], *, interval: float, end: bool = False
) -> Never:
    """Print the result of `look` repeatedly. A terminal is redrawn; a pipe gets only changed results.

    If the result is higher than the terminal, its first lines are shown, or with `end` its last lines.
    """
    can_draw = sys.stdout.isatty() and TERM.text() != "dumb"
    before: list[_Seen] = []
    with _alarm() as resized_within:
        while True:
            seen = look()
            if can_draw:
                _draw(show, seen, end)
            elif before != [seen]:
                show(seen)
                sys.stdout.flush()
            before = [seen]
            while resized_within(interval):
                if can_draw:
                    _draw(show, seen, end)


def follow(look: Callable[[], Sequence[str]], *, interval: float) -> Never:
    """Write each new line of `look`. A line that occurs twice in the result is written twice."""
    written: Counter[str] = Counter()
    with _alarm() as resized_within:
        while True:
            now: Counter[str] = Counter()
            for line in look():
                now[line] += 1
                if now[line] > written[line]:
                    output.write(line)
            written |= now
            sys.stdout.flush()
            while resized_within(interval):
                pass


def printed_by(write: Callable[[], None]) -> str:
    """Return the text that `write` prints to stdout, so that `keep_showing` can compare it."""
    canvas = _Canvas() if sys.stdout.isatty() else StringIO()
    with redirect_stdout(canvas):
        write()
    return canvas.getvalue()


@contextmanager
def pauses() -> Iterator[Callable[[float], None]]:
    """Yield a function that waits N seconds. It raises BrokenPipeError if the reader of stdout is gone."""
    with _alarm() as resized_within:

        def pause(seconds: float) -> None:
            while resized_within(seconds):
                pass

        yield pause


class _Canvas(StringIO):
    def isatty(self) -> bool:
        return True


def _draw(show: Callable[[_Seen], object], seen: _Seen, end: bool) -> None:
    canvas = _Canvas()
    with redirect_stdout(canvas), redirect_stderr(canvas):
        show(seen)
    columns, rows = shutil.get_terminal_size()
    lines = canvas.getvalue().splitlines()
    room = max(1, rows - 1)
    fitting = lines[-room:] if end else lines[:room]
    drawing = "".join(f"{_ERASE_LINE}{clip_line(line, columns)}\n" for line in fitting)
    sys.stdout.write(_HOME + drawing + _ERASE_BELOW)
    sys.stdout.flush()


# The longest wait in seconds. poll(2) counts milliseconds in an int, so cbx refreshes at least once a day.
_MAX_SECONDS = 86_400
_HOME = "\x1b[H"
_ERASE_LINE = "\x1b[2K"
_ERASE_BELOW = "\x1b[J"


@contextmanager
def _alarm() -> Iterator[Callable[[float], bool]]:
    """Yield a function that waits N seconds, or returns True early if the terminal changes its size."""
    resized, resize = os.pipe()
    os.set_blocking(resize, False)
    handler = signal.signal(signal.SIGWINCH, lambda *_: os.write(resize, b"!"))
    poll = select.poll()
    poll.register(resized, select.POLLIN)
    # Even without registered events, poll reports that the reader is gone.
    poll.register(sys.stdout.fileno(), 0)

    def resized_within(seconds: float) -> bool:
        ready = [descriptor for descriptor, _ in poll.poll(int(min(_MAX_SECONDS, seconds) * 1000))]
        if ready and resized not in ready:
            raise BrokenPipeError
        return bool(ready and os.read(resized, 1024))

    try:
        yield resized_within
    finally:
        # Python returns None for a handler that another program installed.
        signal.signal(signal.SIGWINCH, handler or signal.SIG_DFL)
        os.close(resized)
        os.close(resize)
