"""The named queries of `sql/*.sql`.

`-- name: NAME` begins a query. `-- fragment: NAME` begins a fragment, which queries include:

- `{NAME}` includes a fragment; `{NAME(SQL; SQL)}` also replaces `{1}` and `{2}` in its text.
- `{fields:STRUCT ALIAS}` lists the fields of a model's struct as pairs for `json_build_object`:
  `'field', ALIAS.field`. The fragment `instant` formats instants. A field is left out if the same query or
  fragment has a line that begins with its pair.

The files write parameters as psycopg does, `%(name)s`. This module replaces them by the numbers that the
server expects, because psycopg parses a query of more than 4,096 characters each time. A query is expanded
when it is first used. Indentation and comments are removed.
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
# Comments except the reason for a query across projects, which the server's log should show.
_COMMENT = re.compile(r"--(?! across-projects: ).*\n")
_INDENTATION = re.compile(r"\s*\n\s*")
_BREAK = re.compile(r"(?<=[(,])\n|\n(?=\))")
_PARAMETER = re.compile(r"%(?:\((\w+)\)s|%)")
_INCLUDE = re.compile(r"\{(\w+)(?:\((.*?)\))?\}")
_FIELDS = re.compile(r"\{fields:(\w+) (\w+)\}")
_PAIR = re.compile(r"^\s*'(\w+)', ", re.MULTILINE)


class NumberedQuery(NamedTuple):
    """A query with numbered parameters, and their names: `$1` is the value of the first name."""

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
    """Return the text of a query or fragment, with the fields of structs expanded."""
    text = _parts()[kind][name]
    return _FIELDS.sub(lambda match: _pairs(match[1], match[2], without=_PAIR.findall(text)), text)


def _pairs(struct: str, alias: str, *, without: list[str]) -> str:
    fields = msgspec.structs.fields(getattr(_home(struct), struct))
    values = {each.name: _value(f"{alias}.{each.name}", each.type) for each in fields}
    return ",\n".join(f"'{name}', {value}" for name, value in values.items() if name not in without)


def _value(column: str, kind: object) -> str:
    return f"{{instant({column})}}" if datetime in (kind, *get_args(kind)) else column


def _home(struct: str) -> ModuleType:
    """Return the module of a struct. Imports it only for a query in use, so that commands start fast."""
    match struct:
        case "Archive" | "Chat" | "ChatRun" | "SearchCandidate":
            from cardbox_cli.model import chats

            return chats
        case "Agent" | "ApiToken" | "Project" | "Tool":
            from cardbox_cli.model import identity

            return identity
        case "Batch" | "BatchTask":
            from cardbox_cli.model.execution import batches

            return batches
        case _:
            from cardbox_cli.model.execution import turns

            return turns


@cache
def query(name: str) -> LiteralString:
    """Return the text of the query `name`, with its fragments. It contains placeholders, never values."""
    text = _part("name", name)
    while _INCLUDE.search(text):
        text = _INCLUDE.sub(_included, text)
    text = _INDENTATION.sub("\n", _COMMENT.sub("\n", text)).strip()
    return text if "--" in text else _BREAK.sub("", text)


@cache
def clocks(name: str) -> frozenset[str]:
    """Return the names of the times in `sessions.sql` that the query `name` needs."""
    text = query(name)
    return frozenset(clock for clock in ("now", "moment", "later") if f"%({clock})s" in text)


@cache
def query_by_server(name: str, times: frozenset[str]) -> LiteralString:
    """Return the query `name` for a single server, which computes `times` itself.

    This saves a query for the time. Shards must get times as parameters, because each node has its own clock.
    """
    text = query(name)
    for time in times:
        expression = _INCLUDE.sub(_included, _part("fragment", f"server_{time}"))
        expression = _INDENTATION.sub(" ", _COMMENT.sub("\n", expression))
        text = text.replace(f"%({time})s::timestamptz", expression)
    return text


@cache
def numbered_query(name: str, times: frozenset[str] = frozenset()) -> NumberedQuery:
    """Return the query `name` with numbered parameters. The server computes `times` itself."""
    text = query_by_server(name, times)
    names = dict.fromkeys(match[1] for match in _PARAMETER.finditer(text) if match[1])
    numbers = {parameter: f"${number}" for number, parameter in enumerate(names, 1)}
    return NumberedQuery(
        _PARAMETER.sub(lambda match: numbers[match[1]] if match[1] else "%", text), tuple(names)
    )


def _included(match: re.Match[str]) -> str:
    text = _part("fragment", match[1])
    for number, sql in enumerate((match[2] or "").split(";"), 1):
        text = text.replace(f"{{{number}}}", sql.strip())
    return text


# --- decoding of JSON rows and columns: one cached decoder per type, with exact numbers


_Value = TypeVar("_Value")


def decode_row(kind: type[_Value], row: str) -> _Value:
    return _decoder(kind).decode(row)


def decode_optional_row(kind: type[_Value], row: str | None) -> _Value | None:
    return None if row is None else decode_row(kind, row)


def decode_rows(kind: type[_Value], rows: Iterable[tuple[Any, ...]]) -> list[_Value]:
    decoder = _decoder(kind)
    return [decoder.decode(row) for (row,) in rows]


class ExactJson(Loader):
    """Loader of JSON columns. The driver's own loader fails for very long integers and very deep nesting."""

    def load(self, data: Buffer) -> Any:
        return exact_json.decode_stored(bytes(data))


def _decoder(kind: type[_Value]) -> exact_json.Decoder[_Value]:
    if kind not in _decoders:
        _decoders[kind] = exact_json.Decoder(kind)
    return _decoders[kind]


_decoders: dict[type, exact_json.Decoder[Any]] = {}
