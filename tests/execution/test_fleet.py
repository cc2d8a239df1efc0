"""Many workers, agents and turns at once, with workers killed and frozen and notifications dropped.

What is looked at afterwards was written down by triggers of the database. CBX_FLEET_SEED repeats a seed.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from cardbox_cli.store.embedded import EmbeddedServer
from tests.databases import Databases
from tests.execution import history
from tests.execution.fleet import Fleet, Scale
from tests.execution.judging import judge

SMALL = Scale(workers=3, concurrency=3, agents=10, turns=50, dispatchers=3, troubles=4, seconds=600)
LARGE = Scale(workers=8, concurrency=4, agents=200, turns=5000, dispatchers=4, troubles=100, seconds=2400)


@pytest.fixture
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Databases]:
    """A server that can be stopped."""
    databases = Databases(EmbeddedServer(tmp_path_factory.mktemp("cbx-home-fleet")))
    yield databases
    databases.close()


@pytest.mark.parametrize(
    "scale", [SMALL, pytest.param(LARGE, marks=pytest.mark.soak)], ids=["small", "large"]
)
def test_every_turn_ends_once_and_in_order(
    databases: Databases, target: Target, database: Database, seed: str, tmp_path: Path, scale: Scale
) -> None:
    history.begin(database)
    fleet = Fleet(target, databases.target("postgres"), scale, seed, tmp_path)
    fleet.run()
    print(f"{len(fleet.asked)} turns, {fleet.killed} workers killed, {fleet.frozen} frozen", flush=True)
    assert fleet.killed + fleet.frozen == scale.troubles
    judge(database, fleet)


def test_every_turn_ends_once_if_the_server_restarts(
    own_server: Databases, seed: str, tmp_path: Path
) -> None:
    # No worker is killed: one that was would never say that the database is back.
    scale = Scale(workers=2, concurrency=2, agents=8, turns=30, dispatchers=2, troubles=0, seconds=600)
    target = own_server.target(own_server.make())
    with Database.open_target(target) as database:
        history.begin(database)
    fleet = Fleet(target, own_server.target("postgres"), scale, seed, tmp_path)

    def restart(fleet: Fleet) -> None:
        own_server.server.stop()
        fleet.wait_until_away()
        own_server.server.start()
        # Those that have noticed hear of it before the last turn ends, when they are told to leave.
        fleet.wait_until_back()

    fleet.run(in_the_middle=restart)
    with Database.open_target(target) as database:
        judge(database, fleet)
