"""A pool of connections that threads borrow for one read, and a connection that successive commands share.

Pooled connections are read-only and limit the time of a statement. The first connection of a pool starts an
embedded server that is down. If that server is stopped later, the pool does not start it again.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from threading import BoundedSemaphore, Lock

from cardbox_cli.errors import CbxError, ConnectionsBusy
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target

# Maximum wait for a connection if all are in use.
_TIMEOUT_SECONDS = 10


class ConnectionPool:
    """A pool of at most `most` connections to `target`. Statements longer than `longest` are cancelled."""

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
        """Yield a connection that reads one snapshot of its database. First replaces a broken connection.

        Raises DatabaseUnavailable if it cannot connect, ConnectionsBusy if all connections stay in use.
        """
        with self._borrowed() as database, self._snapshot_of(database):
            yield database

    @contextmanager
    def autocommit(self) -> Iterator[Database]:
        """Yield a connection for a single statement without a transaction. Raises as `snapshot` does.

        Behind a connection pooler, the statement runs in a snapshot, because session settings do not persist.
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
        """Close the idle connections now, and each borrowed connection when it is returned."""
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


# One connection for successive commands. Each command checks it first, and gets it without an open
# transaction. A connection that is broken or has an open transaction is not reused.


class CachedDatabase:
    """A cache of one open database. A request for another database replaces it. `close` it at the end."""

    def __init__(self) -> None:
        self._cached: Database | None = None
        self._libpq: tuple[object, ...] = ()

    @contextmanager
    def borrow(self, target: Target) -> Iterator[Database]:
        """Yield the database of `target` with checked tables. Concurrent callers get another connection."""
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
            # If the cached connection is broken, opening a new one reports the reason.
            with suppress(CbxError):
                if cached.target == target and libpq == self._libpq:
                    cached.refresh_schema()
                    return cached
            cached.close()
        return Database.open_target(target)


def _libpq_environment() -> tuple[object, ...]:
    """Return all settings that libpq adds to an address: variables, and the states of the service files.

    By default, the service file of the user is in HOME.
    """
    variables = {name: value for name, value in os.environ.items() if name.startswith("PG") or name == "HOME"}
    own = variables.get("PGSERVICEFILE") or os.path.join(variables.get("HOME", ""), ".pg_service.conf")
    return variables, _state(own), _state(os.path.join(variables.get("PGSYSCONFDIR", ""), "pg_service.conf"))


def _state(path: str) -> tuple[int, ...] | None:
    """Return values that change when the file changes, or None if there is no file."""
    with suppress(OSError):
        status = os.stat(path)
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
    return None
