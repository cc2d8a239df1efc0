"""What `schema.sql` and the numbered files of this folder say. Reads files, and no database."""

import re
from pathlib import Path
from typing import NamedTuple

from cardbox_cli.shipped import shipped
from cardbox_cli.store.migrations.version import FOLDER, numbered

_TABLE = re.compile(r"^-- part: ([\w.]+)\n", re.MULTILINE)
_PART = re.compile(r"^-- (makes|changes): ([\w.]+)\n", re.MULTILINE)
_INDEXES = re.compile(r"^-- no-transaction: ([\w. ]+)$", re.MULTILINE)


class Part(NamedTuple):
    """What a file does for one table: make it, or change it."""

    table: str
    makes: bool
    statements: list[str]


class Migration(NamedTuple):
    """A numbered file. `builds` are its indexes, if it builds some outside of transactions."""

    name: str
    number: int
    builds: tuple[str, ...]
    parts: list[Part]


def tables() -> dict[str, str]:
    """Each table's name and the SQL that makes it as it is today, in the order that they are made."""
    _, *pieces = _TABLE.split(shipped("schema.sql").read_text(encoding="utf-8"))
    return {name: text.strip() for name, text in zip(pieces[::2], pieces[1::2], strict=True)}


def migrations(after: int) -> list[Migration]:
    """What brings a database of the version `after` to the newest one, in order."""
    return [_read(name, number) for number, name in numbered().items() if number > after]


def statements(script: str) -> list[str]:
    """The statements of a script of ours. Each ends with the `;` that ends a line."""
    return [statement.strip() for statement in re.split(r"(?<=;)\n", script) if statement.strip()]


def _read(name: str, number: int) -> Migration:
    head, *pieces = _PART.split(Path(FOLDER, name).read_text(encoding="utf-8"))
    parts = [
        Part(table, verb == "makes", statements(text))
        for verb, table, text in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True)
    ]
    builds = tuple(index for line in _INDEXES.findall(head) for index in line.split())
    return Migration(name, number, builds, parts)
