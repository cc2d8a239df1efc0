"""A connection that is cached while one command after another uses it.

Each command gets it as it would get a fresh one: looked at anew, outside of any transaction. A connection
that broke, or that a command left in a transaction, is never lent again.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from cardbox_cli.errors import CbxError
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target


class CachedDatabase:
    """At most one open database; asked for another one, it closes the first. `close` it at the end."""

    def __init__(self) -> None:
        self._cached: Database | None = None
        self._environment: dict[str, str] = {}

    @contextmanager
    def lend(self, target: Target) -> Iterator[Database]:
        """The database of `target`, its tables in place. While it is lent, others get one of their own."""
        database = self._take(target)
        try:
            yield database
        finally:
            if self._cached is None and database.idle:
                self._cached = database
            else:
                database.close()

    def close(self) -> None:
        """Close what is cached, if anything is."""
        cached, self._cached = self._cached, None
        if cached is not None:
            cached.close()

    def _take(self, target: Target) -> Database:
        cached, self._cached = self._cached, None
        environment, self._environment = self._environment, _environment()
        if cached is not None:
            # Whatever is wrong with it, the fresh connection will tell.
            with suppress(CbxError):
                if cached.target == target and environment == self._environment:
                    cached.look_again()
                    return cached
            cached.close()
        return Database.open_target(target)


def _environment() -> dict[str, str]:
    """The variables by which libpq completes an address: another user, another password, another service.

    Its files are in HOME where no variable names them.
    """
    return {name: value for name, value in os.environ.items() if name.startswith("PG") or name == "HOME"}
