"""One connection to Postgres, and what its database offers: which tables, which rights, which version.

What is done on it is `statements.py`'s. Nothing here knows what a card or a box is.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from cardbox_cli.errors import DatabaseUnavailable, MissingRight, SchemaMissing, UsageError
from cardbox_cli.model import exact_json
from cardbox_cli.store.connection import driver_errors
from cardbox_cli.store.connection.instants import BoundedInstants
from cardbox_cli.store.connection.rows import ExactJson
from cardbox_cli.store.connection.statements import Statements
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

OLDEST_SERVER = 150000

# What was executed so often on a connection that keeps plans is prepared.
_OFTEN = 5


def jsonb(value: Any) -> Jsonb:
    """`value` as a JSONB parameter, its numbers exact."""
    return Jsonb(value, dumps=exact_json.encode)


class Database(Statements, AbstractContextManager["Database"]):
    """A connection and what its database offers. Use as a context manager; it closes the connection."""

    def __init__(self, connection: psycopg.Connection[Any], target: Target) -> None:
        super().__init__(connection)
        self.target = target

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
