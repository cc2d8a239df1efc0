"""The commands of docs/operate/databases.md that move the data of a version that this cbx refuses to a new database."""

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cardbox_cli.cli.commands.db import upgrade_database
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from cardbox_cli.store.embedded import EmbeddedServer
from cardbox_cli.store.migrations.files import newest
from cardbox_cli.store.migrations.upgrade import add_missing_tables
from tests.conftest import TABLES
from tests.crash.shells import cbx_for_shells
from tests.foreign.tables import DEPLOYMENT, ITS_CARDS, definitions, of_the_library, without_file_numbers
from tests.store.embedded.helpers import REPOSITORY

Connection = psycopg.Connection[Any]

DOCUMENT = (REPOSITORY / "docs" / "operate" / "databases.md").read_text(encoding="utf-8")
SECTION = DOCUMENT.partition("\n## Move data from version 16 or earlier\n")[2].partition("\n## ")[0]
EMBEDDED, OWN, SHARED = re.findall(r"^```sh\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)

# A value for each column, by its name or else by its type, that the constraints allow.
BY_NAME = {
    "reset_by": "'load'",
    "knowledge_scope": "'boxes'",
    "wait_status": "'waiting'",
    "token_sha256": "sha256('token')",
}
BY_TYPE = {
    "text": "'success'",
    "uuid": "'018f2b64-0000-7000-8000-00000000cafe'",
    "integer": "7",
    "bigint": "7000000000",
    "boolean": "true",
    "jsonb": """'[{"n": 1.10, "text": "naïve \\n\\t"}]'""",
    "timestamp with time zone": "'2026-03-01 10:00:00.123456+00'",
    "integer[]": "'{1,2}'",
}
COLUMNS = """
SELECT attname, format_type(atttypid, NULL) FROM pg_attribute
WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attname
"""


def columns(connection: Connection, table: str) -> dict[str, str]:
    return dict(connection.execute(COLUMNS, [table]).fetchall())


def age(connection: Connection, tables: Sequence[str] = TABLES) -> None:
    """Give each of these tables a row that uses all columns, and the database version 16."""
    for table in tables[:-1]:
        found = columns(connection, table)
        values = {name: BY_NAME.get(name) or BY_TYPE[each] for name, each in found.items()}
        if table == "public.projects":
            values["status"] = "'active'"
        line = f"INSERT INTO {table} ({', '.join(values)}) VALUES ({', '.join(values.values())})"  # noqa: S608  # our own
        connection.execute(line.encode())
    connection.execute("UPDATE cbx.schema_version SET version = 16")


def contents(connection: Connection) -> dict[str, list[Any]]:
    """Return every row of the tables, whatever the order of their columns is."""
    row = "SELECT to_jsonb(t)::text FROM {} AS t ORDER BY 1"
    return {table: connection.execute(row.format(table).encode()).fetchall() for table in TABLES[:-1]}


def versions(connection: Connection) -> list[Any]:
    return connection.execute("SELECT version FROM cbx.schema_version").fetchall()


@pytest.fixture
def paste(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., None]]:
    """Run commands in a shell that stops at the first failure, in a folder for their file."""
    with cbx_for_shells(tmp_path_factory.mktemp("bin") / "bin") as programs:

        def run(commands: str, home: Path, binaries: Path | None = None) -> None:
            kept = {name: value for name, value in os.environ.items() if not name.startswith(("CBX_", "PG"))}
            folders = [
                *([str(binaries)] if binaries else []),
                str(programs),
                str(Path(sys.executable).parent),
            ]
            path = ":".join([*folders, kept["PATH"]])
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", commands],
                cwd=tmp_path,
                env={**kept, "PATH": path, "CBX_HOME": str(home)},
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert done.returncode == 0, done.stderr

        yield run


def test_the_help_of_upgrade_has_the_commands_for_the_embedded_server() -> None:
    _, _, shown = (upgrade_database.command.help or "").partition("\b\n")
    assert textwrap.dedent(shown).strip() == EMBEDDED.strip()


def test_the_commands_move_all_data_of_the_embedded_server(
    open_home: Path, paste: Callable[..., None]
) -> None:
    server = EmbeddedServer(open_home)
    with Database.open_target(Target(None, "embedded", open_home)) as old:
        age(old.connection)
        before = contents(old.connection)
        assert all(map(len, before.values()))
    paste(EMBEDDED, open_home)
    with server.connect() as connection:
        assert contents(connection) == before
        assert versions(connection) == [(newest(),)]


class TestExternalServer:
    """Another server, whose address is given: the embedded one plays it."""

    @pytest.fixture
    def server(self, made_home: Path) -> EmbeddedServer:
        return EmbeddedServer(made_home)

    def database(self, server: EmbeddedServer, name: str) -> Connection:
        return psycopg.connect(server.conninfo(name), autocommit=True)

    def create(self, server: EmbeddedServer, script: str = "") -> Connection:
        """A database `agents` with what a script makes and the tables of cbx, as version 16 had them."""
        with server.connect(autocommit=True) as admin:
            admin.execute("CREATE DATABASE agents")
        with Database.connect(Target(server.conninfo("agents"), "the test", server.home)) as made:
            made.script(script)
            add_missing_tables(made)
        return self.database(server, "agents")

    def test_the_commands_move_all_data_to_a_new_database(
        self, server: EmbeddedServer, paste: Callable[..., None]
    ) -> None:
        with self.create(server) as old:
            age(old)
            before, defined = contents(old), without_file_numbers(definitions(old))
        address = "postgresql://db.example.com"
        commands = OWN.replace(f"{address}/agents_17", server.url("agents_17")).replace(
            f"{address}/agents", server.url("agents")
        )
        assert address not in commands
        paste(commands, server.home, server.status().binaries)
        with self.database(server, "agents_17") as new:
            assert contents(new) == before
            assert without_file_numbers(definitions(new)) == defined
            assert versions(new) == [(newest(),)]

    def test_tables_of_another_program_stay_unchanged(
        self, server: EmbeddedServer, paste: Callable[..., None]
    ) -> None:
        with self.create(server, DEPLOYMENT + ITS_CARDS) as shared:
            theirs = of_the_library(definitions(shared))
            age(shared, [table for table in TABLES if table.startswith("cbx.")])
            shared.execute(
                "CREATE INDEX idx_cards_bigrams ON public.cards USING gin (cbx.bigrams(content::text))"
            )
            before = contents(shared)
        commands = SHARED.replace("postgresql://db.example.com/shared", server.url("agents"))
        paste(commands, server.home, server.status().binaries)
        with self.database(server, "agents") as shared:
            assert contents(shared) == before
            assert of_the_library(definitions(shared)) == theirs
            assert versions(shared) == [(newest(),)]
