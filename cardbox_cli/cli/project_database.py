"""Opens the database of a command: the one that it names, or a replica of it if the command only reads.

Owns what a person reads about the replica that was asked.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from cardbox_cli.cli.last_ids import keep_made, resolving_boxes, resolving_cards, resolving_turns
from cardbox_cli.cli.session import Session, session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.errors import CbxError, NotFound
from cardbox_cli.settings import DATABASE_URL, READ_URL
from cardbox_cli.text import format_duration

if TYPE_CHECKING:
    from cardbox_cli.store.boxes import BoxStore
    from cardbox_cli.store.cards import CardStore
    from cardbox_cli.store.connection.database import Database
    from cardbox_cli.store.connection.target import Target
    from cardbox_cli.store.views.inbox_views import InboxViews
    from cardbox_cli.store.views.turn_views import TurnViews


def database_target(here: Session | None = None) -> "Target":
    """The database of a session, by default the running one; a replica of it if the command only reads."""
    from cardbox_cli.store.connection.target import find_target

    here = here or session()
    configured = here.configured(DATABASE_URL)
    target = find_target(here.database_url, announce=announce, configured=configured)
    return replica_target(target, here) if here.reads else target


def replica_target(database: "Target", here: Session | None = None) -> "Target":
    """The replica of this database that commands ask which only read, if one is named; else itself."""
    from cardbox_cli.store.connection.target import find_read_target

    here = here or session()
    configured = here.configured(DATABASE_URL)
    return find_read_target(
        database,
        here.read_url,
        configured=here.configured(READ_URL),
        is_configured=configured is not None and database.named_by == configured.place,
    )


@contextmanager
def open_database() -> "Iterator[Database]":
    """A connection with its tables in place, for the time of one command."""
    here = session()
    here.check_project()
    with here.process.database(database_target(here)) as database:
        before, here.opened = here.opened, database
        commits = database.commits
        try:
            with _lag_in_hints(database):
                yield database
        finally:
            here.opened = before
            here.committed = here.committed or database.commits > commits
        keep_made(database)


@contextmanager
def open_stores() -> "Iterator[tuple[CardStore, BoxStore]]":
    """The cards and boxes of this run's project."""
    with open_database() as database:
        project_id = session().project_id
        yield resolving_cards(database, project_id), resolving_boxes(database, project_id)


def named_stores(database: "Database") -> "tuple[BoxStore, TurnViews]":
    """The boxes and turns of this run's project, which `@last` may name."""
    project_id = session().project_id
    return resolving_boxes(database, project_id), resolving_turns(database, project_id)


@contextmanager
def open_turns() -> "Iterator[TurnViews]":
    """The turns of this run's project, to be read."""
    with open_database() as database:
        yield resolving_turns(database, session().project_id)


@contextmanager
def open_inbox() -> "Iterator[InboxViews]":
    """The inbox rows of this run's project, to be read."""
    from cardbox_cli.store.views.inbox_views import InboxViews

    with open_database() as database:
        yield InboxViews(database, session().project_id)


def lag_note(database: "Database") -> list[str]:
    """How old the answer is, where a replica gives it: one note, or none."""
    known = _described(database)
    return [] if known is None else [f"note: read from a replica {known}"]


@contextmanager
def _lag_in_hints(database: "Database") -> Iterator[None]:
    """Adds to the hint of NotFound how far a replica is behind: what is not there may only be late."""
    try:
        yield
    except NotFound as exc:
        if database.target.stands_for is not None and (known := _lag_or_none(database)) is not None:
            asked = f"a replica {known} was asked"
            exc.hint = f"{exc.hint}; {asked}" if exc.hint else asked
        raise


def _lag_or_none(database: "Database") -> str | None:
    try:
        return _described(database)
    except CbxError:
        return None


def _described(database: "Database") -> str | None:
    from cardbox_cli.store.views.database_status import lag

    found = lag(database)
    if found is None:
        return None
    if found.behind is None:
        return "that cannot say how far it is behind"
    if found.behind <= timedelta():
        return "that has all it received"
    return f"that is {format_duration(found.behind)} behind"
