"""The named queries of `sql/*.sql`.

A file holds parts. `-- name: NAME` begins a query, `-- fragment: NAME` a text that queries include:

- `{NAME}` includes a fragment; `{NAME(SQL; SQL)}` also replaces `{1}` and `{2}` in its text.
- `{fields:STRUCT ALIAS}` lists the fields of a struct that the model reads, as pairs for `json_build_object`:
  `'field', ALIAS.field`, and instants as the fragment `instant` formats them. It leaves out every field whose
  pair begins a line of the same part.

Parameters have the form that psycopg has, `%(name)s`. This module numbers them, as the server has them:
psycopg would search the text of a query beyond 4,096 characters each time that it is sent. Every query is
expanded once, when it is first used. Indentation and comments stay here.
"""

import re
from collections.abc import Iterable
from datetime import datetime
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, LiteralString, NamedTuple, TypeVar, get_args

import msgspec
from psycopg.abc import Buffer
from psycopg.adapt import Loader

from cardbox_cli.model import exact_json

_FOLDER = Path(__file__).parents[1] / "sql"
_PART = re.compile(r"^-- (name|fragment): (\w+)\n", re.MULTILINE)
# The reason of a query across projects stays, for readers of the server's log.
_COMMENT = re.compile(r"--(?! across-projects: ).*\n")
_INDENTATION = re.compile(r"\s*\n\s*")
_BREAK = re.compile(r"(?<=[(,])\n|\n(?=\))")
_PARAMETER = re.compile(r"%(?:\((\w+)\)s|%)")
_INCLUDE = re.compile(r"\{(\w+)(?:\((.*?)\))?\}")
_FIELDS = re.compile(r"\{fields:(\w+) (\w+)\}")
_PAIR = re.compile(r"^\s*'(\w+)', ", re.MULTILINE)


class NumberedQuery(NamedTuple):
    """A query as the server gets it: `$1` is the first of these parameters."""

    text: LiteralString
    parameters: tuple[str, ...]


@cache
def _parts() -> dict[str, dict[str, str]]:
    parts: dict[str, dict[str, str]] = {"name": {}, "fragment": {}}
    for file in sorted(_FOLDER.glob("*.sql")):
        _, *pieces = _PART.split(file.read_text(encoding="utf-8"))
        for kind, name, text in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
            parts[kind][name] = text.strip()
    return parts


def _part(kind: str, name: str) -> str:
    """Return the text of a part, with the fields of structs expanded."""
    text = _parts()[kind][name]
    return _FIELDS.sub(lambda found: _pairs(found[1], found[2], without=_PAIR.findall(text)), text)


def _pairs(struct: str, alias: str, *, without: list[str]) -> str:
    fields = msgspec.structs.fields(getattr(_home(struct), struct))
    values = {each.name: _value(f"{alias}.{each.name}", each.type) for each in fields}
    return ",\n".join(f"'{name}', {value}" for name, value in values.items() if name not in without)


def _value(column: str, kind: object) -> str:
    return f"{{instant({column})}}" if datetime in (kind, *get_args(kind)) else column


def _home(struct: str) -> ModuleType:
    """Return the module of a struct. Only a query that is used imports it, so that commands start fast."""
    match struct:
        case "ApiToken":
            from cardbox_cli.model import identity as api_tokens

            return api_tokens
        case "Archive" | "Chat" | "ChatRun" | "SearchCandidate":
            from cardbox_cli.model import chats

            return chats
        case "Agent" | "Project" | "Tool":
            from cardbox_cli.model import identity

            return identity
        case "Batch" | "BatchTask":
            from cardbox_cli.model.execution import batches

            return batches
        case "CommandLog" | "LogTail":
            from cardbox_cli.model.execution import turns as logs

            return logs
        case _:
            from cardbox_cli.model.execution import turns

            return turns


@cache
def query(name: str) -> LiteralString:
    """Return the text of the query `name`, with its fragments. No value is ever part of it."""
    text = _part("name", name)
    while _INCLUDE.search(text):
        text = _INCLUDE.sub(_included, text)
    text = _INDENTATION.sub("\n", _COMMENT.sub("\n", text)).strip()
    return text if "--" in text else _BREAK.sub("", text)


@cache
def clocks(name: str) -> frozenset[str]:
    """Return which of the times of `sessions.sql` the query `name` takes."""
    text = query(name)
    return frozenset(clock for clock in ("now", "moment", "later") if f"%({clock})s" in text)


@cache
def query_by_server(name: str, times: frozenset[str]) -> LiteralString:
    """Return the query `name` for a single server, which computes these times itself.

    A time that is a parameter costs a query of the clock first. A time that is an expression cannot be sent
    to shards, because their nodes have clocks of their own.
    """
    text = query(name)
    for time in times:
        expression = _INCLUDE.sub(_included, _part("fragment", f"server_{time}"))
        expression = _INDENTATION.sub(" ", _COMMENT.sub("\n", expression))
        text = text.replace(f"%({time})s::timestamptz", expression)
    return text


@cache
def numbered_query(name: str, times: frozenset[str] = frozenset()) -> NumberedQuery:
    """Return the query `name` with numbered parameters. The server computes these times itself."""
    text = query_by_server(name, times)
    found = dict.fromkeys(match[1] for match in _PARAMETER.finditer(text) if match[1])
    numbers = {parameter: f"${number}" for number, parameter in enumerate(found, 1)}
    return NumberedQuery(
        _PARAMETER.sub(lambda match: numbers[match[1]] if match[1] else "%", text), tuple(found)
    )


def _included(found: re.Match[str]) -> str:
    text = _part("fragment", found[1])
    for number, sql in enumerate((found[2] or "").split(";"), 1):
        text = text.replace(f"{{{number}}}", sql.strip())
    return text


# --- decoding of rows and columns that are JSON: one cached decoder per type, with exact numbers


_Value = TypeVar("_Value")


def decode_row(kind: type[_Value], row: str) -> _Value:
    """Decode a row."""
    return _decoder(kind).decode(row)


def decode_optional_row(kind: type[_Value], row: str | None) -> _Value | None:
    """Decode a row; return None for None."""
    return None if row is None else decode_row(kind, row)


def decode_rows(kind: type[_Value], rows: Iterable[tuple[Any, ...]]) -> list[_Value]:
    """Decode rows of one column."""
    decoder = _decoder(kind)
    return [decoder.decode(row) for (row,) in rows]


class ExactJson(Loader):
    """Loader of JSON columns: the driver's own one fails for very long integers and very deep nesting."""

    def load(self, data: Buffer) -> Any:
        """Return the value, its numbers exact."""
        return exact_json.decode_stored(bytes(data))


def _decoder(kind: type[_Value]) -> exact_json.Decoder[_Value]:
    if kind not in _decoders:
        _decoders[kind] = exact_json.Decoder(kind)
    return _decoders[kind]


_decoders: dict[type, exact_json.Decoder[Any]] = {}
