"""Files and folders that other processes read at the same time: written atomically, locked by one process.

Owns safe opening for reading, atomic replacement, and locks that end with their holder. Knows nothing about
the contents of files.
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

# Modules that create folders are imported inside functions: most commands only read files, and they load
# slowly.

_POLL_INTERVAL = 0.05

# Descriptors that the shell or the parent process has opened for us.
_INHERITED_DESCRIPTOR = re.compile(r"/dev/(stdin|fd/\d+)|/proc/(self|\d+)/fd/\d+")


def open_to_read(path: str | Path) -> BinaryIO:
    """Open a file for reading. Raises OSError, also for devices and named pipes, which may never end."""
    mode = os.stat(path).st_mode
    is_file = stat.S_ISREG(mode) or stat.S_ISDIR(mode)
    if not (is_file or str(path) == os.devnull or _INHERITED_DESCRIPTOR.fullmatch(str(path))):
        what = "a named pipe" if stat.S_ISFIFO(mode) else "a device or a socket"
        raise OSError(errno.EINVAL, f"it is {what}, not a file; redirect it to standard input")
    return Path(path).open("rb")


def open_regular_file(path: str | Path) -> BinaryIO:
    """Open a file of a folder that another user may have filled, without following links.

    Raises OSError, also for anything that is not a regular file, without waiting for it.
    """
    return open(path, "rb", opener=_open_regular)


def _open_regular(path: str, flags: int) -> int:
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as exc:
        if exc.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a symbolic link, and cbx does not follow those here") from exc
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is not a regular file")


@contextmanager
def atomic_write(path: Path) -> Iterator[TextIO]:
    """Yield a stream whose text becomes the file `path` when it is complete.

    Only the owner can read a new file, independent of the umask. A killed process leaves `.<name>.new-…` next
    to `path`; writers that hold a lock may remove it with `remove_leftover_files`.
    """
    unfinished = path.with_name(f"{_temporary_prefix(path)}{os.urandom(8).hex()}")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as stream:
            yield stream
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def remove_leftover_files(path: Path) -> None:
    for name in os.listdir(path.parent):
        if name.startswith(_temporary_prefix(path)):
            path.with_name(name).unlink(missing_ok=True)


def _temporary_prefix(path: Path) -> str:
    return f".{path.name}.new-"


@contextmanager
def atomic_directory(folder: Path) -> Iterator[Path]:
    """Yield a new private folder that becomes `folder` on success, and is removed on failure.

    A killed process leaves `<name>.new-…` next to `folder`; `remove_leftover_folders` removes it.
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


def remove_leftover_folders(folder: Path) -> None:
    import shutil
    from glob import escape

    for leftover in folder.parent.glob(f"{escape(folder.name)}.new-*"):
        shutil.rmtree(leftover, ignore_errors=True)


@contextmanager
def file_lock(path: Path, waiting: Callable[[float], None] = lambda _: None) -> Iterator[int]:
    """Lock `path`, a folder or a file that is created if missing, and yield its descriptor.

    A child that inherits the descriptor shares the lock. While another process holds it, `waiting` is called
    repeatedly with the seconds waited so far, and may raise.
    """
    began = time.monotonic()
    while (descriptor := _try_lock(path)) is None:
        waiting(time.monotonic() - began)
        time.sleep(_POLL_INTERVAL)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _try_lock(path: Path) -> int | None:
    flags = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A holder may have removed the file: the file that we locked then no longer has a name.
        if os.path.samestat(os.fstat(descriptor), os.stat(path)):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None
