"""What a command of a hook sees of the shell that asked for it, and what it writes, in files for that."""

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import RawIOBase, TextIOWrapper
from pathlib import Path
from typing import BinaryIO, cast

from cardbox_cli import settings

# Bytes of a piece that the shell prints by itself; for a longer one it starts `cat`.
_SMALL = 65_536
# The letters of pieces that `cat` prints. No capitals: shells may take these for the same.
_BY_CAT = {"o": "c", "e": "f"}

# What else decides how a command answers, besides the variables of settings.py, CBX_… and PG….
_OF_SYSTEM = ("HOME", "TZ", "LANG", "LC_ALL", "LC_CTYPE", "SSL_CERT_FILE", "SSL_CERT_DIR")


def _variables() -> list[str]:
    known = [each for each in vars(settings).values() if isinstance(each, settings.Variable)]
    names = {*_OF_SYSTEM, *(name for each in known for name in (each.name, *each.instead))}
    return sorted(name for name in names if not name.startswith(_PREFIXES))


_PREFIXES = ("CBX_", "PG")
# What a request has besides variables that begin so.
VARIABLES = _variables()


class Output:
    """What a command writes, in pieces: each is of one stream, in the order in which they came."""

    def __init__(self, stem: Path) -> None:
        self._stem = stem
        self._pieces: list[tuple[str, bytearray]] = []

    def add(self, stream: str, data: bytes) -> None:
        """Add what came on a stream, `o` or `e`."""
        if not self._pieces or self._pieces[-1][0] != stream:
            self._pieces.append((stream, bytearray()))
        self._pieces[-1][1].extend(data)

    def written(self) -> str:
        """Write the files; a letter for each: its stream, or another where `cat` is to print it."""
        for number, (_, data) in enumerate(self._pieces):
            self._file(number).write_bytes(data)
        return "".join(
            _BY_CAT[stream] if len(data) > _SMALL or 0 in data else stream for stream, data in self._pieces
        )

    def remove(self) -> None:
        """Remove the files of an earlier answer."""
        number = 0
        with suppress(FileNotFoundError):
            while True:
                self._file(number).unlink()
                number += 1

    def _file(self, number: int) -> Path:
        return self._stem.with_name(f"{self._stem.name}.{number}")


class _Stream(RawIOBase):
    """One of the two streams, for whoever writes to it."""

    def __init__(self, output: Output, name: str, terminal: bool) -> None:
        self._output = output
        self._name = name
        self._terminal = terminal

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._terminal

    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        self._output.add(self._name, data)
        return len(data)


@contextmanager
def surroundings(
    variables: Mapping[str, str], output: Output, out_terminal: bool, err_terminal: bool
) -> Iterator[None]:
    """Within, environment and streams are those of a shell: its variables, and what is a terminal."""
    streams = sys.stdout, sys.stderr
    sys.stdout = _text(_Stream(output, "o", out_terminal))
    sys.stderr = _text(_Stream(output, "e", err_terminal))
    before = dict(os.environ)
    for name in before:
        if name.startswith(_PREFIXES) or name in VARIABLES:
            del os.environ[name]
    os.environ.update(variables)
    time.tzset()
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        sys.stdout, sys.stderr = streams


def _text(stream: RawIOBase) -> TextIOWrapper:
    written = cast("BinaryIO", stream)
    return TextIOWrapper(
        written, encoding="utf-8", errors="backslashreplace", newline="\n", write_through=True
    )
