"""Reads the texts, files, standard input and JSON that a command line names."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from cardbox_cli.errors import CbxError, InvalidInput, NotFound, UsageError
from cardbox_cli.files import atomic_write, open_to_read
from cardbox_cli.limits import INPUT_SIZE
from cardbox_cli.model import exact_json
from cardbox_cli.text.escaping import escape_line


def read_text(path: str) -> str:
    """Return the text of a file, or of stdin for `-`. Raises NotFound and InvalidInput, which name it."""
    with open_input(path) as file:
        return _decode(_read_bounded(file, source_name(path)), source_name(path))


def text_or_file(given: str) -> str:
    """Return the text of `@FILE` or `@-`, or `given` itself. Raises as `read_text` does."""
    return read_text(given[1:]) if given.startswith("@") else given


def _read_bounded(file: BinaryIO, name: str) -> bytes:
    limit = INPUT_SIZE.value << 20
    try:
        data = file.read(limit + 1)
    except OSError as exc:
        raise InvalidInput(f"cannot read {name!r}: {exc.strerror}") from exc
    if len(data) > limit:
        raise InvalidInput(f"{name} is larger than {INPUT_SIZE}", hint="split the file")
    return data


@contextmanager
def open_input(path: str) -> Iterator[BinaryIO]:
    """Open a file, or standard input for `-`. Raises NotFound and InvalidInput, which name it.

    Devices and named pipes are refused, because they may block forever. A pipe opened by a shell is allowed.
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
        raise NotFound(f"no file {path!r}", hint="check the path, or pass - for standard input") from None
    except OSError as exc:
        raise InvalidInput(f"cannot read {path!r}: {exc.strerror}") from exc


def standard_input() -> BinaryIO:
    """Return the bytes of standard input. Raises UsageError if it is closed."""
    if not sys.stdin.readable():
        raise UsageError("standard input is closed", hint="redirect a file to it, or pass the path")
    return sys.stdin.buffer


def _decode(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise InvalidInput(
            f"{name} is not UTF-8 (byte {exc.start})",
            hint="convert the file to UTF-8, for example with iconv",
        ) from exc


def source_name(path: str) -> str:
    """Return the name of a file argument in messages: one line of visible characters."""
    return "standard input" if path == "-" else escape_line(path_text(path))


def path_text(path: str) -> str:
    """Return a path for programs. Bytes that are not UTF-8 are escaped, for example as `\\xff`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def write_text(path: Path, pieces: Iterable[str]) -> None:
    """Write a text to a file, which changes only once the text is complete. Raises InvalidInput."""
    try:
        if path.exists() and not path.is_file():  # for example /dev/stdout
            with path.open("w", encoding="utf-8") as file:
                file.writelines(pieces)
        else:
            _replace(path.resolve(), pieces)
    except OSError as exc:
        hint = "choose a path that is writable and has free space"
        raise InvalidInput(f"cannot write {str(path)!r}: {exc.strerror}", hint=hint) from exc


def _replace(path: Path, pieces: Iterable[str]) -> None:
    with atomic_write(path) as file:
        if path.exists():
            os.fchmod(file.fileno(), path.stat().st_mode)
        file.writelines(pieces)


def parse_json(text: str, option: str) -> Any:
    """Return the JSON value of `text`, or of @FILE. Raises InvalidInput naming `option`."""
    try:
        return exact_json.read(text_or_file(text))
    except json.JSONDecodeError as exc:
        raise InvalidInput(
            f"{option}: not JSON at line {exc.lineno} column {exc.colno}: {exc.msg}",
            hint='quote it for the shell, for example \'{"key": "value"}\', or pass @FILE',
        ) from exc
    except ValueError as exc:
        raise InvalidInput(f"{option}: {exc}") from exc


def read_mapping(path: str, *, items: str, hint: str, option: str | None = None) -> dict[str, Any]:
    """Return the mapping in a YAML file. `items` names its content in messages. Raises InvalidInput."""
    from cardbox_cli.model.handwritten.documents import document_error
    from cardbox_cli.model.handwritten.yaml_files import read_yaml

    document = read_yaml(read_text(path), source_name(path))
    if document.problems:
        raise document_error(InvalidInput, document.source, document.problems)
    if not isinstance(document.value, dict):
        place = f"{option}: {document.source}" if option else document.source
        raise InvalidInput(f"{place} must be a mapping of {items}", hint=hint)
    return document.value


def combine_failures(failures: Sequence[CbxError]) -> CbxError:
    """Return one error with all messages: InvalidInput if one of them is, or else NotFound."""
    worst = next((each for each in failures if isinstance(each, InvalidInput)), failures[0])
    return type(worst)(
        "\n".join(each.message for each in failures),
        hint=worst.hint,
        details={"problems": [one for each in failures for one in each.details.get("problems", [])]},
    )
