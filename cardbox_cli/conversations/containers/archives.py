"""Archives that are one JSON document in pieces: a `.eval` of Inspect is a header and a file per sample."""

import json
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import IO, BinaryIO, NamedTuple, cast

from cardbox_cli.conversations.containers import zstandard
from cardbox_cli.errors import InvalidConversation
from cardbox_cli.limits import PIPE_SIZE
from cardbox_cli.text import shown

_ZIP = b"PK\x03\x04"
_HEADERS = ("header.json", "_journal/start.json")
_SAMPLE = re.compile(r"samples/.+\.json")
_BLOCK = 1 << 16
_LONGEST_HEADER = 64 << 20
_CONVERT = "`inspect log convert --to json` makes JSON of a log"

# Those whose expansion the standard library bounds piece by piece: others (bzip2, LZMA) unpack in memory what
# they read, a piece of 1 KB to gigabytes. Zstandard is bounded by `zstandard`.
_BOUNDED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_METHODS = {9: "Deflate64", 12: "bzip2", 14: "LZMA", 98: "PPMd"}
# What the standard library raises for archives that are cut, damaged, encrypted or made to harm.
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, struct.error, zstandard.DamagedZstandard),
    *(EOFError, NotImplementedError, OSError, OverflowError, RuntimeError, ValueError),
)


@contextmanager
def unzipped(file: BinaryIO, name: str) -> Iterator[BinaryIO]:
    """The file, or the JSON log that a `.eval` archive is; its expansion has the bound of a packed file's.

    Raises InvalidConversation for any other archive, and for a damaged one.
    """
    file.seek(0)
    if file.read(len(_ZIP)) != _ZIP:
        file.seek(0)
        yield file
        return
    with TemporaryFile() as log:
        try:
            with zipfile.ZipFile(file) as archive:
                _write_log(_Archive(archive, file, name), log)
        except _DAMAGED as exc:
            raise InvalidConversation(f"{name} cannot be unpacked: {exc}", hint=_CONVERT) from exc
        yield cast(BinaryIO, log)


class _Archive(NamedTuple):
    """An archive, the file that it is in, and the name of that."""

    archive: zipfile.ZipFile
    file: BinaryIO
    name: str

    def pieces(self, member: str) -> Iterator[bytes]:
        """What a member unpacks to, a piece at a time.

        Raises InvalidConversation where it is packed in another way than logs are, or nothing can unpack it.
        """
        found = self.archive.getinfo(member)
        if found.compress_type == zstandard.METHOD:
            yield from zstandard.member(self.file, found, self.name)
        elif found.compress_type in _BOUNDED:
            with self.archive.open(found) as packed:
                yield from iter(lambda: packed.read(_BLOCK), b"")
        else:
            how = _METHODS.get(found.compress_type, f"method {found.compress_type}")
            what = f"{shown(member)} is packed by {how}, and only deflate and Zstandard are read"
            raise InvalidConversation(f"{self.name} cannot be unpacked: {what}", hint=_CONVERT)


def _write_log(archive: _Archive, log: IO[bytes]) -> None:
    """Write what `.json` logs are, the samples in the order of the archive."""
    names = archive.archive.namelist()
    header = next((each for each in _HEADERS if each in names), None)
    if header is None:
        raise InvalidConversation(
            f"{archive.name} is an archive, and no log of Inspect: it has no {_HEADERS[0]}",
            hint="unpack it, and import the folder",
        )
    left = PIPE_SIZE.value << 20
    log.write(b'{"eval": ' + _eval_of(archive, header) + b', "samples": [')
    for number, member in enumerate(each for each in names if _SAMPLE.fullmatch(each)):
        log.write(b",\n" if number else b"\n")
        for piece in archive.pieces(member):
            left -= len(piece)
            if left < 0:
                raise InvalidConversation(
                    f"{archive.name} unpacks to more than {PIPE_SIZE}", hint="give a part of it"
                )
            log.write(piece)
    log.write(b"\n]}\n")
    log.flush()


def _eval_of(archive: _Archive, header: str) -> bytes:
    """What the header says of the evaluation, as JSON."""
    text = bytearray()
    for piece in archive.pieces(header):
        text += piece
        if len(text) > _LONGEST_HEADER:
            break
    try:
        found = json.loads(text)["eval"] if len(text) <= _LONGEST_HEADER else None
    except (ValueError, KeyError, TypeError):
        found = None
    if not isinstance(found, dict):
        raise InvalidConversation(
            f"{archive.name}: {header} says nothing of an evaluation", hint="it is damaged"
        )
    return json.dumps(found).encode()
