"""A throw-away home with an embedded server of its own, and fresh databases on it.

Owns what has to be removed at the end, however that comes. Never touches the user's own home or database.
"""

import os
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import psycopg

from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from cardbox_cli.store.embedded import EmbeddedServer
from cardbox_cli.store.migrations.upgrade import add_missing_tables

PROJECT = "bench"

_Made = TypeVar("_Made")


class Workbench:
    """What rows are prepared on."""

    def __init__(
        self, server: EmbeddedServer, admin: psycopg.Connection[Any], until_the_end: ExitStack
    ) -> None:
        self.server = server
        self._admin = admin
        self._until_the_end = until_the_end
        self._shared: dict[Any, Any] = {}

    @classmethod
    @contextmanager
    def open(cls) -> Iterator["Workbench"]:
        """A workbench in a temporary folder; its server and all its files are gone afterwards."""
        with tempfile.TemporaryDirectory(prefix="cbx-bench-") as folder:
            server = EmbeddedServer(Path(folder) / "home")
            try:
                with server.connect(autocommit=True) as admin, ExitStack() as until_the_end:
                    yield cls(server, admin, until_the_end)
            finally:
                server.destroy()

    @property
    def server_version(self) -> str:
        """Postgres's own, as in 18.1."""
        return self._admin.info.parameter_status("server_version") or "unknown"

    @contextmanager
    def database(self) -> Iterator[Database]:
        """A connection to a fresh database with the tables of cbx."""
        with self._created(self.shared(_template)) as name, self._connected(name) as database:
            yield database

    @contextmanager
    def _created(self, template: str) -> Iterator[str]:
        name = f"bench_{uuid.uuid4().hex}"
        self._admin.execute(f"CREATE DATABASE {name} TEMPLATE {template}".encode())
        try:
            yield name
        finally:
            self._admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())

    def _connected(self, name: str) -> AbstractContextManager[Database]:
        return Database.connect(Target(self.server.conninfo(name), "the benchmark", self.server.home))

    def shared(self, make: Callable[["Workbench"], AbstractContextManager[_Made]]) -> _Made:
        """What `make` gives, made once for all rows, and removed at the end."""
        if make not in self._shared:
            self._shared[make] = self._until_the_end.enter_context(make(self))
        made: _Made = self._shared[make]
        return made

    def connect(self, database: Database) -> psycopg.Connection[Any]:
        """A plain connection to the database of `database`, in autocommit, for what is done without cbx."""
        return psycopg.connect(database.target.conninfo or "", autocommit=True)

    def environment(self, database: Database | None = None) -> dict[str, str]:
        """The variables of a command: ours, but of cbx's and Postgres's only what leads to the workbench."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("CBX_", "PG"))}
        # An installed cbx is compiled once, and so is this source unless that is forbidden.
        kept.pop("PYTHONDONTWRITEBYTECODE", None)
        url = {} if database is None else {"CBX_DATABASE_URL": database.target.conninfo or ""}
        return {**kept, **url, "CBX_HOME": str(self.server.home), "CBX_PROJECT": PROJECT}


@contextmanager
def _template(bench: Workbench) -> Iterator[str]:
    """A database with the tables of cbx. To copy it is faster than to make tables again."""
    with bench._created("template1") as name:
        with bench._connected(name) as database:
            add_missing_tables(database)
        yield name


def cbx(*words: str) -> list[str]:
    """The command line that runs `cbx` as its console script does, with this interpreter and this source."""
    return [sys.executable, "-c", "from cardbox_cli.entry import script; script()", *words]


def peer(name: str, *words: str) -> list[str]:
    """The command line that runs a script of `peers/`, with this interpreter."""
    return [sys.executable, str(Path(__file__).parent / "peers" / f"{name}.py"), *words]


def settle(database: Database) -> None:
    """Let the planner know what was just written, and leave no work of it to the runs."""
    database.connection.execute("VACUUM ANALYZE")
    database.connection.execute("CHECKPOINT")
