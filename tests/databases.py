"""A server that hands out fresh databases, copies of a template that holds the tables."""

import uuid

import psycopg

from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from cardbox_cli.store.embedded import EmbeddedServer
from cardbox_cli.store.migrations.upgrade import add_missing_tables

TEMPLATE = "cbx_template"


class Databases:
    """A server that hands out fresh databases, by connection string."""

    def __init__(self, server: EmbeddedServer) -> None:
        self.server = server
        self.admin = server.connect(autocommit=True)
        # Tests kill servers, never the machine that they run on.
        self.admin.execute("ALTER SYSTEM SET fsync = off")
        self.admin.execute("SELECT pg_reload_conf()")
        self.admin.execute(f"CREATE DATABASE {TEMPLATE}")
        with Database.connect(self.target(TEMPLATE)) as database:
            add_missing_tables(database)
        self._prepared: dict[str, str] = {}

    def target(self, name: str) -> Target:
        return Target(self.server.conninfo(name), "the test", self.server.home)

    def make(self, template: str = TEMPLATE) -> str:
        name = f"t_{uuid.uuid4().hex}"
        # Copying files costs half of what the default, writing every page to the WAL, does for a database so small.
        self.admin.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
        return name

    def prepared(self, script: str) -> str:
        """A template that this script made of an empty database."""
        if script not in self._prepared:
            name = self.make("template1")
            with psycopg.connect(self.server.conninfo(name), autocommit=True) as connection:
                connection.execute(script.encode())
            self._prepared[script] = name
        return self._prepared[script]

    def close(self) -> None:
        self.admin.close()
        self.server.destroy()

    def drop(self, name: str) -> None:
        self.admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
