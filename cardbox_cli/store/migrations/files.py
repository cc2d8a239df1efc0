"""The text of `schema.sql` and of the numbered files, and the schema versions that result from them.

Connects to no database. Every command needs the newest version, so `newest` only lists a folder.
"""

import os
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from cardbox_cli.errors import SchemaTooNew, SchemaTooOld
from cardbox_cli.shipped import shipped_path

BASELINE = 17
"""The version of `schema.sql` before the first numbered file. Older databases cannot be upgraded."""

FOLDER = os.path.dirname(__file__)
SCHEMA = shipped_path("schema.sql")


class Part(NamedTuple):
    """The statements of a file for one table. They create it if `makes` is True, and otherwise change it."""

    table: str
    makes: bool
    statements: list[str]


class Migration(NamedTuple):
    """A numbered file. `builds` names the indexes that it builds outside of transactions."""

    name: str
    number: int
    builds: tuple[str, ...]
    parts: list[Part]


def newest() -> int:
    """Return the version that an upgrade leads to."""
    return max(_numbered(FOLDER), default=BASELINE)


def check_version(version: int | None) -> None:
    """Raise SchemaTooOld or SchemaTooNew if this cbx cannot work with the version. None is always valid."""
    if version is None:
        return
    if version < BASELINE:
        raise SchemaTooOld(
            f"the database has schema version {version}, but cbx upgrades only version {BASELINE} or later",
            hint="`cbx db upgrade --help` shows the commands that move its data to a new database",
        )
    if version > newest():
        what = f"the database has schema version {version}, but this cbx only knows versions up to {newest()}"
        raise SchemaTooNew(what, hint="use the version of cbx that upgraded the database, or a newer version")


def tables() -> dict[str, str]:
    """Return the SQL that creates each table, by the table's name, in the order of `schema.sql`."""
    text = SCHEMA.read_text(encoding="utf-8")
    _, *pieces = re.split(r"^-- part: ([\w.]+)\n", text, flags=re.MULTILINE)
    return {name: text.strip() for name, text in zip(pieces[::2], pieces[1::2], strict=True)}


def migrations(after: int) -> list[Migration]:
    """Return the numbered files that follow the version `after`, in order."""
    return [_read(name, number) for number, name in _numbered(FOLDER).items() if number > after]


def statements(script: str) -> list[str]:
    """Split a script of cbx into its statements. Each ends with a `;` at the end of a line."""
    return [statement.strip() for statement in re.split(r"(?<=;)\n", script) if statement.strip()]


@cache
def _numbered(folder: str) -> dict[int, str]:
    names = sorted(name for name in os.listdir(folder) if name.endswith(".sql"))
    return {int(name.partition("_")[0]): name for name in names}


def _read(name: str, number: int) -> Migration:
    text = Path(FOLDER, name).read_text(encoding="utf-8")
    head, *pieces = re.split(r"^-- (makes|changes): ([\w.]+)\n", text, flags=re.MULTILINE)
    parts = [
        Part(table, verb == "makes", statements(script))
        for verb, table, script in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True)
    ]
    lines = re.findall(r"^-- no-transaction: ([\w. ]+)$", head, re.MULTILINE)
    return Migration(name, number, tuple(index for line in lines for index in line.split()), parts)
