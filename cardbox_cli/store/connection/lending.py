"""Connections that many threads borrow, each for one look: open ones are kept, with what they know of tables.

What is lent can read only, and no statement of it takes longer than it may. The first connection starts an
embedded server that is down; what somebody stopped after that stays down.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import BoundedSemaphore, Lock

from cardbox_cli.errors import AllAtWork
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
