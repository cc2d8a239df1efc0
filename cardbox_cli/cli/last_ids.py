"""`@last`: the newest card, box, turn and batch that a person's command lines made.

Stored by database and project, in a file of CBX_HOME that only its owner can read. It names a database by its
address, which holds no secret. Where nothing can be stored no command fails for it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Literal, TypeVar

from cardbox_cli.cli.session import session
from cardbox_cli.errors import NotFound

if TYPE_CHECKING:
    from pathlib import Path

    from cardbox_cli.store.boxes import BoxStore
    from cardbox_cli.store.cards import CardStore
    from cardbox_cli.store.connection.database import Database
    from cardbox_cli.store.views.batch_views import BatchViews
    from cardbox_cli.store.views.turn_views import TurnViews

_Store = TypeVar("_Store")

LAST = "@last"
FILE = "last.json"
# Entries, one for each project of each database.
REMEMBERED = 200

RowNoun = Literal["card", "box", "turn", "batch"]


def remember_made(
    *,
    card_id: str | None = None,
    box_id: str | None = None,
    turn_id: str | None = None,
    batch_id: str | None = None,
) -> None:
    """Let `@last` be what this command made, or found made already, as soon as that is committed.

    Within a transaction that is when the database is given back: a transaction that fails makes nothing.
    """
    here = session()
    given = {"card": card_id, "box": box_id, "turn": turn_id, "batch": batch_id}
    here.made_ids.update({noun: made_id for noun, made_id in given.items() if made_id is not None})
    if here.opened is not None and here.opened.idle:
        keep_made(here.opened)


def keep_made(database: "Database") -> None:
    """Store the ids that this run remembers, all of which are committed."""
    here = session()
    if here.made_ids:
        remember(database.address, here.project_id, here.made_ids)
        here.made_ids.clear()


# --- on a command line


def resolving_cards(database: "Database", project_id: str) -> "CardStore":
    """Cards that are named on a command line."""
    from cardbox_cli.store.cards import CardStore

    return _taking_last(CardStore, "card")(database, project_id)


def resolving_boxes(database: "Database", project_id: str) -> "BoxStore":
    """Boxes that are named on a command line."""
    from cardbox_cli.store.boxes import BoxStore

    return _taking_last(BoxStore, "box")(database, project_id)


def resolving_turns(database: "Database", project_id: str) -> "TurnViews":
    """Turns that are named on a command line."""
    from cardbox_cli.store.views.turn_views import TurnViews

    return _taking_last(TurnViews, "turn")(database, project_id)


def resolving_batches(database: "Database", project_id: str) -> "BatchViews":
    """Batches that are named on a command line."""
    from cardbox_cli.store.views.batch_views import BatchViews

    return _taking_last(BatchViews, "batch")(database, project_id)


def resolved_or_given(resolve: Callable[[str], str], given: str) -> str:
    """The full id that `given` stands for, or `given` itself if it stands for none; not for `@last`."""
    try:
        return resolve(given)
    except NotFound:
        if given == LAST:
            raise
        return given


class _TakesLast:
    """Lets a store of rows resolve `@last`: the row that was made last, whether or not it is still there."""

    noun: RowNoun
    database: "Database"
    project_id: str

    def resolve(self, given: str) -> str:
        """Return the full id of `@last`, or of what the store resolves."""
        if given == LAST:
            return recall(self.database.address, self.project_id, self.noun)
        full_id: str = super().resolve(given)  # type: ignore[misc]
        return full_id


def _taking_last(store: "type[_Store]", noun: RowNoun) -> "type[_Store]":
    return type(store.__name__, (_TakesLast, store), {"noun": noun})


# --- the file


def remember(address: str, project_id: str, made: Mapping[str, str]) -> None:
    """Keep the ids that were made last, of each noun one; what is remembered of the others stays."""
    import json

    from cardbox_cli.files import replacing, sweep_files

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


def recall(address: str, project_id: str, noun: RowNoun) -> str:
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


def _read(file: "Path") -> list[dict[str, str]]:
    """The entries of the file. What is no text in them, or no entry at all, is passed over."""
    import json

    from cardbox_cli.files import open_to_read
    from cardbox_cli.home import check_home

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


def _home() -> "Path":
    import os

    from cardbox_cli.home import default_home

    return default_home(os.environ)


@contextmanager
def _held_home() -> "Iterator[Path]":
    """CBX_HOME, made if it is not there. One holds it at a time, so that no writer undoes another's work."""
    from cardbox_cli.files import exclusive
    from cardbox_cli.home import make_home

    home = _home()
    make_home(home)
    with exclusive(home):
        yield home
