"""What Zstandard packed, unpacked in pieces of a bounded size: members of archives, and whole files.

Newer logs of Inspect and the rollouts that Codex has put away are packed so. Python unpacks it from 3.14 on;
for older ones the extra `zstd` brings the same module.
"""

import struct
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO

from cardbox_cli.errors import InvalidInput

MAGIC = b"\x28\xb5\x2f\xfd"
METHOD = 93  # APPNOTE.TXT of PKWARE, 4.4.5
_BLOCK = 1 << 16
# The head of a member, APPNOTE.TXT 4.3.7: its last two numbers are the lengths of its name and of its extras.
_HEAD = struct.Struct("<4s5H3I2H")


class DamagedZstandard(Exception):
    """A stream of Zstandard's that is cut, or none."""


def pieces(read: Callable[[int], bytes], name: str) -> Iterator[bytes]:
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


def member(file: BinaryIO, found: zipfile.ZipInfo, name: str) -> Iterator[bytes]:
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

    for piece in pieces(read, name):
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
