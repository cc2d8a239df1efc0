"""Files and folders that other processes look at meanwhile: made whole, and held by one process at a time.

Owns what may be opened to be read, atomic replacement, and locks that die with their holder. Knows nothing of
what the files hold.
"""

import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO

# What makes folders is imported there: most commands only look at files, and it takes a while to load.

_PAUSE = 0.05

# What a shell, or whoever started us, has opened for us.
_OPEN_ALREADY = re.compile(r"/dev/(stdin|fd/\d+)|/proc/(self|\d+)/fd/\d+")


def open_to_read(path: str | Path) -> BinaryIO:
    """A file to read. Raises OSError, also for devices and named pipes, which may never end or begin."""
    mode = os.stat(path).st_mode
    is_file = stat.S_ISREG(mode) or stat.S_ISDIR(mode)
    if not (is_file or str(path) == os.devnull or _OPEN_ALREADY.fullmatch(str(path))):
        what = "a named pipe" if stat.S_ISFIFO(mode) else "a device or a socket"
        raise OSError(errno.EINVAL, f"it is {what}, no file; redirect it to standard input")
    return Path(path).open("rb")


def open_within(path: str | Path) -> BinaryIO:
    """A file of a folder that somebody else may have filled: the one that stands there, through no link.

    Raises OSError, also for whatever is no file, without waiting for it.
    """
    return open(path, "rb", opener=_plainly)


def _plainly(path: str, flags: int) -> int:
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as exc:
        if exc.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a link, which is not followed") from exc
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is no file")


@contextmanager
def replacing(path: Path) -> Iterator[TextIO]:
    """A stream whose text becomes the file `path` once it is whole; until then a reader sees the old one.

    A new file is the owner's alone, whatever the umask. What a killed process leaves of it beside `path` is
    called `.<its name>.new-…`; writers that hold a lock may `sweep_files` it.
    """
    unfinished = path.with_name(f"{_unfinished(path)}{os.urandom(8).hex()}")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as stream:
            yield stream
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def sweep_files(path: Path) -> None:
    """Remove what writers of the file `path` left behind when they were killed."""
    for name in os.listdir(path.parent):
        if name.startswith(_unfinished(path)):
            path.with_name(name).unlink(missing_ok=True)


def _unfinished(path: Path) -> str:
    return f".{path.name}.new-"


@contextmanager
def building(folder: Path) -> Iterator[Path]:
    """A new private folder that becomes `folder` when all went well, and is removed otherwise.

    What a killed process leaves of it beside `folder` is called `<its name>.new-…`; see `sweep`.
    """
    import shutil
    import tempfile

    unfinished = Path(tempfile.mkdtemp(prefix=f"{folder.name}.new-", dir=folder.parent))
    try:
        yield unfinished
        unfinished.rename(folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def sweep(folder: Path) -> None:
    """Remove what attempts at building `folder` left behind when they were killed."""
    import shutil
    from glob import escape

    for leftover in folder.parent.glob(f"{escape(folder.name)}.new-*"):
        shutil.rmtree(leftover, ignore_errors=True)


@contextmanager
def exclusive(path: Path, waiting: Callable[[float], None] = lambda _: None) -> Iterator[int]:
    """Hold `path`, a folder, or a file that is made if need be; yields its descriptor.

    A child that inherits the descriptor shares the hold. `waiting` is called with the seconds that it takes
    already, again and again, until the hold is ours or it raises.
    """
    began = time.monotonic()
    while (descriptor := _try(path)) is None:
        waiting(time.monotonic() - began)
        time.sleep(_PAUSE)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _try(path: Path) -> int | None:
    flags = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A holder may have removed the file: what was locked here then has no name any more.
        if os.path.samestat(os.fstat(descriptor), os.stat(path)):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None
