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
        self._made_in: tuple[object, ...] = ()

    @contextmanager
    def lend(self, target: Target) -> Iterator[Database]:
        """The database of `target`, its tables in place. While it is lent, others get one of their own."""
        made_in = _surroundings()
        database = self._take(target, made_in)
        try:
            yield database
        finally:
            if self._cached is None and database.idle:
                self._cached, self._made_in = database, made_in
            else:
                database.close()

    def close(self) -> None:
        """Close what is cached, if anything is."""
        cached, self._cached = self._cached, None
        if cached is not None:
            cached.close()

    def _take(self, target: Target, made_in: tuple[object, ...]) -> Database:
        cached, self._cached = self._cached, None
        if cached is not None:
            # Whatever is wrong with it, the fresh connection will tell.
            with suppress(CbxError):
                if cached.target == target and made_in == self._made_in:
                    cached.look_again()
                    return cached
            cached.close()
        return Database.open_target(target)


def _surroundings() -> tuple[object, ...]:
    """By what libpq completes an address: its variables, and the files of services as they are now.

    Its files are in HOME where no variable names them.
    """
    said = {name: value for name, value in os.environ.items() if name.startswith("PG") or name == "HOME"}
    own = said.get("PGSERVICEFILE") or os.path.join(said.get("HOME", ""), ".pg_service.conf")
    return said, _state(own), _state(os.path.join(said.get("PGSYSCONFDIR", ""), "pg_service.conf"))


def _state(path: str) -> tuple[int, ...] | None:
    """What changes with a file; None where there is none."""
    with suppress(OSError):
        found = os.stat(path)
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
    return None
