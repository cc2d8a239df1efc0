"""Real Postgres for every test: one server per worker process, one fresh database per test.

The databases are copies of a template that holds the tables, so that a test costs some 30 ms. A server is
the embedded one, or Debian's PostgreSQL 15 under the same start code.
"""

import gc
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import settings as hypothesis_settings

from cardbox_cli.entry import main
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from cardbox_cli.store.embedded import EmbeddedServer
from cardbox_cli.store.profiles import ProfileStore
from tests.databases import Databases
from tests.foreign.tables import DEPLOYMENT
from tests.packages import debian_postgres_15
from tests.pooled import pooler
from tests.sharded import cluster

# Fixtures and checks that tests of several folders share.
pytest_plugins = ["tests.execution.fixtures", "tests.next_release", "tests.open_connections"]

# What a shell without job control starts in the background ignores SIGINT, what `nohup` starts SIGHUP, and so would
# every command of a test.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, usual)

# How long an example takes is the machine's, and proves nothing.
hypothesis_settings.register_profile("untimed", deadline=None)
hypothesis_settings.load_profile("untimed")

PROJECT = "p"

# The tables of cbx in the order in which they are made.
TABLES = [
    "public.projects",
    "public.cards",
    "public.card_boxes",
    "resource.profiles",
    "resource.project_agents",
    "resource.tools",
    "state.agent_state_head",
    "state.agent_state_pointers",
    "state.agent_inbox",
    "state.execution_edges",
    "state.identity_edges",
    "state.agent_steps",
    "state.turn_waiting_tools",
    "cbx.box_info",
    "cbx.turns",
    "cbx.leases",
    "cbx.workers",
    "cbx.logs",
    "cbx.batches",
    "cbx.batch_tasks",
    "cbx.audit",
    "cbx.project_settings",
    "cbx.chats",
    "cbx.chat_contexts",
    "cbx.chat_runs",
    "cbx.chat_steps",
    "cbx.api_tokens",
    "cbx.schema_version",
]


def roomy_memory() -> str | None:
    """A folder in memory with room for many databases, where there is one: disks are slow at making files."""
    memory = "/dev/shm"
    roomy = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 4 << 30
    return memory if roomy else None


def pytest_xdist_auto_num_workers() -> int:
    """Three for two cores: tests wait for other processes as long as they compute."""
    return max(2, (os.cpu_count() or 1) * 3 // 2)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep what is collected from the garbage collector, which would look through all of it again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def open_folder() -> Iterator[Path]:
    """A folder that every account can enter."""
    with tempfile.TemporaryDirectory(prefix="cbx-test-", dir=roomy_memory()) as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.fixture(scope="session")
def embedded_databases(open_folder: Path) -> Iterator[Databases]:
    databases = Databases(EmbeddedServer(open_folder / "cbx-home"))
    yield databases
    databases.close()


@pytest.fixture(scope="session")
def debian_databases(open_folder: Path) -> Iterator[Databases]:
    databases = Databases(EmbeddedServer(open_folder / "cbx-home-15", binaries=debian_postgres_15()))
    yield databases
    databases.close()


# What tests may run on instead of a server, and which of them do not, by the beginning of their ids.
_EXCLUSIONS = {"shards": cluster.EXCLUSIONS, "pooler": pooler.EXCLUSIONS}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--on",
        choices=tuple(_EXCLUSIONS),
        help=f"run on a Citus cluster, whose database for tests {cluster.URL} names, or through PgBouncer",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if on := config.getoption("--on"):
        for item in items:
            reasons = [reason for begin, reason in _EXCLUSIONS[on].items() if item.nodeid.startswith(begin)]
            if reasons:
                item.add_marker(pytest.mark.skip(reason=f"not on {on}: {reasons[0]}"))


@pytest.fixture(scope="session")
def sharded_databases(open_folder: Path) -> Iterator[cluster.ShardedDatabases]:
    databases = cluster.ShardedDatabases(cluster.cluster_url(), open_folder / "cbx-home-shards")
    yield databases
    databases.close()


@pytest.fixture(scope="session")
def pooled_databases(open_folder: Path) -> Iterator[pooler.PooledDatabases]:
    databases = pooler.PooledDatabases(EmbeddedServer(open_folder / "cbx-home-pooled"), open_folder)
    yield databases
    databases.close()


@pytest.fixture
def databases(request: pytest.FixtureRequest) -> Databases:
    """The server of this test. A module that asks for both servers overrides this."""
    return served(request, "embedded_databases")


def served(request: pytest.FixtureRequest, name: str) -> Databases:
    """The server of this name, or what tests are to run on instead."""
    if on := request.config.getoption("--on"):
        if name == "debian_databases":
            pytest.skip("one version is enough there")
        name = {"shards": "sharded_databases", "pooler": "pooled_databases"}[on]
    found: Databases = request.getfixturevalue(name)
    return found


@pytest.fixture
def target(databases: Databases) -> Iterator[Target]:
    """A fresh database with the tables of cbx."""
    name = databases.make()
    yield databases.target(name)
    databases.drop(name)


@pytest.fixture
def empty_target(databases: Databases) -> Iterator[Target]:
    """A fresh database without any table."""
    name = databases.make("template1")
    yield databases.target(name)
    databases.drop(name)


@pytest.fixture
def foreign_target(databases: Databases) -> Iterator[Target]:
    """A fresh database as an existing deployment has it: no table of cbx's own."""
    name = databases.make(databases.prepared(DEPLOYMENT))
    yield databases.target(name)
    databases.drop(name)


@pytest.fixture
def database(target: Target) -> Iterator[Database]:
    with Database.open_target(target) as opened:
        # What tests say to it themselves names tables as people do; whatever cbx says names their schemas.
        opened.connection.execute("SET search_path = public")
        yield opened


@pytest.fixture
def cards(database: Database) -> CardStore:
    return CardStore(database, PROJECT)


@pytest.fixture
def boxes(database: Database) -> BoxStore:
    return BoxStore(database, PROJECT)


@pytest.fixture
def profiles(database: Database) -> ProfileStore:
    return ProfileStore(database, PROJECT)


@dataclass(frozen=True)
class Result:
    """What a command did: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        """The error that `-o json` printed: the last line of stderr."""
        return json.loads(self.err.strip().splitlines()[-1])["error"]


Cbx = Callable[..., Result]


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The CBX_HOME of this test's command lines. It is not there yet."""
    home = tmp_path_factory.mktemp("state") / "home"
    yield home
    if (home / "embedded.json").exists():
        EmbeddedServer(home).destroy()


@pytest.fixture
def cbx(
    target: Target, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Cbx:
    """Run a command line in this process on the test's database, in project PROJECT."""
    monkeypatch.setenv("CBX_HOME", str(home))
    monkeypatch.setenv("CBX_DATABASE_URL", target.conninfo or "")
    monkeypatch.setenv("CBX_PROJECT", PROJECT)

    def run(*arguments: str) -> Result:
        capsys.readouterr()
        code = main(arguments)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return run


@pytest.fixture
def row_counts(database: Database) -> Callable[[], dict[str, int]]:
    """How many rows every table of the database has."""

    def count() -> dict[str, int]:
        connection: psycopg.Connection[Any] = database.connection
        tables = connection.execute(
            "SELECT format('%I.%I', schemaname, relname) FROM pg_stat_user_tables ORDER BY 1"
        ).fetchall()
        counts = {}
        for (name,) in tables:
            row = connection.execute(f"SELECT count(*) FROM {name}").fetchone()  # noqa: S608  # our own tables
            counts[name] = row[0] if row else 0
        return counts

    return count


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real conversations beside the checkout; tests that need it skip where it is missing."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the real conversations are not beside this checkout")
    return folder
