"""Reading what a command line hands in: texts, files, standard input, JSON, times."""

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import click

from cardbox_cli.cli.last_ids import LAST
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.errors import InvalidInput, NotFound, UsageError
from cardbox_cli.files import open_to_read, replacing
from cardbox_cli.limits import INPUT_SIZE
from cardbox_cli.model import exact_json
from cardbox_cli.model.text.escaping import printable, spelled


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


def resolved_or_given(resolve: Callable[[str], str], given: str) -> str:
    """The full id that `typed` stands for, or `typed` itself where it stands for none; not for `@last`."""
    try:
        return resolve(given)
    except NotFound:
        if given == LAST:
            raise
        return given


def parse_time(text: str | None, option: str) -> datetime | timedelta | None:
    """The instant that an RFC 3339 text names (without an offset: UTC), or how long ago, as in 90m."""
    if text is None:
        return None
    if ago := re.fullmatch(_AGO, text, re.ASCII):
        return _span(ago["number"], ago["unit"], f"{option}: {text!r}")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{option}: {text!r} is no time",
            hint="for example 2026-11-22T09:30:00Z, or 90m for 90 minutes ago",
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


Moment = datetime | timedelta | None


def parse_span(since: str | None, until: str | None) -> tuple[Moment, Moment]:
    """The times of --since and --until. Raises UsageError where none is between them.

    A time and a span ago are not compared: what the time is, the database says.
    """
    start, end = parse_time(since, "--since"), parse_time(until, "--until")
    if isinstance(start, datetime) and isinstance(end, datetime):
        empty = start > end
    else:
        empty = isinstance(start, timedelta) and isinstance(end, timedelta) and start < end
    if empty:
        raise UsageError(
            f"--since {since!r} is later than --until {until!r}", hint="give the earlier time to --since"
        )
    return start, end


_AGO = r"(?P<number>[0-9]*[.,]?[0-9]+)(?P<unit>[smhdw])"
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_LONGEST = timedelta(days=36_500)


def _span(number: str, unit: str, named: str) -> timedelta:
    if not number.isdigit():
        raise UsageError(f"{named} is no whole number of {_UNITS[unit]}", hint="90m is one and a half hours")
    try:
        # What has more digits than these is too long in any case.
        span = timedelta(**{_UNITS[unit]: int(number[:18])})
    except OverflowError:
        span = timedelta.max
    if span > _LONGEST:
        raise UsageError(f"{named} is more than 100 years", hint="leave the option out for all of time")
    return span


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is destroyed. Off a terminal it needs --yes."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"{question} Not without --yes here", hint="add --yes to do it without a question")
    if not click.confirm(printable(question), err=True):
        decline("nothing was done")


def decline(reason: str) -> NoReturn:
    """End the command where a person said no, or wants out."""
    announce(reason)
    raise click.exceptions.Exit(DECLINED)


# The exit code after a person said no.
DECLINED = 130
