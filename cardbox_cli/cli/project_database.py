"""Opens the database of a command, or its replica if the command only reads.

This module also writes the notes about the replica and its lag.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from cardbox_cli.cli.last_ids import resolving_boxes, resolving_cards, resolving_turns, store_made_ids
from cardbox_cli.cli.session import Session, session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.errors import CbxError, NotFound
from cardbox_cli.settings import DATABASE_URL, READ_URL
from cardbox_cli.text.times import format_duration

if TYPE_CHECKING:
    from cardbox_cli.store.boxes import BoxStore
    from cardbox_cli.store.cards import CardStore
    from cardbox_cli.store.connection.database import Database
    from cardbox_cli.store.connection.target import Target
    from cardbox_cli.store.views.inbox_views import InboxViews
    from cardbox_cli.store.views.turn_views import TurnViews


def database_target(here: Session | None = None) -> "Target":
    """Return the database of a session (default: the current one), or its replica for a read-only command."""
    from cardbox_cli.store.connection.target import find_target

    here = here or session()
    configured = here.configured(DATABASE_URL)
    target = find_target(here.database_url, announce=announce, configured=configured)
    return replica_target(target, here) if here.reads else target


def replica_target(database: "Target", here: Session | None = None) -> "Target":
    """Return the replica for commands that only read, or the database itself if it has no replica."""
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
    """Yield a connection for one command. Its tables exist."""
    here = session()
    here.check_project()
    with here.process.database(database_target(here)) as database:
        before, here.opened = here.opened, database
        here.database_comment = database.target.comment
        commits = database.commits
        try:
            with _lag_in_hints(database):
                yield database
        finally:
            here.opened = before
            here.committed = here.committed or database.commits > commits
        store_made_ids(database)


@contextmanager
def open_stores() -> "Iterator[tuple[CardStore, BoxStore]]":
    with open_database() as database:
        project_id = session().project_id
        yield resolving_cards(database, project_id), resolving_boxes(database, project_id)


def named_stores(database: "Database") -> "tuple[BoxStore, TurnViews]":
    project_id = session().project_id
    return resolving_boxes(database, project_id), resolving_turns(database, project_id)


@contextmanager
def open_turns() -> "Iterator[TurnViews]":
    with open_database() as database:
        yield resolving_turns(database, session().project_id)


@contextmanager
def open_inbox() -> "Iterator[InboxViews]":
    from cardbox_cli.store.views.inbox_views import InboxViews

    with open_database() as database:
        yield InboxViews(database, session().project_id)


def lag_note(database: "Database") -> list[str]:
    """Return a note on the lag of the replica, or an empty list for the database itself."""
    lag = _describe_lag(database)
    return [] if lag is None else [f"note: read from a replica {lag}"]


@contextmanager
def _lag_in_hints(database: "Database") -> Iterator[None]:
    """Add the lag of a replica to the hint of NotFound, because the row may not have arrived yet."""
    try:
        yield
    except NotFound as exc:
        with suppress(CbxError):
            if database.target.stands_for is not None and (lag := _describe_lag(database)) is not None:
                exc.hint = (
                    f"{exc.hint}; a replica {lag} was asked" if exc.hint else f"a replica {lag} was asked"
                )
        raise


def _describe_lag(database: "Database") -> str | None:
    from cardbox_cli.store.views.database_status import replica_lag

    lag = replica_lag(database)
    if lag is None:
        return None
    if lag.behind is None:
        return "that cannot say how far it is behind"
    if lag.behind <= timedelta():
        return "that has all it received"
    return f"that is {format_duration(lag.behind)} behind"
