"""Files that are too large to be read whole: open at any place, whatever they are, packed or in a folder."""

import gzip
import os
import stat
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import UnsupportedOperation
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, BinaryIO, cast

from cardbox_cli.cli.parameters.inputs import opened, source_name
from cardbox_cli.errors import InvalidInput
from cardbox_cli.limits import FOLDER_FILES, PIPE_SIZE

_BLOCK = 1 << 16
_GZIP = b"\x1f\x8b"


@contextmanager
def open_file(path: str) -> Iterator[BinaryIO]:
    """A file whose bytes can be read at any place; a pipe, or standard input for `-`, is copied to one.

    What gzip packed is unpacked. Raises NotFound and InvalidInput naming it.
    """
    with opened(path) as file:
        if _is_regular(file):
            with _unpacked(file, source_name(path)) as plain:
                yield plain
            return
        with TemporaryFile() as copy:
            _copy(file, copy, source_name(path))
            with _unpacked(copy, source_name(path)) as plain:
                yield plain


def is_packed(file: BinaryIO | IO[bytes]) -> bool:
    """Whether gzip packed a file."""
    return os.pread(file.fileno(), len(_GZIP), 0) == _GZIP


@contextmanager
def _unpacked(file: BinaryIO | IO[bytes], name: str) -> Iterator[BinaryIO]:
    """The file, or a copy of what gzip packed into it."""
    if not is_packed(file):
        yield cast(BinaryIO, file)
        return
    file.seek(0)
    with gzip.GzipFile(fileobj=file) as packed, TemporaryFile() as copy:
        try:
            _copy(cast(BinaryIO, packed), copy, name)
        except (EOFError, gzip.BadGzipFile, zlib.error) as exc:
            raise InvalidInput(f"{name} cannot be unpacked: {exc}", hint="it is cut or damaged") from exc
        yield cast(BinaryIO, copy)


def files_in(paths: Sequence[str], suffixes: Sequence[str]) -> list[str]:
    """The files of these paths: those of a folder, and of the folders in it, that end so, by their names.

    Raises InvalidInput for a folder without any, and for one with more files than anybody looks through.
    """
    found: list[str] = []
    for path in paths:
        if path == "-" or not os.path.isdir(path):
            found.append(path)
            continue
        within = [str(each) for each in sorted(_files_below(path)) if _is_wanted(each, suffixes)]
        if not within:
            raise InvalidInput(
                f"the folder {path!r} has no file that ends in {', '.join(suffixes)}",
                hint="name the files themselves",
            )
        found += within
    return found


def _files_below(path: str) -> list[Path]:
    """The files of a folder and of the folders in it, but for what may not be read or is gone meanwhile."""
    found: list[Path] = []
    for folder, _, names in os.walk(path):
        found += (Path(folder, name) for name in names)
        if len(found) > FOLDER_FILES.value:
            raise InvalidInput(
                f"the folder {path!r} holds more than {FOLDER_FILES}",
                hint="name the folder in it that has the conversations",
            )
    return found


def _is_wanted(path: Path, suffixes: Sequence[str]) -> bool:
    return path.name.removesuffix(".gz").endswith(tuple(suffixes)) and os.path.isfile(path)


def _copy(file: BinaryIO, copy: IO[bytes], name: str) -> None:
    """Copy what a pipe or a packed file brings. Raises InvalidInput where it brings too much."""
    left = PIPE_SIZE.value << 20
    while piece := file.read(_BLOCK):
        left -= len(piece)
        if left < 0:
            hint = "write it to a file, and name that"
            raise InvalidInput(f"{name} brings more than {PIPE_SIZE}", hint=hint)
        copy.write(piece)
    copy.flush()


def _is_regular(file: BinaryIO) -> bool:
    try:
        return stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    except UnsupportedOperation:
        return False


def end_of_lines(file: BinaryIO) -> int:
    """The length in bytes of a file up to its last line break."""
    end = os.fstat(file.fileno()).st_size
    while end > 0:
        begin = max(0, end - _BLOCK)
        found = os.pread(file.fileno(), end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0
