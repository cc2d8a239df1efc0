"""One process at a time changes a server: how long others wait for it, and what they say meanwhile."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from cardbox_cli import files
from cardbox_cli.errors import DatabaseUnavailable

_PATIENCE = 180.0


def exclusive(path: Path, announce: Callable[[str], None]) -> AbstractContextManager[int]:
    """Hold the lock file `path`. Says once that it waits; DatabaseUnavailable after three minutes."""
    announced = False

    def waiting(seconds: float) -> None:
        nonlocal announced
        if seconds > _PATIENCE:
            raise DatabaseUnavailable(
                f"another process has held {str(path)!r} for {_PATIENCE:.0f} s",
                hint="look for a cbx that hangs, and end it",
            )
        if seconds > 1 and not announced:
            announce("waiting for another cbx that is starting the server")
            announced = True

    return files.exclusive(path, waiting)
