"""Texts, files, standard input and JSON, as a command line names them."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from cardbox_cli.errors import CbxError, InvalidInput, NotFound, UsageError
from cardbox_cli.files import open_to_read, replacing
from cardbox_cli.limits import INPUT_SIZE
from cardbox_cli.model import exact_json
from cardbox_cli.text import spelled


def read_text(path: str) -> str:
    """The text of a file, or of standard input for `-`. Raises NotFound and InvalidInput naming it."""
    with opened(path) as file:
        return _decoded(_bounded(file, source_name(path)), source_name(path))


def text_or_file(given: str) -> str:
    """Return the text of `@FILE` or `@-`, or `given` itself. Raises as `read_text` does."""
    return read_text(given[1:]) if given.startswith("@") else given


def _bounded(file: BinaryIO, name: str) -> bytes:
    """All bytes of a file that is read whole. Raises InvalidInput for one too large, or that breaks off."""
    most = INPUT_SIZE.value << 20
    try:
        data = file.read(most + 1)
    except OSError as exc:
        raise InvalidInput(f"cannot read {name!r}: {exc.strerror}") from exc
    if len(data) > most:
        raise InvalidInput(f"{name} is larger than {INPUT_SIZE}", hint="give a smaller part of it")
    return data


@contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """A file, or standard input for `-`. Raises NotFound and InvalidInput naming it.

    Devices and named pipes, which may never end or never begin, are refused; a pipe that a shell has opened
    for us is none of them.
    """
    if path == "-":
        yield standard_input()
        return
    with _open(path) as file:
        yield file


def _open(path: str) -> BinaryIO:
    try:
        return open_to_read(path)
    except FileNotFoundError:
        raise NotFound(f"no file {path!r}", hint="check the path; - in its place is standard input") from None
    except OSError as exc:
        raise InvalidInput(f"cannot read {path!r}: {exc.strerror}") from exc


def standard_input() -> BinaryIO:
    """The bytes of standard input. Raises UsageError where it is closed."""
    if not sys.stdin.readable():
        raise UsageError("standard input is closed", hint="redirect a file to it, or name the file")
    return sys.stdin.buffer


def _decoded(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise InvalidInput(f"{name} is not UTF-8 (byte {exc.start})", hint="convert it") from exc


def source_name(path: str) -> str:
    """How messages call a file argument: on one line, of characters that can be seen and written."""
    return "standard input" if path == "-" else spelled(path_text(path))


def path_text(path: str) -> str:
    """A path as programs are told it: what in it is no UTF-8 is spelled out, as `\\xff`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def write_text(path: Path, pieces: Iterable[str]) -> None:
    """Write a text to a file that the command line names, which stays as it was until the text is whole.

    Raises InvalidInput naming it.
    """
    try:
        if path.exists() and not path.is_file():  # such as /dev/stdout
            with path.open("w", encoding="utf-8") as file:
                file.writelines(pieces)
        else:
            _replace(path.resolve(), pieces)
    except OSError as exc:
        hint = "choose a place that you may write to and that has room"
        raise InvalidInput(f"cannot write {str(path)!r}: {exc.strerror}", hint=hint) from exc


def _replace(path: Path, pieces: Iterable[str]) -> None:
    with replacing(path) as file:
        if path.exists():
            os.fchmod(file.fileno(), path.stat().st_mode)
        file.writelines(pieces)


def parse_json(text: str, option: str) -> Any:
    """The JSON value of `text`, or that of the file @FILE. Raises InvalidInput naming `option`."""
    try:
        return exact_json.read(text_or_file(text))
    except json.JSONDecodeError as exc:
        raise InvalidInput(
            f"{option}: not JSON at line {exc.lineno} column {exc.colno}: {exc.msg}",
            hint='quote it for the shell, for example \'{"key": "value"}\', or pass @FILE',
        ) from exc
    except ValueError as exc:
        raise InvalidInput(f"{option}: {exc}") from exc


def all_of(failures: Sequence[CbxError]) -> CbxError:
    """One error that tells them all: invalid if any is, else not found."""
    worst = next((each for each in failures if isinstance(each, InvalidInput)), failures[0])
    return type(worst)(
        "\n".join(each.message for each in failures),
        hint=worst.hint,
        details={"problems": [one for each in failures for one in each.details.get("problems", [])]},
    )
