"""Connections that threads borrow for one read, and one connection that successive commands share.

Pooled connections are read-only and limit the time of a statement. The first connection starts an embedded
server that is down; if the server is stopped after that, it stays down.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from threading import BoundedSemaphore, Lock

from cardbox_cli.errors import CbxError, ConnectionsBusy
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target

# The time that a borrower waits if all connections are in use.
_TIMEOUT_SECONDS = 10


class ConnectionPool:
    """A pool of at most `most` connections to `target`, whose statements end after `longest`."""

    def __init__(self, target: Target, *, most: int, longest: timedelta) -> None:
        self._target = target
        self._was_connected = False
        self._max_statement_time = longest
        self._slots = BoundedSemaphore(most)
        self._lock = Lock()
        self._idle: list[Database] = []
        self._is_closed = False

    @contextmanager
    def snapshot(self) -> Iterator[Database]:
        """Yield a connection within one snapshot of its database. Replaces a broken connection first.

        Raises DatabaseUnavailable if it cannot connect, ConnectionsBusy if all connections stay in use.
        """
        with self._borrowed() as database, self._snapshot_of(database):
            yield database

    @contextmanager
    def autocommit(self) -> Iterator[Database]:
        """Yield a connection for a single statement without a transaction; for more, open a snapshot.

        Raises as `snapshot` does. Behind a pooler, whose session is not ours, it is within a snapshot.
        """
        with self._borrowed() as database:
            if database.direct:
                yield database
                return
            with self._snapshot_of(database):
                yield database

    @contextmanager
    def _snapshot_of(self, database: Database) -> Iterator[None]:
        with database.snapshot():
            if not database.direct:
                database.limit_statements(self._max_statement_time, once=True)
            yield

    @contextmanager
    def _borrowed(self) -> Iterator[Database]:
        if not self._slots.acquire(timeout=_TIMEOUT_SECONDS):
            raise ConnectionsBusy("all database connections of the server are in use", hint="try again later")
        try:
            database = self._borrow()
            try:
                yield database
            finally:
                self._return(database)
        finally:
            self._slots.release()

    def close(self) -> None:
        """Close the idle connections now, and the others when they are returned."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for database in idle:
            database.close()

    def _borrow(self) -> Database:
        while (database := self._pop()) is not None:
            if database.is_connected():
                return database
            database.close()
        database = Database.open_target(self._target, again=self._was_connected)
        self._was_connected = True
        database.enable_prepared_statements()
        if database.direct:
            database.limit_statements(self._max_statement_time, once=False)
        database.make_read_only()
        return database

    def _pop(self) -> Database | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _return(self, database: Database) -> None:
        with self._lock:
            if database.idle and not self._is_closed:
                self._idle.append(database)
                return
        database.close()


# A connection that successive commands share. Each command checks it first and gets it outside of any
# transaction. A broken connection, or one left in a transaction, is not shared again.


class CachedDatabase:
    """A cache of one open database; a request for another one closes the first. `close` it at the end."""

    def __init__(self) -> None:
        self._cached: Database | None = None
        self._libpq: tuple[object, ...] = ()

    @contextmanager
    def borrow(self, target: Target) -> Iterator[Database]:
        """Yield the database of `target`, with its tables checked. Meanwhile, other callers get a new one."""
        libpq = _libpq_environment()
        database = self._take(target, libpq)
        try:
            yield database
        finally:
            if self._cached is None and database.idle:
                self._cached, self._libpq = database, libpq
            else:
                database.close()

    def close(self) -> None:
        cached, self._cached = self._cached, None
        if cached is not None:
            cached.close()

    def _take(self, target: Target, libpq: tuple[object, ...]) -> Database:
        cached, self._cached = self._cached, None
        if cached is not None:
            # If the cached connection is broken, the fresh one reports the reason.
            with suppress(CbxError):
                if cached.target == target and libpq == self._libpq:
                    cached.refresh_schema()
                    return cached
            cached.close()
        return Database.open_target(target)


def _libpq_environment() -> tuple[object, ...]:
    """Return what libpq adds to an address: its variables, and the state of the service files.

    The files are in HOME unless a variable names them.
    """
    variables = {name: value for name, value in os.environ.items() if name.startswith("PG") or name == "HOME"}
    own = variables.get("PGSERVICEFILE") or os.path.join(variables.get("HOME", ""), ".pg_service.conf")
    return variables, _state(own), _state(os.path.join(variables.get("PGSYSCONFDIR", ""), "pg_service.conf"))


def _state(path: str) -> tuple[int, ...] | None:
    """Return values that change with a file; None if there is no file."""
    with suppress(OSError):
        status = os.stat(path)
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
    return None
