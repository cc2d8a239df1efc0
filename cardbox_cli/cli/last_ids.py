"""`@last`: the newest card, box, turn and batch that a person's command lines made.

The ids are stored by database and project, in a file of CBX_HOME that only its owner can read. The name of a
database is its address without secrets. If the file cannot be written, commands still succeed.
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
# The maximum number of entries. There is one for each project and database.
REMEMBERED = 200

RowNoun = Literal["card", "box", "turn", "batch"]


def remember_made(
    *,
    card_id: str | None = None,
    box_id: str | None = None,
    turn_id: str | None = None,
    batch_id: str | None = None,
) -> None:
    """Make `@last` refer to the rows that this command created, or found to exist, once they are committed.

    Within a transaction, the ids are stored when the database is closed, so a failed one changes nothing.
    """
    here = session()
    given = {"card": card_id, "box": box_id, "turn": turn_id, "batch": batch_id}
    here.made_ids.update({noun: made_id for noun, made_id in given.items() if made_id is not None})
    if here.opened is not None and here.opened.idle:
        store_made_ids(here.opened)


def store_made_ids(database: "Database") -> None:
    """Store the ids of this command. All of their rows are committed."""
    here = session()
    if here.made_ids:
        remember(database.address, here.project_id, here.made_ids)
        here.made_ids.clear()


# --- on a command line


def resolving_cards(database: "Database", project_id: str) -> "CardStore":
    from cardbox_cli.store.cards import CardStore

    return _accept_last(CardStore, "card")(database, project_id)


def resolving_boxes(database: "Database", project_id: str) -> "BoxStore":
    from cardbox_cli.store.boxes import BoxStore

    return _accept_last(BoxStore, "box")(database, project_id)


def resolving_turns(database: "Database", project_id: str) -> "TurnViews":
    from cardbox_cli.store.views.turn_views import TurnViews

    return _accept_last(TurnViews, "turn")(database, project_id)


def resolving_batches(database: "Database", project_id: str) -> "BatchViews":
    from cardbox_cli.store.views.batch_views import BatchViews

    return _accept_last(BatchViews, "batch")(database, project_id)


def resolved_or_given(resolve: Callable[[str], str], given: str) -> str:
    """Return the full id of `given`, or `given` if it is unknown. Raises NotFound for an unknown `@last`."""
    try:
        return resolve(given)
    except NotFound:
        if given == LAST:
            raise
        return given


class _LastIdStore:
    """A store of rows that resolves `@last`, even if that row no longer exists."""

    noun: RowNoun
    database: "Database"
    project_id: str

    def resolve(self, given: str) -> str:
        if given == LAST:
            return recall(self.database.address, self.project_id, self.noun)
        full_id: str = super().resolve(given)  # type: ignore[misc]
        return full_id


def _accept_last(store: "type[_Store]", noun: RowNoun) -> "type[_Store]":
    return type(store.__name__, (_LastIdStore, store), {"noun": noun})


# --- the file


def remember(address: str, project_id: str, made_ids: Mapping[str, str]) -> None:
    """Store the last id of each noun in `made_ids`. The ids of other nouns do not change."""
    import json

    from cardbox_cli.files import atomic_write, remove_leftover_files

    # The command has succeeded, even if this cannot be stored.
    with suppress(OSError), _locked_home() as home:
        entries = _read(home / FILE)
        known = _ids_of_project(entries, address, project_id)
        others = [entry for entry in entries if not _is_of(entry, address, project_id)]
        ids = {**known, **made_ids}
        newest = {**ids, "database": address, "project": project_id}
        remove_leftover_files(home / FILE)
        with atomic_write(home / FILE) as stream:
            json.dump([*others, newest][-REMEMBERED:], stream, indent=1)


def recall(address: str, project_id: str, noun: RowNoun) -> str:
    from cardbox_cli.home import default_home

    made_id = _ids_of_project(_read(default_home() / FILE), address, project_id).get(noun)
    if made_id is None:
        raise NotFound(
            f"{LAST!r} is not set: your commands have not created a {noun} in project {project_id!r}",
            hint=f"list the newest ids with `cbx {noun} list`",
        )
    return made_id


def _ids_of_project(entries: list[dict[str, str]], address: str, project_id: str) -> dict[str, str]:
    return next((entry for entry in entries if _is_of(entry, address, project_id)), {})


def _is_of(entry: dict[str, str], address: str, project_id: str) -> bool:
    return (entry.get("database"), entry.get("project")) == (address, project_id)


def _read(file: "Path") -> list[dict[str, str]]:
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


@contextmanager
def _locked_home() -> "Iterator[Path]":
    """Yield CBX_HOME, locked against concurrent writers. It is created if it is missing."""
    from cardbox_cli.files import file_lock
    from cardbox_cli.home import default_home, make_home

    home = default_home()
    make_home(home)
    with file_lock(home):
        yield home
