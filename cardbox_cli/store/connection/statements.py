"""Transactions, named queries, and the one place that translates driver errors.

Statements run in the caller's transaction; a use case opens it with `transaction` (read and write) or
`snapshot` (one READ ONLY view). Times that a query takes are told to shards, and spelled by a single server.
"""

import select
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import cached_property
from itertools import count
from typing import Any, LiteralString

import psycopg
from psycopg import IsolationLevel
from psycopg.rows import tuple_row

from cardbox_cli.faults import passing
from cardbox_cli.store.connection import driver_errors
from cardbox_cli.store.connection.queries import clocks, query, sent
from cardbox_cli.store.connection.tables import ESSENTIAL, KNOWN, SHARDING

_STREAMED_AT_ONCE = 500
_SNAPSHOT = (IsolationLevel.REPEATABLE_READ, True)
_cursor_numbers = count(1)


class Statements:
    """What is executed on a connection.

    `commits`: how many transactions were committed on it, those of snapshots and single statements aside.
    """

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self.commits = 0
        self._longest_pause: timedelta | None = None
        self._is_adopted = False
        # Whether a transaction goes on that begins and ends here, and when it began, once that was asked for.
        self._ours = False
        self._began: datetime | None = None

    @contextmanager
    def transaction(self, *, savepoint: bool = True) -> Iterator[None]:
        """Everything inside happens whole or not at all. Within another transaction: a savepoint.

        Without `savepoint` it then is a part of that transaction, which must end by what is raised inside,
        unless nothing was written.
        """
        if not savepoint and not self.commits_itself:
            yield
            return
        with driver_errors.translated():
            self._begin()
            outermost = self.idle
            with self._clocked(outermost), self.connection.transaction():
                if outermost and self._longest_pause is not None:
                    self.run("limit_pause", pause=self._longest_pause, once=True)
                yield
                if outermost:
                    passing("commit")
            if outermost:
                self.commits += 1
                passing("committed")

    def limit_pauses(self, longest: timedelta) -> None:
        """From now on the server ends this connection where a transaction of it lies idle for longer.

        A process that was stopped, or cut off, then holds its locks no longer than that. Call it outside of
        transactions.
        """
        if self.direct:
            self.run("limit_pause", pause=longest, once=False)
        else:
            # Behind a pooler the next transaction on the server's connection may be somebody else's.
            self._longest_pause = longest

    @contextmanager
    def _clocked(self, outermost: bool) -> Iterator[None]:
        """Around a transaction: whose time is read once if it is the outermost one."""
        if not outermost:
            yield
            return
        self._ours, self._began = True, None
        try:
            yield
        finally:
            self._ours, self._began = False, None

    def limit_statements(self, longest: timedelta, *, once: bool) -> None:
        """End every statement that takes longer: in this transaction, or on this connection from now on."""
        self.run("limit_statement", longest=longest, once=once)

    def answers(self) -> bool:
        """Whether the connection still leads to a server, as far as can be told without asking it."""
        socket = self.connection.fileno() if not self.connection.closed else -1
        if socket < 0 or not self.idle:
            return False
        # Where nothing was asked, what can be read is the end, or why the server ends it.
        return not select.select([socket], [], [], 0)[0]

    def _begin(self) -> None:
        # On a caller's connection without autocommit psycopg would commit the outermost block itself; a
        # transaction that has begun makes it a savepoint.
        if not self.connection.autocommit and self.idle:
            self._cursor().execute("SELECT")

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Everything inside reads one state of the database and cannot write."""
        connection = self.connection
        if not self.idle or not connection.autocommit:
            yield
            return
        before = connection.isolation_level, connection.read_only
        if before != _SNAPSHOT:
            connection.isolation_level, connection.read_only = _SNAPSHOT
        try:
            with driver_errors.translated(), self._clocked(True), connection.transaction():
                yield
        finally:
            # What was interrupted amid a statement, or closed, nobody uses again.
            if before != _SNAPSHOT and self.idle:
                connection.isolation_level, connection.read_only = before

    def only_read(self) -> None:
        """From now on nothing here can write. Behind a pooler this holds for what is within a transaction."""
        self.connection.isolation_level, self.connection.read_only = _SNAPSHOT
        if self.direct:
            self.run("only_read")

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Reads under settings that end with them: whatever is done inside is rolled back."""
        with driver_errors.translated():
            self._begin()
            with self.connection.transaction(force_rollback=True):
                yield

    def rows(self, name: str, /, **parameters: Any) -> list[tuple[Any, ...]]:
        """All rows of the query `name`."""
        with driver_errors.translated():
            return self._execute(name, parameters).fetchall()

    def stream(self, name: str, /, **parameters: Any) -> Iterator[tuple[Any, ...]]:
        """The rows of the query `name`, read as they are asked for. Needs a transaction, or a snapshot."""
        passing(name)
        cursor_name = f"cbx_{next(_cursor_numbers)}"
        with (
            driver_errors.translated(),
            psycopg.RawServerCursor(self.connection, cursor_name, row_factory=tuple_row) as cursor,
        ):
            cursor.itersize = _STREAMED_AT_ONCE
            yield from cursor.execute(*self._spelled(name, parameters))

    def row(self, name: str, /, **parameters: Any) -> tuple[Any, ...] | None:
        """The first row of the query `name`, or None."""
        with driver_errors.translated():
            return self._execute(name, parameters).fetchone()

    def value(self, name: str, /, **parameters: Any) -> Any:
        """The first column of the first row of the query `name`, or None."""
        row = self.row(name, **parameters)
        return None if row is None else row[0]

    def column(self, name: str, /, **parameters: Any) -> list[Any]:
        """The first column of all rows of the query `name`."""
        return [row[0] for row in self.rows(name, **parameters)]

    def run(self, name: str, /, **parameters: Any) -> int:
        """Execute the query `name` for its effect; the number of rows that it touched."""
        with driver_errors.translated():
            return self._execute(name, parameters).rowcount

    def script(self, text: str) -> None:
        """Execute our own SQL script, which takes no parameters."""
        passing("script")
        with driver_errors.translated():
            self.connection.execute(text.encode())

    def copy_in(self, name: str, rows: Iterable[tuple[Any, ...]]) -> int:
        """Stream `rows` through the COPY statement `name`; how many there were."""
        copied = 0
        passing(name)
        with driver_errors.translated(), self._cursor().copy(query(name)) as copy:
            for row in rows:
                copy.write_row(row)
                copied += 1
            passing(f"{name} sent")
        return copied

    def _execute(self, name: str, parameters: dict[str, Any]) -> psycopg.Cursor[tuple[Any, ...]]:
        passing(name)
        return self._cursor().execute(*self._spelled(name, parameters))

    def _spelled(self, name: str, parameters: dict[str, Any]) -> tuple[LiteralString, list[Any]]:
        """The query `name` and its parameters, with the times that it takes and that nobody gave."""
        wanted = clocks(name).difference(parameters)
        if wanted and self.sharded:
            times = {clock: self._told(clock, parameters.get("delay")) for clock in wanted}
            wanted, parameters = frozenset(), {**parameters, **times}
        text, names = sent(name, wanted)
        return text, [parameters[name] for name in names]

    def _told(self, clock: str, delay: timedelta | None) -> datetime | None:
        if clock == "moment":
            return self.moment()
        if clock == "now":
            return self.now()
        return None if delay is None else self.now() + delay

    def _cursor(self) -> psycopg.Cursor[tuple[Any, ...]]:
        # A caller's connection may have a row factory of its own.
        return psycopg.RawCursor(self.connection, row_factory=tuple_row)

    def now(self) -> datetime:
        """The database's time, which stamps what is written. Within a transaction it stands still."""
        if self._began is not None:
            return self._began
        now: datetime = self.value("clock")
        if self._ours:
            self._began = now
        return now

    def moment(self) -> datetime:
        """The database's time, which goes on within a transaction, too."""
        moment: datetime = self.value("moment")
        return moment

    @cached_property
    def direct(self) -> bool:
        """Whether no pooler stands before the server, so that settings of the session stay with us."""
        return bool(self.value("serving_process") == self.connection.info.backend_pid)

    @cached_property
    def sharded(self) -> bool:
        """Whether the tables of projects are spread over the nodes of a Citus cluster."""
        return SHARDING in self._existing and self.distributed_tables().get(ESSENTIAL[0], False)

    def distributed_tables(self) -> dict[str, bool]:
        """The tables of ours that a sharding extension has, and whether they are spread over shards."""
        is_there = self.value("engine") is not None
        return dict(self.rows("distributed_tables", names=list(KNOWN))) if is_there else {}

    @cached_property
    def _existing(self) -> frozenset[str]:
        # On a caller's connection names stay what they are to the caller.
        process = 0 if self._is_adopted else self.connection.info.backend_pid
        return frozenset(self.column("existing_tables", names=[*KNOWN, SHARDING], process=process))

    @property
    def spoiled(self) -> bool:
        """Whether a statement has failed, so that its transaction, or a part of that, must be taken back."""
        return self.connection.info.transaction_status == psycopg.pq.TransactionStatus.INERROR

    @property
    def idle(self) -> bool:
        """Whether the connection can be used, and no transaction is open on it."""
        return self.connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE

    @property
    def commits_itself(self) -> bool:
        """Whether the next statement would be a transaction of its own, or fail for want of a connection."""
        in_none = (psycopg.pq.TransactionStatus.IDLE, psycopg.pq.TransactionStatus.UNKNOWN)
        return self.connection.autocommit and self.connection.info.transaction_status in in_none
