"""Progress of long work: a bar on stderr, if that is a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from cardbox_cli.settings import TERM

if TYPE_CHECKING:
    from rich.progress import Progress


# What is done sooner, in seconds, shows no bar.
_SHORT = 0.5


@contextmanager
def bar(what: str, total: int, *, in_bytes: bool = False) -> Iterator[Callable[[int], None]]:
    """Yield a function that sets how much of `total` is done. Its bar appears after a moment."""
    shown = _Bar(what, total, in_bytes)
    try:
        yield shown.advance_to
    finally:
        shown.close()


class _Bar:
    def __init__(self, what: str, total: int, in_bytes: bool) -> None:
        self._what = what
        self._total = total
        self._in_bytes = in_bytes
        self._visible = sys.stderr.isatty() and TERM.text() != "dumb"
        self._began = monotonic()
        self._progress: Progress | None = None

    def advance_to(self, done: int) -> None:
        if self._progress is None and self._visible and monotonic() - self._began > _SHORT:
            self._progress = _started(self._what, self._total, self._in_bytes)
        if self._progress is not None:
            self._progress.update(self._progress.task_ids[0], completed=done)

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()


def _started(what: str, total: int, in_bytes: bool) -> "Progress":
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn() if in_bytes else MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    progress.add_task(what, total=total)
    progress.start()
    return progress
