"""The one database of a Citus cluster that tests may have, distributed by project, and emptied for each of them.

`CBX_TEST_CITUS_URL` names it, at the coordinator; its name has "test" in it, for all that is in it goes. Nothing
of this project makes the cluster.
"""

import os
import tomllib
from pathlib import Path
from typing import NoReturn

import psycopg
import pytest

from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from cardbox_cli.store.migrations.distribution import distribute
from cardbox_cli.store.migrations.files import tables
from cardbox_cli.store.migrations.upgrade import add_missing_tables

URL = "CBX_TEST_CITUS_URL"
CRASH = "CBX_TEST_CITUS_CRASH"
WITHOUT = f"no Citus cluster: {URL} names none (CI has none, for no package of Debian's brings one)"

EXCLUSIONS: dict[str, str] = tomllib.loads(
    Path(__file__).with_name("exclusions.toml").read_text(encoding="utf-8")
)
"""The tests that do not run on shards, by the beginning of their ids, each with the reason."""


def cluster_url() -> str:
    """The address of the database. Skips without one, also where packages are required: it is none."""
    url = os.environ.get(URL, "")
    if not url:
        pytest.skip(WITHOUT)
    return url


class ShardedDatabases:
    """What `Databases` of the conftest is to tests, on the one database that there is."""

    def __init__(self, url: str, home: Path) -> None:
        self._target = Target(url, "the test", home)
        name = psycopg.conninfo.conninfo_to_dict(url).get("dbname")
        assert "test" in str(name), (
            f"tests empty the database that {URL} names: it is to have 'test' in its name"
        )
        self._name = str(name)
        self._database = Database.connect(self._target)
        self._complete()
        self._made_for: str | None = None

    def target(self, _: str) -> Target:
        return self._target

    def make(self, template: str | None = None) -> str:
        """The database, emptied."""
        test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
        if template is not None or test == self._made_for:
            _one_database()
        self._made_for = test
        self._complete()
        connection = self._database.connection
        connection.execute(f"ALTER DATABASE {self._name} RESET ALL".encode())
        with connection.transaction():
            # The triggers that refuse it are on the nodes, too.
            connection.execute("SET LOCAL citus.propagate_set_commands = 'local'")
            connection.execute("SET LOCAL session_replication_role = replica")
            connection.execute("SET LOCAL lock_timeout = '20s'")
            for table in tables():
                if table != "cbx.schema_version":
                    connection.execute(f"DELETE FROM {table}".encode())  # noqa: S608  # our own tables
        return self._name

    def _complete(self) -> None:
        """Make what is not there, as at the very first, or after a test that took tables away."""
        database = self._database
        database.clear_table_cache()
        if not database.tables.issuperset(tables()):
            add_missing_tables(database)
            distribute(database)

    def drop(self, _: str) -> None:
        """It stays, as the test left it: whoever comes next empties it."""

    def prepared(self, _: str) -> NoReturn:
        _one_database()

    @property
    def server(self) -> NoReturn:
        pytest.skip("this test needs a server of its own")

    @property
    def admin(self) -> NoReturn:
        pytest.skip("this test needs a server of its own")

    def close(self) -> None:
        self._database.close()


def _one_database() -> NoReturn:
    pytest.skip("a cluster has one database for all tests, and this one needs its own")
