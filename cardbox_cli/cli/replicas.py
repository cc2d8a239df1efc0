"""What a person is told of a replica that was asked."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from cardbox_cli.errors import CbxError, NotFound
from cardbox_cli.text import format_duration

if TYPE_CHECKING:
    from cardbox_cli.store.connection.database import Database


def lag_note(database: "Database") -> list[str]:
    """How old the answer is, where a replica gives it: one note, or none."""
    known = _described(database)
    return [] if known is None else [f"note: read from a replica {known}"]


@contextmanager
def lag_is_told(database: "Database") -> Iterator[None]:
    """What is not there may only not have come yet."""
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
