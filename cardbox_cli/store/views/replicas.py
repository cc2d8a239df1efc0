"""How old what a replica answers is."""

from datetime import timedelta

import msgspec

from cardbox_cli.store.connection.database import Database


class Lag(msgspec.Struct, frozen=True):
    """How far a replica is behind its primary; None where it cannot know."""

    behind: timedelta | None


def lag(database: Database) -> Lag | None:
    """How far the server is behind; None for a primary.

    Nothing behind is one that is connected and has replayed all that it received. Otherwise it is the age of
    the last transaction that it replayed, which is more than it lacks where the primary is at rest.
    """
    row = database.row("replica_lag")
    return None if row is None else Lag(row[0])
