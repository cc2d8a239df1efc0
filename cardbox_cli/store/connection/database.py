"""One connection to Postgres: its transactions and named queries, and what its database offers.

The one place that translates driver errors. Statements run in the caller's transaction; a use case opens it
with `transaction` (read and write) or `snapshot` (one READ ONLY view). The times of a query are parameters
on shards, and expressions on a single server. Nothing here knows what a card or a box is.
"""

import select
from collections.abc import Callable, Iterable, Iterator
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
from cardbox_cli.faults import passing
from cardbox_cli.limits import EARLIEST, LATEST
from cardbox_cli.model import exact_json
from cardbox_cli.store.connection import driver_errors
from cardbox_cli.store.connection.queries import ExactJson, clocks, query, sent
from cardbox_cli.store.connection.tables import (
    BATCHES,
    ESSENTIAL,
    EXECUTION,
    KNOWN,
    OWN,
    OWN_EXECUTION,
    SHARDING,
    grant_of,
)
from cardbox_cli.store.connection.target import Target, check_address, find_target, hide_password, silent
from cardbox_cli.store.migrations import files

# Instants as the driver reads them: what a datetime cannot say becomes EARLIEST or LATEST of `limits.py`.


class BoundedInstants(TimestamptzLoader):
    """Reads a timestamptz; `infinity` and years beyond a datetime are no error."""

    def load(self, data: Buffer) -> datetime:
        """The instant, or the end of time that it lies at or behind."""
        try:
            return super().load(data)
        except psycopg.DataError:
            text = bytes(data)
            return EARLIEST if text.startswith(b"-") or text.endswith(b"BC") else LATEST


OLDEST_SERVER = 150000

# What was executed so often on a connection that keeps plans is prepared.
_OFTEN = 5
_STREAMED_AT_ONCE = 500
_SNAPSHOT = (IsolationLevel.REPEATABLE_READ, True)
_cursor_numbers = count(1)


def jsonb(value: Any) -> Jsonb:
    """`value` as a JSONB parameter, its numbers exact."""
    return Jsonb(value, dumps=exact_json.encode)


class Database(AbstractContextManager["Database"]):
    """A connection and what its database offers. Use as a context manager; it closes the connection.

    `commits`: how many transactions were committed on it, those of snapshots and single statements aside.
    """

    def __init__(self, connection: psycopg.Connection[Any], target: Target) -> None:
        self.connection = connection
        self.target = target
        self.commits = 0
        self._longest_pause: timedelta | None = None
        self._is_adopted = False
        # Whether a transaction goes on that begins and ends here, and when it began, once that was asked for.
        self._ours = False
        self._began: datetime | None = None

    @classmethod
    def open(cls, url: str | None = None, *, announce: Callable[[str], None] | None = None) -> "Database":
        """Connect to `url`, or to what the environment names, or to the embedded server (started if need be).

        For programs that stay: plans are kept. Raises DatabaseUnavailable when it cannot be reached,
        SchemaMissing when it has no tables for cards.
        """
        database = cls.open_target(find_target(url, announce=announce or silent))
        try:
            database.keep_plans()
        except BaseException:
            database.close()
            raise
        return database

    @classmethod
    def open_target(cls, target: Target, *, again: bool = False) -> "Database":
        """Connect, and see to it that the tables are there: on the embedded server they are made.

        `again`: for somebody who was connected before. An embedded server that was stopped then stays down.
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
        """Connect within `timeout` seconds (libpq's least is 2), without a look at the tables.

        `more` are further options of libpq. Without `start` an embedded server that is down stays down;
        `again` as in `open_target`.
        """
        # No prepared statements: they break behind a transaction pooler, and a command runs a query once.
        # What lives longer asks for them with `keep_plans`.
        options: dict[str, Any] = {"autocommit": True, "prepare_threshold": None, "application_name": "cbx"}
        options |= {"connect_timeout": timeout, "client_encoding": "UTF8", **more}
        if target.conninfo is None:
            server = target.server()
            connect = server.reconnect if again else server.connect if start else server.reach
            connection = connect(**options)
        else:
            connection = _connect_server(target, options)
        if connection.info.server_version < OLDEST_SERVER:
            found = connection.info.server_version // 10000
            connection.close()
            hint = "cbx needs PostgreSQL 15 or later"
            raise DatabaseUnavailable(f"the server is PostgreSQL {found}", hint=hint)
        connection.adapters.register_loader("timestamptz", BoundedInstants)
        connection.adapters.register_loader("jsonb", ExactJson)
        return cls(connection, target)

    @classmethod
    def adopt(cls, connection: psycopg.Connection[Any]) -> "Database":
        """A caller's own connection, whose transaction everything then joins. Closing stays the caller's."""
        adopted = cls(connection, Target("", "the caller's connection", Path()))
        adopted._is_adopted = True
        return adopted

    def keep_plans(self) -> None:
        """Let the server keep the plans of what is executed again and again, where `keeps_plans`.

        For what uses the connection for long: planning is most of what a small claim costs.
        """
        if self.keeps_plans:
            self.run("keep_plans")
            self.connection.prepare_threshold = _OFTEN

    def close(self) -> None:
        """Close the connection; harmless when it is closed already."""
        self.connection.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- transactions and statements

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

    # --- what the database offers

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
    def keeps_plans(self) -> bool:
        """Whether plans may be kept: behind a pooler they are another client's, and shards need the project.

        (A plan that was forced to be generic crashed the coordinator of a cluster.)
        """
        return self.direct and not self.sharded

    @property
    def is_replica(self) -> bool:
        """Whether the server only follows another one, and takes no writes."""
        return bool(self.value("is_replica"))

    @cached_property
    def tables(self) -> frozenset[str]:
        """Which of the tables that cbx knows exist here, as schema.name."""
        return self._existing - {SHARDING}

    @cached_property
    def closed_tables(self) -> frozenset[str]:
        """Which of the tables that cbx knows exist here and may not be read by our role."""
        return frozenset(self.column("closed_tables", names=list(KNOWN)))

    @cached_property
    def role(self) -> str:
        """Whose rights we have."""
        return str(self.value("our_role"))

    @cached_property
    def login_role(self) -> str:
        """The role that logged in, which setting another does not change."""
        return str(self.value("login_role"))

    @cached_property
    def unique_tool_results(self) -> bool:
        """Whether one tool-call id can have one tool result only, as in databases of card-box libraries."""
        return bool(self.value("unique_tool_results"))

    @property
    def keeps_box_info(self) -> bool:
        """Whether titles and provenance have a place here."""
        return "cbx.box_info" in self.tables

    @property
    def keeps_turns(self) -> bool:
        """Whether the ends of turns, leases and the audit have a place here."""
        return self.tables.issuperset(OWN_EXECUTION)

    @cached_property
    def keeps_batches(self) -> bool:
        """Whether batches have a place here that our role may write to."""
        return self.tables.issuperset(BATCHES) and bool(self.value("batches_are_writable"))

    def require_execution(self) -> None:
        """Raise SchemaMissing unless claims, workers and fixes have all their tables."""
        for table in (*EXECUTION, *OWN_EXECUTION):
            self.require(table)

    def require_worker(self) -> None:
        """Raise DatabaseUnavailable unless a worker can work here: on a primary, on tables up to date."""
        if self.is_replica:
            raise DatabaseUnavailable(
                "the database is a replica, which only reads",
                hint="run workers on the primary's --database-url",
            )
        self.require_execution()
        if self.sharded:
            from cardbox_cli.store.migrations.distribution import check_distributed

            check_distributed(self.distributed_tables(), self.schema_version())

    @property
    def address(self) -> str:
        """Which database this is, without any secret: the same for all connections that lead to it."""
        return self.target.address

    def require(self, table: str) -> None:
        """Raise SchemaMissing unless `table` exists, MissingRight where our role may not read it."""
        if table not in self.tables:
            self._require_grant(table)
            version = self.schema_version()
            is_old = version is not None and version < files.newest()
            shows = "`cbx db init` shows what it would add, and adds it"
            hint = "`cbx db upgrade` adds it" if is_old else shows
            raise SchemaMissing(f"the database has no table {table}", hint=hint)

    def _require_grant(self, table: str) -> None:
        if table in self.closed_tables:
            what = f"the database role {self.role!r} may not read the table {table}"
            raise MissingRight(what, hint=grant_of(table, self.role))

    def forget_tables(self) -> None:
        """Look again: tables were made."""
        for known in (
            "tables",
            "_existing",
            "closed_tables",
            "keeps_batches",
            "unique_tool_results",
            "sharded",
        ):
            self.__dict__.pop(known, None)

    def look_again(self) -> None:
        """Look at the tables as `open_target` does. Raises as it does, also when the connection broke.

        Where all tables of this cbx were there, only the version can tell of another one.
        """
        if self.tables.issuperset(OWN) and self.schema_version() == files.newest():
            return
        self.forget_tables()
        self._check_schema()

    def schema_version(self) -> int | None:
        """The version that the database was brought to; None where cbx has made nothing."""
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
            hint = "`cbx db init` makes the tables of cbx"
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
        # The message of a malformed string may quote it, password and all.
        hint = "postgresql://USER@HOST:5432/DATABASE, or libpq keywords such as 'host=… dbname=…'"
        raise UsageError(f"the connection string from {target.named_by} is malformed", hint=hint) from None
    except psycopg.Error as exc:
        where = ": ".join(filter(None, [target.named_by, hide_password(target.conninfo)]))
        raise driver_errors.connect_error(exc, where) from exc
