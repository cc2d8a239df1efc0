"""What Zstandard packed, unpacked in pieces of a bounded size: members of archives, and whole files.

Newer logs of Inspect and the rollouts that Codex has put away are packed so. Python unpacks it from 3.14 on;
for older ones the extra `zstd` brings the same module.
"""

import json
import re
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, BinaryIO, NamedTuple, cast

from cardbox_cli.errors import InvalidConversation, InvalidInput
from cardbox_cli.files import open_within
from cardbox_cli.limits import PIPE_SIZE
from cardbox_cli.text import shown

MAGIC = b"\x28\xb5\x2f\xfd"
METHOD = 93  # APPNOTE.TXT of PKWARE, 4.4.5
_BLOCK = 1 << 16
# The head of a member, APPNOTE.TXT 4.3.7: its last two numbers are the lengths of its name and of its extras.
_HEAD = struct.Struct("<4s5H3I2H")


class DamagedZstandard(Exception):
    """A stream of Zstandard's that is cut, or none."""


def unpacked_chunks(read: Callable[[int], bytes], name: str) -> Iterator[bytes]:
    """What a stream of frames unpacks to, at most 64 KiB at a time. `read` gives so many packed bytes.

    Raises DamagedZstandard, and InvalidInput naming the file where nothing can unpack it.
    """
    decompressor, error = _library(name)
    frame, data = decompressor(), read(_BLOCK)
    while True:
        try:
            piece = frame.decompress(data, _BLOCK)
        except error as exc:
            raise DamagedZstandard(str(exc)) from exc
        if piece:
            yield piece
        if frame.eof:
            data = frame.unused_data or read(_BLOCK)
            if not data:
                return
            frame = decompressor()
        elif frame.needs_input:
            data = read(_BLOCK)
            if not data:
                raise DamagedZstandard("it ends within a frame")
        else:
            data = b""


def unpacked_member(file: BinaryIO, found: zipfile.ZipInfo, name: str) -> Iterator[bytes]:
    """What a member of an archive unpacks to. Raises as `pieces` does, for a wrong sum, too."""
    file.seek(found.header_offset)
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size or not head.startswith(b"PK\x03\x04"):
        raise DamagedZstandard("a member has no head")
    *_, name_size, extra_size = _HEAD.unpack(head)
    at, left, checksum = found.header_offset + _HEAD.size + name_size + extra_size, found.compress_size, 0

    def read(size: int) -> bytes:
        nonlocal at, left
        file.seek(at)
        data = file.read(min(size, left))
        at, left = at + len(data), left - len(data)
        return data

    for piece in unpacked_chunks(read, name):
        checksum = zlib.crc32(piece, checksum)
        yield piece
    if checksum != found.CRC:
        raise DamagedZstandard("its sum is another than it says")


def _library(name: str):  # type: ignore[no-untyped-def]  # classes that look the same wherever they come from
    try:
        if sys.version_info >= (3, 14):
            from compression.zstd import ZstdDecompressor, ZstdError
        else:
            from backports.zstd import ZstdDecompressor, ZstdError
    except ImportError:
        raise InvalidInput(
            f"{name} is packed by Zstandard, which the extra 'zstd' unpacks",
            hint="pip install 'cardbox-cli[zstd]', or unpack it before",
        ) from None
    return ZstdDecompressor, ZstdError


# Archives that are one JSON document in pieces: a `.eval` of Inspect is a header and a file per sample.


_ZIP = b"PK\x03\x04"
_HEADERS = ("header.json", "_journal/start.json")
_SAMPLE = re.compile(r"samples/.+\.json")
_ARCHIVE_BLOCK = 1 << 16
_LONGEST_HEADER = 64 << 20
_CONVERT = "`inspect log convert --to json` makes JSON of a log"

# Those whose expansion the standard library bounds piece by piece: others (bzip2, LZMA) unpack in memory what
# they read, a piece of 1 KB to gigabytes. Zstandard is bounded by `zstandard`.
_BOUNDED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_METHODS = {9: "Deflate64", 12: "bzip2", 14: "LZMA", 98: "PPMd"}
# What the standard library raises for archives that are cut, damaged, encrypted or made to harm.
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, struct.error, DamagedZstandard),
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
        if found.compress_type == METHOD:
            yield from unpacked_member(self.file, found, self.name)
        elif found.compress_type in _BOUNDED:
            with self.archive.open(found) as packed:
                yield from iter(lambda: packed.read(_ARCHIVE_BLOCK), b"")
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


# Folders that are one conversation: a file for each event, as OpenHands writes them.
#
# Its first version names them `events/0.json`, its SDK `events/event-00000-<id>.json`; the folder around is
# named after the conversation. Sources: `openhands/storage/locations.py`; in its SDK
# `openhands.sdk.conversation.persistence_const`.


EVENTS = "events"
_EVENT = re.compile(r"(?:event-)?(\d+)(?:-[0-9A-Za-z-]+)?\.json")
_FOLDER_BLOCK = 1 << 16


def is_of_events(path: str | Path) -> bool:
    """Whether a folder has events in it, a file for each."""
    folder = Path(path)
    if folder.name != EVENTS:
        return False
    try:
        return any(_EVENT.fullmatch(each.name) for each in folder.iterdir())
    except OSError:  # no folder, or one that may not be read
        return False


def folder_chunks(path: str | Path) -> Iterator[bytes]:
    """The events of a folder as one JSON list, in the order of their numbers.

    Raises InvalidInput naming the file that cannot be read.
    """
    numbered = ((found, each) for each in Path(path).iterdir() if (found := _EVENT.fullmatch(each.name)))
    lead = b"["
    for _, each in sorted((int(found[1]), each) for found, each in numbered):
        yield lead
        try:
            with open_within(each) as file:
                yield from iter(lambda file=file: file.read(_FOLDER_BLOCK), b"")  # type: ignore[misc]
        except OSError as exc:
            raise InvalidInput(
                f"{each} cannot be read: {exc.strerror}", hint="take it out, or check its rights"
            ) from exc
        lead = b",\n"
    yield b"]\n"


def folder_id(name: str) -> str | None:
    """The conversation whose folder of events has this name; None for any other file."""
    path = Path(name)
    return path.parent.name or None if path.name == EVENTS else None
