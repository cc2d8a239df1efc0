"""What `@last` stands for: the newest card, box, turn and batch that a person's command lines made.

Stored by database and project, in a file of CBX_HOME that only its owner can read. It names a database by its
address, which holds no secret. Where nothing can be stored no command fails for it.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from cardbox_cli.errors import NotFound
from cardbox_cli.files import exclusive, open_to_read, replacing, sweep_files
from cardbox_cli.home import check_home, default_home, make_home

LAST = "@last"
FILE = "last.json"
# Entries, one for each project of each database.
REMEMBERED = 200

Noun = Literal["card", "box", "turn", "batch"]


def remember(address: str, project_id: str, made: Mapping[str, str]) -> None:
    """Keep the ids that were made last, of each noun one; what is remembered of the others stays."""
    # The command has done its work: that this cannot be stored is no failure of it.
    with suppress(OSError), _held_home() as home:
        entries = _read(home / FILE)
        known = _of(entries, address, project_id)
        others = [entry for entry in entries if not _is_of(entry, address, project_id)]
        ids = {**known, **made}
        newest = {**ids, "database": address, "project": project_id}
        sweep_files(home / FILE)
        with replacing(home / FILE) as stream:
            json.dump([*others, newest][-REMEMBERED:], stream, indent=1)


def recall(address: str, project_id: str, noun: Noun) -> str:
    """The full id that `@last` stands for. Raises NotFound when none is remembered."""
    made_id = _of(_read(_home() / FILE), address, project_id).get(noun)
    if made_id is None:
        raise NotFound(
            f"{LAST!r} names no {noun}: your command line has made none in project {project_id!r}",
            hint=f"`cbx {noun} list` shows the newest",
        )
    return made_id


def _of(entries: list[dict[str, str]], address: str, project_id: str) -> dict[str, str]:
    return next((entry for entry in entries if _is_of(entry, address, project_id)), {})


def _is_of(entry: dict[str, str], address: str, project_id: str) -> bool:
    return (entry.get("database"), entry.get("project")) == (address, project_id)


def _read(file: Path) -> list[dict[str, str]]:
    """The entries of the file. What is no text in them, or no entry at all, is passed over."""
    try:
        check_home(file.parent)
        with open_to_read(file) as stream:
            entries = json.loads(stream.read())
    except (OSError, ValueError, RecursionError):
        return []
    return [
        {name: value for name, value in entry.items() if isinstance(value, str)}
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, dict)
    ]


def _home() -> Path:
    return default_home(os.environ)


@contextmanager
def _held_home() -> Iterator[Path]:
    """CBX_HOME, made if it is not there. One holds it at a time, so that no writer undoes another's work."""
    home = _home()
    make_home(home)
    with exclusive(home):
        yield home
