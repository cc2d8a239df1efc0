"""Archives that are one JSON document in pieces: a `.eval` of Inspect is a header and a file per sample."""

import json
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import IO, BinaryIO, cast

from cardbox_cli.errors import InvalidConversation
from cardbox_cli.limits import PIPE_SIZE

_ZIP = b"PK\x03\x04"
_HEADERS = ("header.json", "_journal/start.json")
_SAMPLE = re.compile(r"samples/.+\.json")
_BLOCK = 1 << 16


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
                _write_log(archive, log, name)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as exc:
            hint = "`inspect log convert --to json` makes JSON of a log"
            raise InvalidConversation(f"{name} cannot be unpacked: {exc}", hint=hint) from exc
        yield cast(BinaryIO, log)


def _write_log(archive: zipfile.ZipFile, log: IO[bytes], name: str) -> None:
    """Write what `.json` logs are, the samples in the order of the archive."""
    names = archive.namelist()
    header = next((each for each in _HEADERS if each in names), None)
    if header is None:
        raise InvalidConversation(
            f"{name} is an archive, and no log of Inspect: it has no {_HEADERS[0]}",
            hint="unpack it, and import the folder",
        )
    left = PIPE_SIZE.value << 20

    def copy(member: str, to: IO[bytes]) -> None:
        nonlocal left
        with archive.open(member) as packed:
            while piece := packed.read(_BLOCK):
                left -= len(piece)
                if left < 0:
                    raise InvalidConversation(
                        f"{name} unpacks to more than {PIPE_SIZE}", hint="give a part of it"
                    )
                to.write(piece)

    log.write(b'{"eval": ' + _eval_of(archive, header, name) + b', "samples": [')
    for number, member in enumerate(each for each in names if _SAMPLE.fullmatch(each)):
        log.write(b",\n" if number else b"\n")
        copy(member, log)
    log.write(b"\n]}\n")
    log.flush()


def _eval_of(archive: zipfile.ZipFile, header: str, name: str) -> bytes:
    """What the header says of the evaluation, as JSON."""
    with archive.open(header) as packed:
        text = packed.read(_LONGEST_HEADER + 1)
    try:
        found = json.loads(text)["eval"] if len(text) <= _LONGEST_HEADER else None
    except (ValueError, KeyError, TypeError):
        found = None
    if not isinstance(found, dict):
        raise InvalidConversation(f"{name}: {header} says nothing of an evaluation", hint="it is damaged")
    return json.dumps(found).encode()


_LONGEST_HEADER = 64 << 20
