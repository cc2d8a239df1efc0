"""Fleets behind PgBouncer in transaction mode: more slots than connections, and a pooler that is restarted."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.embedded import EmbeddedServer
from tests.execution import history
from tests.execution.fleet import Fleet, Scale
from tests.execution.judging import judge
from tests.pooled.pooler import PooledDatabases

_SIXTEEN_SLOTS = Scale(workers=2, concurrency=8, agents=10, turns=50, dispatchers=2, troubles=2, seconds=600)
# No worker is killed: one that was would never say that the database is back.
_CALM = Scale(workers=2, concurrency=2, agents=8, turns=30, dispatchers=2, troubles=0, seconds=600)


@pytest.fixture
def narrow(open_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PooledDatabases]:
    """A server of its own behind a pooler that has two connections to each database."""
    server = EmbeddedServer(tmp_path_factory.mktemp("cbx-home-narrow"))
    # A worker that is frozen amid its transactions would keep both for ever.
    databases = PooledDatabases(server, open_folder, size=2, idle=5)
    yield databases
    databases.close()


def run(
    databases: PooledDatabases,
    scale: Scale,
    seed: str,
    folder: Path,
    in_the_middle: Callable[[Fleet], None] | None = None,
) -> None:
    """Run a fleet through the pooler; what its writers are called the pooler does not tell the server."""
    target = databases.target(databases.make())
    with Database.open_target(target) as database:
        history.begin(database)
    fleet = Fleet(target, databases.target("postgres"), scale, seed, folder)
    fleet.run(in_the_middle)
    assert fleet.killed + fleet.frozen == scale.troubles
    with Database.open_target(target) as database:
        assert not database.direct
        judge(database, fleet)


def test_two_connections_serve_sixteen_slots(narrow: PooledDatabases, seed: str, tmp_path: Path) -> None:
    run(narrow, _SIXTEEN_SLOTS, seed, tmp_path)


def test_a_fleet_survives_a_restart_of_the_pooler(narrow: PooledDatabases, seed: str, tmp_path: Path) -> None:
    pooler = narrow.pooler

    def restart(fleet: Fleet) -> None:
        pooler.stop()
        fleet.wait_until_away()
        pooler.start()
        fleet.wait_until_back()

    run(narrow, _CALM, seed, tmp_path, restart)
