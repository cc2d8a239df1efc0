"""Files that are too large to be read whole: open at any place, whatever they are."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import UnsupportedOperation
from tempfile import TemporaryFile
from typing import IO, BinaryIO

from cardbox_cli.cli.parameters.inputs import opened, source_name
from cardbox_cli.errors import InvalidInput
from cardbox_cli.settings import PIPE_SIZE

_BLOCK = 1 << 16


@contextmanager
def open_file(path: str) -> Iterator[BinaryIO]:
    """A file whose bytes can be read at any place; a pipe, or standard input for `-`, is copied to one.

    Raises NotFound and InvalidInput naming it.
    """
    with opened(path) as file:
        if _is_regular(file):
            yield file
            return
        with TemporaryFile() as copy:
            _copy(file, copy, source_name(path))
            yield copy


def _copy(file: BinaryIO, copy: IO[bytes], name: str) -> None:
    """Copy what a pipe brings. Raises InvalidInput where it brings too much."""
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
