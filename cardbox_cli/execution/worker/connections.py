"""The connections of a worker's threads: one for each thread, made anew when it breaks.

Owns how a database that went away, or refuses to work, is waited for, and that this is announced once however
many threads wait. Knows nothing of what is done with a connection.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Lock
from typing import TypeVar

from cardbox_cli.errors import DatabaseUnavailable, SchemaMissing, SchemaTooNew, SchemaTooOld
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.driver_errors import is_refusal

_T = TypeVar("_T")

# Makes a runtime of a project on a database.
MakeRuntime = Callable[[Database, str], Runtime]

# Seconds between tries to reach a database that went away: at first, and at most.
_SOON, _LATE = 0.2, 5.0


class Connection:
    """A connection of one thread's. It is made when first wanted, and `is_over` ends the tries to do so."""

    def __init__(self, made_by: "Connections", is_over: Callable[[], bool]) -> None:
        self._made_by = made_by
        self._is_over = is_over
        self._database: Database | None = None
        self._runtimes: dict[str, Runtime] = {}

    def database(self) -> Database:
        """What it leads to. Raises DatabaseUnavailable."""
        if self._database is None:
            self._database = self._made_by.open()
        return self._database

    def with_database(self, action: Callable[[Database], _T], *, insist: bool = True) -> _T:
        """What `action` answers, once the database is there: tried again until it is all over.

        Unless it insists, what a database that is there refuses to do is tried once.
        """
        pause = 0.0
        while True:
            try:
                answer = action(self.database())
            except DatabaseUnavailable as exc:
                self.close()
                refused = not insist and is_refusal(exc)
                if isinstance(exc, SchemaMissing | SchemaTooNew | SchemaTooOld) or refused or self._is_over():
                    self._made_by.forget(self)
                    raise
                # A connection may just have grown old: the first try is made in silence.
                if pause:
                    self._made_by.note_down(self, exc)
                time.sleep(pause)
                pause = min(pause * 2, _LATE) or _SOON
            else:
                self._made_by.note_up(self)
                return answer

    def attempt(self, project_id: str, action: Callable[[Runtime], _T], *, insist: bool = True) -> _T:
        """`with_database` for a use case of a project."""
        return self.with_database(lambda database: action(self._runtime(database, project_id)), insist=insist)

    def once(self, project_id: str, action: Callable[[Runtime], _T]) -> _T:
        """What `action` answers, which is not to be done twice. A connection that broke is closed."""
        try:
            return action(self._runtime(self.database(), project_id))
        except DatabaseUnavailable:
            self.close()
            raise

    def _runtime(self, database: Database, project_id: str) -> Runtime:
        if project_id not in self._runtimes:
            self._runtimes[project_id] = self._made_by.make_runtime(database, project_id)
        return self._runtimes[project_id]

    def close(self) -> None:
        """Close the connection; the next use makes another."""
        self._runtimes.clear()
        if self._database is not None:
            self._database.close()
            self._database = None


class Connections:
    """Makes connections, and caches those that were lent. `announce` is for a database that goes or comes.

    `longest_pause` is how long a transaction may lie idle: a worker that is stopped amid one must not keep
    others from the turn that it loses.
    """

    def __init__(
        self,
        connect: Callable[[], Database],
        make_runtime: MakeRuntime,
        *,
        longest_pause: timedelta,
        announce: Callable[[str], None],
    ) -> None:
        self.make_runtime = make_runtime
        self._connect = connect
        self._longest_pause = longest_pause
        self._announce = announce
        self._lock = Lock()
        self._idle: list[Connection] = []
        self._down: dict[Connection, DatabaseUnavailable] = {}
        # Whether it was announced that the database is gone, and not yet that it is back.
        self._is_said_gone = False

    @contextmanager
    def own(self, is_over: Callable[[], bool]) -> Iterator[Connection]:
        """A connection for a thread that lives as long as the worker; it is closed in the end."""
        connection = Connection(self, is_over)
        try:
            yield connection
        finally:
            connection.close()

    @contextmanager
    def lent(self, is_over: Callable[[], bool]) -> Iterator[Connection]:
        """A connection for a while. `is_over` is the same for all that are lent."""
        with self._lock:
            connection = self._idle.pop() if self._idle else Connection(self, is_over)
        try:
            yield connection
        finally:
            with self._lock:
                self._idle.append(connection)

    def open(self) -> Database:
        """A database for a connection. Raises DatabaseUnavailable."""
        database = self._connect()
        try:
            database.keep_plans()
            database.limit_pauses(self._longest_pause)
        except BaseException:
            database.close()
            raise
        return database

    @property
    def refusal(self) -> str | None:
        """What the database, which is there, refuses to do for one of the threads."""
        with self._lock:
            refusals = [exc.message for exc in self._down.values() if is_refusal(exc)]
        return refusals[0] if refusals else None

    def note_down(self, connection: Connection, exc: DatabaseUnavailable) -> None:
        """The database is gone for this thread, from now on."""
        with self._lock:
            is_new, self._is_said_gone = not self._is_said_gone, True
            self._down[connection] = exc
        if is_new:
            self._announce(f"warning: {exc.message}; trying again until it is back")

    def note_up(self, connection: Connection) -> None:
        """The database works for this thread."""
        with self._lock:
            self._down.pop(connection, None)
            is_back = self._is_said_gone and not self._down
            self._is_said_gone = self._is_said_gone and not is_back
        if is_back:
            self._announce("the database is back")

    def forget(self, connection: Connection) -> None:
        """The thread waits no more; that the database is back, another one finds."""
        with self._lock:
            self._down.pop(connection, None)

    def close(self) -> None:
        """Close the connections that are not lent."""
        for connection in self._idle:
            connection.close()
