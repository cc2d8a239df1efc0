"""A connection to Postgres: its transactions, its named queries, and the features of its database.

Driver errors become errors of cbx. Statements run in the caller's transaction. A use case opens it with
`transaction` to read and write, or with `snapshot` to read one state. On shards, the times in queries are
parameters. A single server computes them itself. This module knows nothing about cards and boxes.
"""

import select
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from psycopg import IsolationLevel
from psycopg.abc import Buffer
from psycopg.rows import tuple_row
from psycopg.types.datetime import TimestamptzLoader
from psycopg.types.json import Jsonb

from cardbox_cli.errors import DatabaseUnavailable, MissingRight, SchemaMissing, UsageError
from cardbox_cli.faults import fault_point
from cardbox_cli.limits import EARLIEST, LATEST
from cardbox_cli.model import exact_json
from cardbox_cli.store.connection import driver_errors
from cardbox_cli.store.connection.queries import ExactJson, clocks, numbered_query, query
from cardbox_cli.store.connection.tables import (
    BATCHES,
    ESSENTIAL,
    EXECUTION,
    KNOWN,
    OWN,
    OWN_EXECUTION,
    SHARDING,
    read_grant,
)
from cardbox_cli.store.connection.target import Target, check_address, find_target, hide_password
from cardbox_cli.store.migrations import files


class BoundedInstants(TimestamptzLoader):
    """Loader of timestamptz. Maps `infinity` and years out of range to EARLIEST or LATEST."""

    def load(self, data: Buffer) -> datetime:
        try:
            return super().load(data)
        except psycopg.DataError:
            text = bytes(data)
            return EARLIEST if text.startswith(b"-") or text.endswith(b"BC") else LATEST


OLDEST_SERVER = 150000

# A query is prepared after this many executions, if prepared statements are enabled.
_PREPARE_THRESHOLD = 5
_ROWS_PER_FETCH = 500
_SNAPSHOT = (IsolationLevel.REPEATABLE_READ, True)
_cursor_numbers = count(1)


def jsonb(value: Any) -> Jsonb:
    return Jsonb(value, dumps=exact_json.encode)


class Database(AbstractContextManager["Database"]):
    """A connection, and the features of its database. As a context manager, it closes the connection.

    `commits` counts the committed transactions, but not snapshots and single statements.
    """

    def __init__(self, connection: psycopg.Connection[Any], target: Target) -> None:
        self.connection = connection
        self.target = target
        self.commits = 0
        self._max_pause: timedelta | None = None
        self._is_callers = False
        # Whether this object has an open transaction, and the cached time of that transaction.
        self._in_transaction = False
        self._transaction_time: datetime | None = None

    @classmethod
    def open(cls, url: str | None = None) -> "Database":
        """Connect to `url`, or to the database of the environment, or to the embedded server.

        Starts an embedded server that is down. Enables prepared statements, for long-running programs. Raises
        DatabaseUnavailable if the server is unreachable, SchemaMissing if it has no tables for cards.
        """
        database = cls.open_target(find_target(url))
        try:
            database.enable_prepared_statements()
        except BaseException:
            database.close()
            raise
        return database

    @classmethod
    def open_target(cls, target: Target, *, again: bool = False) -> "Database":
        """Connect and check the tables. On the embedded server, also create them.

        A caller that reconnects passes `again`: then an embedded server that was stopped is not started.
        """
        database = cls.connect(target, again=again)
        try:
            database._check_schema()
        except BaseException:
            database.close()
            raise
        return database

    @classmethod
    def connect(
        cls, target: Target, *, timeout: int = 10, start: bool = True, again: bool = False, **more: str | int
    ) -> "Database":
        """Connect within `timeout` seconds (libpq: at least 2), without checking the tables.

        `more` has further options of libpq. Without `start`, an embedded server that is down stays down.
        `again` is as in `open_target`.
        """
        # Prepared statements break behind a transaction pooler, and a command runs each query once. A
        # long-running caller turns them on with `enable_prepared_statements`.
        options: dict[str, Any] = {"autocommit": True, "prepare_threshold": None, "application_name": "cbx"}
        options |= {"connect_timeout": timeout, "client_encoding": "UTF8", **more}
        if target.conninfo is None:
            server = target.server()
            connect = server.reconnect if again else server.connect if start else server.reach
            connection = connect(**options)
        else:
            connection = _connect_server(target, options)
        if connection.info.server_version < OLDEST_SERVER:
            major = connection.info.server_version // 10000
            connection.close()
            hint = "upgrade it to PostgreSQL 15 or later"
            raise DatabaseUnavailable(f"the server is PostgreSQL {major}", hint=hint)
        connection.adapters.register_loader("timestamptz", BoundedInstants)
        connection.adapters.register_loader("jsonb", ExactJson)
        return cls(connection, target)

    @classmethod
    def adopt(cls, connection: psycopg.Connection[Any]) -> "Database":
        """Wrap the caller's connection. Statements run in its transaction, and the caller closes it."""
        adopted = cls(connection, Target("", "the caller's connection", Path()))
        adopted._is_callers = True
        return adopted

    def enable_prepared_statements(self) -> None:
        """Prepare repeated queries if `can_prepare`. Planning is most of the cost of a small claim."""
        if self.can_prepare:
            self.run("keep_plans")
            self.connection.prepare_threshold = _PREPARE_THRESHOLD

    def close(self) -> None:
        self.connection.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- transactions and statements

    @contextmanager
    def transaction(self, *, savepoint: bool = True) -> Iterator[None]:
        """Run the block in a transaction, all or nothing. Within another transaction, use a savepoint.

        With `savepoint` False, the block joins the outer transaction. If it fails after a write, the caller
        must roll back the outer transaction.
        """
        if not savepoint and not self.is_autocommitting:
            yield
            return
        with driver_errors.translate_errors():
            self._begin()
            outermost = self.idle
            with self._cached_time(outermost), self.connection.transaction():
                if outermost and self._max_pause is not None:
                    self.run("limit_pause", pause=self._max_pause, once=True)
                yield
                if outermost:
                    fault_point("commit")
            if outermost:
                self.commits += 1
                fault_point("committed")

    def limit_pauses(self, longest: timedelta) -> None:
        """Let the server close this connection if a transaction is idle for longer than `longest`.

        A suspended or lost process then holds its locks no longer than that. Call it outside of transactions.
        """
        if self.direct:
            self.run("limit_pause", pause=longest, once=False)
        else:
            # Behind a pooler, another client may get the server's connection after this transaction.
            self._max_pause = longest

    @contextmanager
    def _cached_time(self, outermost: bool) -> Iterator[None]:
        """Cache the time of the outermost transaction, so that it is queried once."""
        if not outermost:
            yield
            return
        self._in_transaction, self._transaction_time = True, None
        try:
            yield
        finally:
            self._in_transaction, self._transaction_time = False, None

    def limit_statements(self, longest: timedelta, *, once: bool) -> None:
        """Cancel statements that take longer than `longest`. `once` applies to this transaction only."""
        self.run("limit_statement", longest=longest, once=once)

    def is_connected(self) -> bool:
        """Return whether the connection is idle and its server has not closed it. Sends nothing."""
        socket = self.connection.fileno() if not self.connection.closed else -1
        if socket < 0 or not self.idle:
            return False
        # Without a query, there is only data to read if the server has closed the connection.
        return not select.select([socket], [], [], 0)[0]

    def _begin(self) -> None:
        # If a caller's connection does not autocommit, psycopg would commit the outermost block. With an open
        # transaction, the block is a savepoint instead.
        if not self.connection.autocommit and self.idle:
            self._cursor().execute("SELECT")

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Run the block on one read-only state of the database. Joins an open transaction."""
        connection = self.connection
        if not self.idle or not connection.autocommit:
            yield
            return
        before = connection.isolation_level, connection.read_only
        if before != _SNAPSHOT:
            connection.isolation_level, connection.read_only = _SNAPSHOT
        try:
            with driver_errors.translate_errors(), self._cached_time(True), connection.transaction():
                yield
        finally:
            # A connection that was closed, or interrupted in a statement, is not reused.
            if before != _SNAPSHOT and self.idle:
                connection.isolation_level, connection.read_only = before

    def make_read_only(self) -> None:
        """Refuse all writes from now on. Behind a pooler, this applies only within transactions."""
        self.connection.isolation_level, self.connection.read_only = _SNAPSHOT
        if self.direct:
            self.run("only_read")

    @contextmanager
    def rolled_back(self) -> Iterator[None]:
        """Run the block in a transaction that is always rolled back, for reads under temporary settings."""
        with driver_errors.translate_errors():
            self._begin()
            with self.connection.transaction(force_rollback=True):
                yield

    def rows(self, name: str, /, **parameters: Any) -> list[tuple[Any, ...]]:
        with driver_errors.translate_errors():
            return self._execute(name, parameters).fetchall()

    def stream(self, name: str, /, **parameters: Any) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of the query `name` lazily. Needs a transaction or a snapshot."""
        fault_point(name)
        cursor_name = f"cbx_{next(_cursor_numbers)}"
        with (
            driver_errors.translate_errors(),
            psycopg.RawServerCursor(self.connection, cursor_name, row_factory=tuple_row) as cursor,
        ):
            cursor.itersize = _ROWS_PER_FETCH
            yield from cursor.execute(*self._compile(name, parameters))

    def row(self, name: str, /, **parameters: Any) -> tuple[Any, ...] | None:
        with driver_errors.translate_errors():
            return self._execute(name, parameters).fetchone()

    def value(self, name: str, /, **parameters: Any) -> Any:
        """Return the first column of the first row of the query `name`, or None."""
        row = self.row(name, **parameters)
        return None if row is None else row[0]

    def column(self, name: str, /, **parameters: Any) -> list[Any]:
        return [row[0] for row in self.rows(name, **parameters)]

    def run(self, name: str, /, **parameters: Any) -> int:
        """Execute the query `name`, and return the number of affected rows."""
        with driver_errors.translate_errors():
            return self._execute(name, parameters).rowcount

    def script(self, text: str) -> None:
        fault_point("script")
        with driver_errors.translate_errors():
            self.connection.execute(text.encode())

    def copy_in(self, name: str, rows: Iterable[tuple[Any, ...]]) -> int:
        """Stream `rows` through the COPY statement `name`. Returns their number."""
        copied = 0
        fault_point(name)
        with driver_errors.translate_errors(), self._cursor().copy(query(name)) as copy:
            for row in rows:
                copy.write_row(row)
                copied += 1
            fault_point(f"{name} sent")
        return copied

    def _execute(self, name: str, parameters: dict[str, Any]) -> psycopg.Cursor[tuple[Any, ...]]:
        fault_point(name)
        return self._cursor().execute(*self._compile(name, parameters))

    def _compile(self, name: str, parameters: dict[str, Any]) -> tuple[LiteralString, list[Any]]:
        """Return the query `name` and its parameters. On shards, adds the times that the query needs."""
        times = clocks(name).difference(parameters)
        if times and self.sharded:
            values = {time: self._clock_value(time, parameters.get("delay")) for time in times}
            times, parameters = frozenset(), {**parameters, **values}
        text, names = numbered_query(name, times)
        return text, [parameters[name] for name in names]

    def _clock_value(self, clock: str, delay: timedelta | None) -> datetime | None:
        if clock == "moment":
            return self.moment()
        if clock == "now":
            return self.now()
        return None if delay is None else self.now() + delay

    def _cursor(self) -> psycopg.Cursor[tuple[Any, ...]]:
        # A caller's connection may have its own row factory.
        return psycopg.RawCursor(self.connection, row_factory=tuple_row)

    def now(self) -> datetime:
        """Return the time of the database, which all writes use. It is constant within a transaction."""
        if self._transaction_time is not None:
            return self._transaction_time
        now: datetime = self.value("clock")
        if self._in_transaction:
            self._transaction_time = now
        return now

    def moment(self) -> datetime:
        """Return the database's time, which advances within a transaction."""
        moment: datetime = self.value("moment")
        return moment

    @property
    def has_failed(self) -> bool:
        """Return whether a statement failed. The caller must then roll back its transaction or savepoint."""
        return self.connection.info.transaction_status == psycopg.pq.TransactionStatus.INERROR

    @property
    def idle(self) -> bool:
        """Return whether the connection is usable, without an open transaction."""
        return self.connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE

    @property
    def is_autocommitting(self) -> bool:
        """Return whether the next statement would be its own transaction. Also True on a lost connection."""
        in_none = (psycopg.pq.TransactionStatus.IDLE, psycopg.pq.TransactionStatus.UNKNOWN)
        return self.connection.autocommit and self.connection.info.transaction_status in in_none

    # --- features of the database

    @cached_property
    def direct(self) -> bool:
        """Return whether there is no pooler in front of the server, so that session settings persist."""
        return bool(self.value("serving_process") == self.connection.info.backend_pid)

    @cached_property
    def sharded(self) -> bool:
        """Return whether the tables of projects are distributed over the nodes of a Citus cluster."""
        return SHARDING in self._existing and self.distributed_tables().get(ESSENTIAL[0], False)

    def distributed_tables(self) -> dict[str, bool]:
        """Return the tables of cbx that a sharding extension manages, with True for a sharded table."""
        is_there = self.value("engine") is not None
        return dict(self.rows("distributed_tables", names=list(KNOWN))) if is_there else {}

    @cached_property
    def _existing(self) -> frozenset[str]:
        # A caller's connection resolves names as the caller has configured it.
        process = 0 if self._is_callers else self.connection.info.backend_pid
        return frozenset(self.column("existing_tables", names=[*KNOWN, SHARDING], process=process))

    @property
    def can_prepare(self) -> bool:
        """Return whether prepared statements work, which need a direct connection and a single server.

        On shards, the coordinator chooses a shard by the project, which a generic plan does not contain.
        """
        return self.direct and not self.sharded

    @property
    def is_replica(self) -> bool:
        return bool(self.value("is_replica"))

    @cached_property
    def tables(self) -> frozenset[str]:
        """Return the readable tables of this database that cbx knows, as schema.name."""
        return self._existing - {SHARDING}

    @cached_property
    def closed_tables(self) -> frozenset[str]:
        """Return the tables of this database that cbx knows and that our role may not read."""
        return frozenset(self.column("closed_tables", names=list(KNOWN)))

    @cached_property
    def started_at(self) -> datetime:
        """Return the time at which the server started. Connections end with the server."""
        started_at: datetime = self.value("started_at")
        return started_at

    @cached_property
    def role(self) -> str:
        return str(self.value("our_role"))

    @cached_property
    def login_role(self) -> str:
        """Return the role that logged in, which SET ROLE does not change."""
        return str(self.value("login_role"))

    @cached_property
    def unique_tool_results(self) -> bool:
        """Return whether a tool call can have only one result, as in databases of card-box libraries."""
        return bool(self.value("unique_tool_results"))

    @property
    def keeps_box_info(self) -> bool:
        return "cbx.box_info" in self.tables

    @property
    def keeps_turns(self) -> bool:
        """Return whether this database stores the ends of turns, leases and the audit."""
        return self.tables.issuperset(OWN_EXECUTION)

    @cached_property
    def keeps_batches(self) -> bool:
        """Return whether this database stores batches, and our role may write them."""
        return self.tables.issuperset(BATCHES) and bool(self.value("batches_are_writable"))

    def require_execution(self) -> None:
        """Raise SchemaMissing unless all tables of claims, workers and fixes exist."""
        for table in (*EXECUTION, *OWN_EXECUTION):
            self.require(table)

    def require_worker(self) -> None:
        """Raise DatabaseUnavailable unless workers can run here. They need a primary with current tables."""
        if self.is_replica:
            hint = "pass the primary's address as --database-url"
            raise DatabaseUnavailable("workers cannot run on a replica, which is read-only", hint=hint)
        self.require_execution()
        if self.sharded:
            from cardbox_cli.store.migrations.distribution import check_distributed

            check_distributed(self.distributed_tables(), self.schema_version())

    @property
    def address(self) -> str:
        """Return the address of the database without secrets. All connections to a database have the same."""
        return self.target.address

    def require(self, table: str) -> None:
        """Raise SchemaMissing if `table` does not exist, MissingRight if our role may not read it."""
        if table not in self.tables:
            self._require_grant(table)
            version = self.schema_version()
            is_old = version is not None and version < files.newest()
            hint = f"add it with `cbx db {'upgrade' if is_old else 'init --yes'}`"
            raise SchemaMissing(f"the database has no table {table}", hint=hint)

    def _require_grant(self, table: str) -> None:
        if table in self.closed_tables:
            what = f"the database role {self.role!r} may not read the table {table}"
            raise MissingRight(what, hint=read_grant(table, self.role))

    def clear_table_cache(self) -> None:
        """Clear the cached table names and features. Call it after creating tables."""
        names = ("tables", "_existing", "closed_tables", "keeps_batches", "unique_tool_results", "sharded")
        for name in names:
            self.__dict__.pop(name, None)

    def refresh_schema(self) -> None:
        """Check the tables again. Raises as `open_target` does, also if the connection is broken.

        If all tables of cbx exist, it only compares the schema version.
        """
        if self.tables.issuperset(OWN) and self.schema_version() == files.newest():
            return
        self.clear_table_cache()
        self._check_schema()

    def schema_version(self) -> int | None:
        """Return the schema version of the database, or None if cbx has created nothing in it."""
        if "cbx.schema_version" not in self.tables:
            return None
        version = self.value("schema_version")
        return None if version is None else int(version)

    def _check_schema(self) -> None:
        missing = [name for name in ESSENTIAL if name not in self.tables]
        if missing and self.target.embedded:
            from cardbox_cli.store.migrations.upgrade import add_missing_tables

            add_missing_tables(self)
            return
        if missing:
            self._require_grant(missing[0])
            hint = "create the tables of cbx with `cbx db init --yes`"
            raise SchemaMissing(f"the database has no table {missing[0]}", hint=hint)
        self.check_version()

    def check_version(self) -> int | None:
        """Return the schema version. Raises SchemaTooOld or SchemaTooNew if this cbx cannot work with it."""
        version = self.schema_version()
        files.check_version(version)
        return version


def _connect_server(target: Target, options: dict[str, Any]) -> psycopg.Connection[Any]:
    assert target.conninfo is not None
    check_address(target)
    try:
        return psycopg.connect(target.conninfo, **options)
    except (psycopg.ProgrammingError, UnicodeError):
        # The driver's message may quote the string with its password.
        hint = "write it as postgresql://USER@HOST:5432/DATABASE"
        raise UsageError(f"the connection string from {target.named_by} is malformed", hint=hint) from None
    except psycopg.Error as exc:
        where = ": ".join(filter(None, [target.named_by, hide_password(target.conninfo)]))
        raise driver_errors.connect_error(exc, where) from exc
