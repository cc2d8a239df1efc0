"""The named queries of `sql/*.sql`.

A file holds parts that begin with `-- name: NAME` (a query) or `-- fragment: NAME` (text that queries take
in by writing `{NAME}`, or `{NAME(SQL; SQL)}` where the text says `{1}` and `{2}`). Parameters are written as
psycopg has them, `%(name)s`, and numbered here, as the server has them: the driver would look for those of a
query beyond 4,096 characters each time that it is sent. This module reads them, once, and nothing more.
Indentation and comments stay here.
"""

import re
from functools import cache
from pathlib import Path
from typing import LiteralString, NamedTuple

_FOLDER = Path(__file__).parents[1] / "sql"
_PART = re.compile(r"^-- (name|fragment): (\w+)\n", re.MULTILINE)
# What a query says of itself to who reads it there, rather than here, stays.
_COMMENT = re.compile(r"--(?! across-projects: ).*\n")
_INDENTATION = re.compile(r"\s*\n\s*")
_BREAK = re.compile(r"(?<=[(,])\n|\n(?=\))")
_PARAMETER = re.compile(r"%(?:\((\w+)\)s|%)")
_INCLUDE = re.compile(r"\{(\w+)(?:\((.*?)\))?\}")


class Sent(NamedTuple):
    """A query as a server is sent it: `$1` is the first of these parameters."""

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


@cache
def query(name: str) -> LiteralString:
    """The text of the query `name`, its fragments taken in. It is ours alone: no value is ever part of it."""
    text = _parts()["name"][name]
    while _INCLUDE.search(text):
        text = _INCLUDE.sub(_included, text)
    text = _INDENTATION.sub("\n", _COMMENT.sub("\n", text)).strip()
    return text if "--" in text else _BREAK.sub("", text)


@cache
def clocks(name: str) -> frozenset[str]:
    """Which times of `clock.sql` the query `name` takes."""
    text = query(name)
    return frozenset(clock for clock in ("now", "moment", "later") if f"%({clock})s" in text)


@cache
def query_by_server(name: str, times: frozenset[str]) -> LiteralString:
    """The query `name` for one server, which spells these times itself instead of being told them.

    A time that is a parameter costs a look at the clock first; one that is an expression cannot be sent to
    shards, whose nodes have clocks of their own.
    """
    text = query(name)
    for time in times:
        spelled = _INCLUDE.sub(_included, _parts()["fragment"][f"server_{time}"])
        spelled = _INDENTATION.sub(" ", _COMMENT.sub("\n", spelled))
        text = text.replace(f"%({time})s::timestamptz", spelled)
    return text


@cache
def sent(name: str, times: frozenset[str] = frozenset()) -> Sent:
    """The query `name`, its parameters numbered. The server spells these times itself."""
    text = query_by_server(name, times)
    found = dict.fromkeys(match[1] for match in _PARAMETER.finditer(text) if match[1])
    numbers = {parameter: f"${number}" for number, parameter in enumerate(found, 1)}
    return Sent(_PARAMETER.sub(lambda match: numbers[match[1]] if match[1] else "%", text), tuple(found))


def _included(found: re.Match[str]) -> str:
    text = _parts()["fragment"][found[1]]
    for number, sql in enumerate((found[2] or "").split(";"), 1):
        text = text.replace(f"{{{number}}}", sql.strip())
    return text
