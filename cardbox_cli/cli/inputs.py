"""Reading what a command line hands in: texts, files, standard input, JSON, times."""

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cardbox_cli.cli.session import announce
from cardbox_cli.cli.terminal import printable
from cardbox_cli.errors import InvalidInput, NotFound, UsageError
from cardbox_cli.model import exact_json


def read_text(path: str) -> str:
    """The text of a file, or of standard input for `-`. Raises NotFound and InvalidInput naming it."""
    if path == "-":
        return _decoded(sys.stdin.buffer.read(), "standard input")
    try:
        return _decoded(Path(path).read_bytes(), path)
    except FileNotFoundError:
        raise NotFound(f"no file {path!r}", hint="check the path, or use - for standard input") from None
    except OSError as exc:
        raise InvalidInput(f"cannot read {path!r}: {exc.strerror}") from exc


def _decoded(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise InvalidInput(f"{name} is not UTF-8 (byte {exc.start})", hint="convert it") from exc


def source_name(path: str) -> str:
    """How messages call a file argument."""
    return "standard input" if path == "-" else path


def write_text(path: Path, text: str) -> None:
    """Write a file that the command line names. Raises InvalidInput naming it."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as exc:
        raise InvalidInput(f"cannot write {str(path)!r}: {exc.strerror}") from exc


def parse_json(text: str, option: str) -> Any:
    """The JSON value that `text` spells, or that of the file @FILE. Raises InvalidInput naming `option`."""
    if text.startswith("@"):
        text = read_text(text[1:])
    try:
        return exact_json.read(text)
    except json.JSONDecodeError as exc:
        raise InvalidInput(
            f"{option}: not JSON at line {exc.lineno} column {exc.colno}: {exc.msg}",
            hint='quote it for the shell, for example \'{"key": "value"}\', or pass @FILE',
        ) from exc
    except ValueError as exc:
        raise InvalidInput(f"{option}: {exc}") from exc


def resolved_or_typed(resolve: Callable[[str], str], typed: str) -> str:
    """The full id that `typed` stands for, or `typed` itself where it stands for none."""
    try:
        return resolve(typed)
    except NotFound:
        return typed


def parse_time(text: str | None, option: str) -> datetime | None:
    """The instant that an RFC 3339 text names; UTC where it names no offset."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{option}: {text!r} is no time", hint="for example 2026-11-22T09:30:00Z") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is destroyed. Off a terminal it needs --yes."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"{question} Not without --yes here", hint="add --yes to do it without a question")
    import click

    if not click.confirm(printable(question), err=True):
        announce("nothing was done")
        raise click.exceptions.Exit(DECLINED)


# The exit code after a person said no.
DECLINED = 130
