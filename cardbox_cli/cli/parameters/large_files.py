"""Files that are too large to be read whole: open at any place, whatever they are."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import UnsupportedOperation
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import BinaryIO

from cardbox_cli.cli.parameters.inputs import opened

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
            copyfileobj(file, copy)
            copy.flush()
            yield copy


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
