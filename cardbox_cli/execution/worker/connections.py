"""The connections of a worker's threads. Each thread has one connection, which is reopened when it breaks.

If the database is unavailable or refuses an action, a connection waits. The pool announces that only once.
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

# A function that makes the runtime of a project on a database.
MakeRuntime = Callable[[Database, str], Runtime]

# The first and the longest pause, in seconds, between two tries to reach a lost database.
_MIN_PAUSE, _MAX_PAUSE = 0.2, 5.0


class WorkerConnection:
    """The connection of one thread, opened at its first use. It stops trying once `is_over` returns True."""

    def __init__(self, made_by: "WorkerConnectionPool", is_over: Callable[[], bool]) -> None:
        self._pool = made_by
        self._is_over = is_over
        self._database: Database | None = None
        self._runtimes: dict[str, Runtime] = {}

    def database(self) -> Database:
        """Return the open database. Raises DatabaseUnavailable."""
        if self._database is None:
            self._database = self._pool.open()
        return self._database

    def retry(self, action: Callable[[Database], _T], *, insist: bool = True) -> _T:
        """Return the result of `action`. Repeat it while the database is unavailable, until `is_over`.

        If `insist` is False, an error of an available database is raised at once and not retried.
        """
        pause = 0.0
        while True:
            try:
                answer = action(self.database())
            except DatabaseUnavailable as exc:
                self.close()
                refused = not insist and is_refusal(exc)
                if isinstance(exc, SchemaMissing | SchemaTooNew | SchemaTooOld) or refused or self._is_over():
                    self._pool.forget(self)
                    raise
                # Perhaps only this connection has expired, so the first failure is not announced.
                if pause:
                    self._pool.note_down(self, exc)
                time.sleep(pause)
                pause = min(pause * 2, _MAX_PAUSE) or _MIN_PAUSE
            else:
                self._pool.note_up(self)
                return answer

    def attempt(self, project_id: str, action: Callable[[Runtime], _T], *, insist: bool = True) -> _T:
        """Return the result of `action` with the runtime of a project. Repeats it as `retry` does."""
        return self.retry(lambda database: action(self._runtime(database, project_id)), insist=insist)

    def try_once(self, project_id: str, action: Callable[[Runtime], _T]) -> _T:
        """Return the result of `action`. Does not repeat it, and closes the connection if it broke."""
        try:
            return action(self._runtime(self.database(), project_id))
        except DatabaseUnavailable:
            self.close()
            raise

    def _runtime(self, database: Database, project_id: str) -> Runtime:
        if project_id not in self._runtimes:
            self._runtimes[project_id] = self._pool.make_runtime(database, project_id)
        return self._runtimes[project_id]

    def close(self) -> None:
        """Close the connection. The next use opens another one."""
        self._runtimes.clear()
        if self._database is not None:
            self._database.close()
            self._database = None


class WorkerConnectionPool:
    """A pool of connections. Calls `announce` with a message when the database is lost and when it is back.

    The server ends a transaction that is idle for `longest_pause`. Without this limit, the locks of a frozen
    worker process would block the worker that claims its turn next.
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
        self._idle: list[WorkerConnection] = []
        self._down: dict[WorkerConnection, DatabaseUnavailable] = {}
        # True after the loss was announced, until the pool announces that the database is back.
        self._is_announced_lost = False

    @contextmanager
    def open_own(self, is_over: Callable[[], bool]) -> Iterator[WorkerConnection]:
        """Open a connection for a thread that runs as long as the worker, and close it at the end."""
        connection = WorkerConnection(self, is_over)
        try:
            yield connection
        finally:
            connection.close()

    @contextmanager
    def borrow(self, is_over: Callable[[], bool]) -> Iterator[WorkerConnection]:
        """Borrow a pooled connection. All borrowers must pass the same `is_over`."""
        with self._lock:
            connection = self._idle.pop() if self._idle else WorkerConnection(self, is_over)
        try:
            yield connection
        finally:
            with self._lock:
                self._idle.append(connection)

    def open(self) -> Database:
        """Open a database for a connection. Raises DatabaseUnavailable."""
        database = self._connect()
        try:
            database.enable_prepared_statements()
            database.limit_pauses(self._longest_pause)
        except BaseException:
            database.close()
            raise
        return database

    @property
    def refusal(self) -> str | None:
        """The error message of a database that is available and refuses the action of a thread, or None."""
        with self._lock:
            refusals = [exc.message for exc in self._down.values() if is_refusal(exc)]
        return refusals[0] if refusals else None

    def note_down(self, connection: WorkerConnection, exc: DatabaseUnavailable) -> None:
        with self._lock:
            is_new, self._is_announced_lost = not self._is_announced_lost, True
            self._down[connection] = exc
        if is_new:
            self._announce(f"warning: {exc.message}; trying again until it is back")

    def note_up(self, connection: WorkerConnection) -> None:
        with self._lock:
            self._down.pop(connection, None)
            is_back = self._is_announced_lost and not self._down
            self._is_announced_lost = self._is_announced_lost and not is_back
        if is_back:
            self._announce("the database is back")

    def forget(self, connection: WorkerConnection) -> None:
        """Forget that this connection waits, without announcing that the database is back."""
        with self._lock:
            self._down.pop(connection, None)

    def close(self) -> None:
        """Close the connections that are not borrowed."""
        for connection in self._idle:
            connection.close()
