"""A database that stays open while one command after another uses it.

Each command gets it as it would get a fresh one: looked at anew, outside of any transaction. A connection
that broke, or that a command left in a transaction, is never lent again.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from cardbox_cli.errors import CbxError
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target


class KeptDatabase:
    """At most one open database; asked for another one, it closes the first. `close` it at the end."""

    def __init__(self) -> None:
        self._kept: Database | None = None

    @contextmanager
    def lend(self, target: Target) -> Iterator[Database]:
        """The database of `target`, its tables in place. While it is lent, others get one of their own."""
        database = self._take(target)
        try:
            yield database
        finally:
            if self._kept is None and database.idle:
                self._kept = database
            else:
                database.close()

    def close(self) -> None:
        """Close what is kept, if anything is."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()

    def _take(self, target: Target) -> Database:
        kept, self._kept = self._kept, None
        if kept is not None:
            # Whatever is wrong with it, the fresh connection will tell.
            with suppress(CbxError):
                if _is_still_good(kept, target):
                    return kept
        return Database.open_target(target)


def _is_still_good(database: Database, target: Target) -> bool:
    """Whether it can serve as a connection to `target`; otherwise it is closed."""
    good = False
    try:
        if database.target == target:
            database.look_again()
            good = True
    finally:
        if not good:
            database.close()
    return good
