"""Progress of long work: a bar on stderr, if that is a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from cardbox_cli.settings import TERM

if TYPE_CHECKING:
    from rich.progress import Progress


# Shorter work shows no bar.
_MIN_SECONDS = 0.5


@contextmanager
def bar(what: str, total: int, *, in_bytes: bool = False) -> Iterator[Callable[[int], None]]:
    """Yield a function that sets the finished part of `total`. The bar appears after `_MIN_SECONDS`."""
    is_visible = sys.stderr.isatty() and TERM.text() != "dumb"
    began = monotonic()
    progress: Progress | None = None

    def advance_to(done: int) -> None:
        nonlocal progress
        if progress is None and is_visible and monotonic() - began > _MIN_SECONDS:
            progress = _start_progress(what, total, in_bytes)
        if progress is not None:
            progress.update(progress.task_ids[0], completed=done)

    try:
        yield advance_to
    finally:
        if progress is not None:
            progress.stop()


def _start_progress(what: str, total: int, in_bytes: bool) -> "Progress":
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
