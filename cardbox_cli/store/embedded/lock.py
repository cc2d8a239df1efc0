"""One process at a time: a lock file whose lock dies with its holder."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cardbox_cli.errors import DatabaseUnavailable

_PATIENCE = 180.0
_PAUSE = 0.05


@contextmanager
def exclusive(path: Path, announce: Callable[[str], None]) -> Iterator[int]:
    """Hold the lock file `path`; yields its descriptor. A child that inherits it shares the hold.

    After a second of waiting says so, once. Raises DatabaseUnavailable after three minutes.
    """
    descriptor = _acquire(path, announce)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _acquire(path: Path, announce: Callable[[str], None]) -> int:
    began = time.monotonic()
    announced = False
    while (descriptor := _try(path)) is None:
        waited = time.monotonic() - began
        if waited > _PATIENCE:
            raise DatabaseUnavailable(
                f"another process has held {str(path)!r} for {_PATIENCE:.0f} s",
                hint="look for a cbx that hangs, and end it",
            )
        if waited > 1 and not announced:
            announce("waiting for another cbx that is starting the server")
            announced = True
        time.sleep(_PAUSE)
    return descriptor


def _try(path: Path) -> int | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # `destroy` removes the file that it holds: what was locked here may have no name any more.
        if os.path.samestat(os.fstat(descriptor), os.stat(path)):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None
