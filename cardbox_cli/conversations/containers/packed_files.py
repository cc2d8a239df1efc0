"""Packed conversation files, unpacked in chunks of bounded size: Zstandard, `.eval` archives, event folders.

Newer logs of Inspect and archived rollouts of Codex use Zstandard. Python 3.14 supports it; for older
versions the extra `zstd` installs the same module.
"""

import json
import re
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, BinaryIO, NamedTuple, cast

from cardbox_cli.errors import InvalidConversation, InvalidInput
from cardbox_cli.files import open_regular_file
from cardbox_cli.limits import PIPE_SIZE
from cardbox_cli.text.error_messages import short_repr

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
ZSTD_METHOD = 93  # APPNOTE.TXT of PKWARE, 4.4.5
_BLOCK = 1 << 16
# The header of a member, APPNOTE.TXT 4.3.7. Its last two numbers are the lengths of its name and extra field.
_HEADER = struct.Struct("<4s5H3I2H")
_ZIP = b"PK\x03\x04"


class DamagedZstandard(Exception):
    """A Zstandard stream that is truncated or invalid."""


def unpack_chunks(read: Callable[[int], bytes], name: str) -> Iterator[bytes]:
    """Unpack a stream of frames in chunks of at most 64 KiB. `read` returns up to that many packed bytes.

    Raises DamagedZstandard, and InvalidInput naming the file if no library is installed.
    """
    decompressor, error = _load_library(name)
    frame, data = decompressor(), read(_BLOCK)
    while True:
        try:
            chunk = frame.decompress(data, _BLOCK)
        except error as exc:
            raise DamagedZstandard(str(exc)) from exc
        if chunk:
            yield chunk
        if frame.eof:
            data = frame.unused_data or read(_BLOCK)
            if not data:
                return
            frame = decompressor()
        elif frame.needs_input:
            data = read(_BLOCK)
            if not data:
                raise DamagedZstandard("truncated frame")
        else:
            data = b""


def unpack_member(file: BinaryIO, info: zipfile.ZipInfo, name: str) -> Iterator[bytes]:
    """Unpack a member of an archive in chunks. Raises like `unpack_chunks`, also for a wrong checksum."""
    file.seek(info.header_offset)
    head = file.read(_HEADER.size)
    if len(head) < _HEADER.size or not head.startswith(_ZIP):
        raise DamagedZstandard("a member has no header")
    *_, name_size, extra_size = _HEADER.unpack(head)
    at, left, checksum = info.header_offset + _HEADER.size + name_size + extra_size, info.compress_size, 0

    def read(size: int) -> bytes:
        nonlocal at, left
        file.seek(at)
        data = file.read(min(size, left))
        at, left = at + len(data), left - len(data)
        return data

    for chunk in unpack_chunks(read, name):
        checksum = zlib.crc32(chunk, checksum)
        yield chunk
    if checksum != info.CRC:
        raise DamagedZstandard("wrong checksum")


def _load_library(name: str):  # type: ignore[no-untyped-def]  # either module has the same classes
    try:
        if sys.version_info >= (3, 14):
            from compression.zstd import ZstdDecompressor, ZstdError
        else:
            from backports.zstd import ZstdDecompressor, ZstdError
    except ImportError:
        raise InvalidInput(
            f"{name} is compressed with Zstandard, which needs the extra 'zstd'",
            hint="run `pip install 'cardbox-cli[zstd]'`, or unpack the file first",
        ) from None
    return ZstdDecompressor, ZstdError


# --- `.eval` archives of Inspect: a header and one file per sample, together one JSON document

_HEADERS = ("header.json", "_journal/start.json")
_SAMPLE = re.compile(r"samples/.+\.json")
_MAX_HEADER_BYTES = 64 << 20
_CONVERT = "convert it with `inspect log convert --to json`"

# The methods that the standard library unpacks in bounded chunks. With others (bzip2, LZMA), 1 KB may unpack
# to gigabytes in memory. `unpack_chunks` bounds Zstandard.
_BOUNDED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_METHODS = {9: "Deflate64", 12: "bzip2", 14: "LZMA", 98: "PPMd"}
# What the standard library raises for archives that are truncated, damaged, encrypted or malicious.
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, struct.error, DamagedZstandard),
    *(EOFError, NotImplementedError, OSError, OverflowError, RuntimeError, ValueError),
)


@contextmanager
def open_log(file: BinaryIO, name: str) -> Iterator[BinaryIO]:
    """Open a file, or the JSON log in a `.eval` archive, with the size limit of packed files.

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
    archive: zipfile.ZipFile
    file: BinaryIO
    name: str

    def chunks(self, member: str) -> Iterator[bytes]:
        """Unpack a member in chunks. Raises InvalidConversation for an unsupported compression method."""
        info = self.archive.getinfo(member)
        if info.compress_type == ZSTD_METHOD:
            yield from unpack_member(self.file, info, self.name)
        elif info.compress_type in _BOUNDED:
            with self.archive.open(info) as packed:
                yield from iter(lambda: packed.read(_BLOCK), b"")
        else:
            method = _METHODS.get(info.compress_type, f"method {info.compress_type}")
            what = f"{short_repr(member)} uses {method}, not deflate or Zstandard"
            raise InvalidConversation(f"{self.name} cannot be unpacked: {what}", hint=_CONVERT)


def _write_log(archive: _Archive, log: IO[bytes]) -> None:
    """Write the content of a `.json` log, with the samples in the order of the archive."""
    names = archive.archive.namelist()
    header = next((each for each in _HEADERS if each in names), None)
    if header is None:
        raise InvalidConversation(
            f"{archive.name} is not an Inspect log (no {_HEADERS[0]} inside)",
            hint="unpack the file and import the folder",
        )
    left = PIPE_SIZE.value << 20
    log.write(b'{"eval": ' + _eval_of(archive, header) + b', "samples": [')
    for number, member in enumerate(each for each in names if _SAMPLE.fullmatch(each)):
        log.write(b",\n" if number else b"\n")
        for chunk in archive.chunks(member):
            left -= len(chunk)
            if left < 0:
                raise InvalidConversation(
                    f"{archive.name} unpacks to more than {PIPE_SIZE}", hint="pass a part of the file"
                )
            log.write(chunk)
    log.write(b"\n]}\n")
    log.flush()


def _eval_of(archive: _Archive, header: str) -> bytes:
    """Return the header's description of the evaluation, as JSON."""
    text = bytearray()
    for chunk in archive.chunks(header):
        text += chunk
        if len(text) > _MAX_HEADER_BYTES:
            break
    with suppress(ValueError, KeyError, TypeError):
        if len(text) <= _MAX_HEADER_BYTES and isinstance(section := json.loads(text)["eval"], dict):
            return json.dumps(section).encode()
    raise InvalidConversation(
        f"{archive.name}: {header} has no `eval` section; the file may be damaged", hint=_CONVERT
    )


# --- event folders of OpenHands: a file for each event
#
# The first version names the files `events/0.json`, the SDK `events/event-00000-<id>.json`. The name of the
# parent folder is the conversation's id. Sources: `openhands/storage/locations.py`; in the SDK
# `openhands.sdk.conversation.persistence_const`.

EVENTS = "events"
_EVENT = re.compile(r"(?:event-)?(\d+)(?:-[0-9A-Za-z-]+)?\.json")


def is_event_folder(path: str | Path) -> bool:
    folder = Path(path)
    if folder.name != EVENTS:
        return False
    try:
        return any(_EVENT.fullmatch(each.name) for each in folder.iterdir())
    except OSError:  # not a folder, or not readable
        return False


def read_event_folder(path: str | Path) -> Iterator[bytes]:
    """Yield the events of a folder as one JSON list, in the order of their numbers.

    Raises InvalidInput naming a file that cannot be read.
    """
    matches = ((_EVENT.fullmatch(each.name), each) for each in Path(path).iterdir())
    lead = b"["
    for _, each in sorted((int(match[1]), each) for match, each in matches if match):
        yield lead
        try:
            with open_regular_file(each) as file:
                yield from iter(lambda file=file: file.read(_BLOCK), b"")  # type: ignore[misc]  # mypy infers no lambda with a default
        except OSError as exc:
            raise InvalidInput(
                f"cannot read {each}: {exc.strerror}", hint="check the permissions of the file, or remove it"
            ) from exc
        lead = b",\n"
    yield b"]\n"


def folder_id(name: str) -> str | None:
    """Return the id of the conversation in an event folder of this name, None for any other file."""
    path = Path(name)
    return path.parent.name or None if path.name == EVENTS else None
