"""What `schema.sql` and the numbered files of this folder say. Reads files, and no database.

The highest number is the schema version of this cbx: there is no other constant for it.
"""

import os
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from cardbox_cli.shipped import shipped

_FOLDER = Path(__file__).parent
# Compiled where they are used: every command loads this module for the version alone.
_TABLE = r"(?m)^-- part: ([\w.]+)\n"
_PART = r"(?m)^-- (makes|changes): ([\w.]+)\n"
_INDEX = r"(?m)^-- no-transaction: ([\w.]+)$"


class Part(NamedTuple):
    """What a file does for one table: make it, or change it."""

    table: str
    makes: bool
    statements: list[str]


class Migration(NamedTuple):
    """A numbered file. `builds` is its index, if it builds one outside of transactions."""

    name: str
    number: int
    builds: str | None
    parts: list[Part]


def tables() -> dict[str, str]:
    """Each table's name and the SQL that makes it as it is today, in the order that they are made."""
    _, *pieces = re.split(_TABLE, shipped("schema.sql").read_text(encoding="utf-8"))
    return {name: text.strip() for name, text in zip(pieces[::2], pieces[1::2], strict=True)}


@cache
def newest() -> int:
    """The schema version of this cbx. Every command asks for it: it lists a folder and reads no file."""
    return max(_number(name) for name in _names())


def migrations(after: int) -> list[Migration]:
    """What brings a database of the version `after` to the newest one, in order."""
    return [_read(name) for name in sorted(_names()) if _number(name) > after]


def statements(script: str) -> list[str]:
    """The statements of a script of ours. Each ends with the `;` that ends a line."""
    return [statement.strip() for statement in re.split(r"(?<=;)\n", script) if statement.strip()]


def _names() -> list[str]:
    return [name for name in os.listdir(_FOLDER) if name.endswith(".sql")]


def _number(name: str) -> int:
    return int(name.partition("_")[0])


def _read(name: str) -> Migration:
    head, *pieces = re.split(_PART, (_FOLDER / name).read_text(encoding="utf-8"))
    parts = [
        Part(table, verb == "makes", statements(text))
        for verb, table, text in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True)
    ]
    index = re.search(_INDEX, head)
    return Migration(name, _number(name), index and index[1], parts)
