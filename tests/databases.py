"""A server that hands out fresh databases, copies of a template that holds the tables."""

import uuid
from contextlib import ExitStack

import psycopg
from psycopg import pq

from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from cardbox_cli.store.embedded import EmbeddedServer
from cardbox_cli.store.migrations.upgrade import add_missing_tables

TEMPLATE = "cbx_template"
EMPTY = "template1"


class Databases:
    """A server that hands out fresh databases, by connection string.

    The next database is made, and the last one dropped, while a test works on its own.
    """

    def __init__(self, server: EmbeddedServer) -> None:
        self.server = server
        self._prepared: dict[str, str] = {}
        self._ready: dict[str, str] = {}
        with ExitStack() as opened:
            opened.callback(server.destroy)
            self.admin, making, dropping = (server.connect(autocommit=True) for _ in range(3))
            for connection in (self.admin, making, dropping):
                opened.callback(connection.close)
            self._making, self._dropping = _Background(making), _Background(dropping)
            self._make_template()
            self._opened = opened.pop_all()

    def _make_template(self) -> None:
        # Tests kill servers, never the machine that they run on, and their databases do not last.
        for setting in ("fsync", "autovacuum", "jit"):
            self.admin.execute(f"ALTER SYSTEM SET {setting} = off")
        self.admin.execute("SELECT pg_reload_conf()")
        self.admin.execute(f"CREATE DATABASE {TEMPLATE}")
        with Database.connect(Databases.target(self, TEMPLATE)) as database:
            add_missing_tables(database)

    def target(self, name: str) -> Target:
        return Target(self.server.conninfo(name), "the test", self.server.home)

    def make(self, template: str = TEMPLATE) -> str:
        name = self._ready.pop(template, None) or self._begin(template)
        self._making.wait()
        if template in (TEMPLATE, EMPTY, *self._prepared.values()):
            self._ready[template] = self._begin(template)
        return name

    def _begin(self, template: str) -> str:
        name = f"t_{uuid.uuid4().hex}"
        # Copying files costs half of what the default, writing every page to the WAL, does for a database so small.
        self._making.begin(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
        return name

    def prepared(self, script: str) -> str:
        """A template that this script made of an empty database."""
        if script not in self._prepared:
            name = self.make(EMPTY)
            with psycopg.connect(self.server.conninfo(name), autocommit=True) as connection:
                connection.execute(script.encode())
            self._prepared[script] = name
        return self._prepared[script]

    def close(self) -> None:
        """Destroy the server."""
        self._opened.close()

    def drop(self, name: str) -> None:
        self._dropping.begin(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


class _Background:
    """A connection on which one statement at a time is executed while others work."""

    def __init__(self, connection: psycopg.Connection[object]) -> None:
        self._connection = connection

    def begin(self, statement: str) -> None:
        """Begin a statement after the end of the one before."""
        self.wait()
        self._connection.pgconn.send_query(statement.encode())

    def wait(self) -> None:
        """Wait for the end of the statement. Raises what is wrong with it."""
        while result := self._connection.pgconn.get_result():
            if result.status != pq.ExecStatus.COMMAND_OK:
                raise psycopg.OperationalError(result.error_message.decode())
