"""Connections that many threads borrow, each for one look: open ones are kept, with what they know of tables.

What is lent can read only, and no statement of it takes longer than it may. The first connection starts an
embedded server that is down; what somebody stopped after that stays down.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from threading import BoundedSemaphore, Lock

from cardbox_cli.errors import AllAtWork, CbxError
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target


class Lending:
    """At most `most` connections to `target`. A statement on one ends after `longest`."""

    def __init__(self, target: Target, *, most: int, longest: timedelta, patience: float = 10) -> None:
        """Who finds all of them lent waits for so many seconds of `patience`."""
        self._target = target
        self._was_connected = False
        self._longest = longest
        self._patience = patience
        self._places = BoundedSemaphore(most)
        self._lock = Lock()
        self._idle: list[Database] = []
        self._is_closed = False

    @contextmanager
    def snapshot(self) -> Iterator[Database]:
        """A connection, within one snapshot of its database.

        Raises DatabaseUnavailable where none can be had, AllAtWork where all are lent. One that has broken
        meanwhile is replaced before anything is read.
        """
        with self._lent() as database, self._snapshot_of(database):
            yield database

    @contextmanager
    def glance(self) -> Iterator[Database]:
        """A connection for one statement, which needs no transaction around it; for more open a snapshot.

        Raises as `snapshot` does. Behind a pooler it is within a snapshot: the session is not ours there.
        """
        with self._lent() as database:
            if database.direct:
                yield database
                return
            with self._snapshot_of(database):
                yield database

    @contextmanager
    def _snapshot_of(self, database: Database) -> Iterator[None]:
        with database.snapshot():
            if not database.direct:
                database.limit_statements(self._longest, once=True)
            yield

    @contextmanager
    def _lent(self) -> Iterator[Database]:
        if not self._places.acquire(timeout=self._patience):
            raise AllAtWork("every connection of the server is at work", hint="ask again later")
        try:
            database = self._taken()
            try:
                yield database
            finally:
                self._give_back(database)
        finally:
            self._places.release()

    def close(self) -> None:
        """Close those that are idle, and the others when they come back."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for database in idle:
            database.close()

    def _taken(self) -> Database:
        while (database := self._pop()) is not None:
            if database.answers():
                return database
            database.close()
        database = Database.open_target(self._target, again=self._was_connected)
        self._was_connected = True
        database.keep_plans()
        if database.direct:
            database.limit_statements(self._longest, once=False)
        database.only_read()
        return database

    def _pop(self) -> Database | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _give_back(self, database: Database) -> None:
        with self._lock:
            if database.idle and not self._is_closed:
                self._idle.append(database)
                return
        database.close()


# A connection that is cached while one command after another uses it.
#
# Each command gets it as it would get a fresh one: looked at anew, outside of any transaction. A connection
# that broke, or that a command left in a transaction, is never lent again.


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
