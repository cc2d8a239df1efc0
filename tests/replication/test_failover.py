"""A primary that dies amid the work of a fleet, and a standby that takes its place."""

from pathlib import Path

from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from tests.crash.test_server_death import kill
from tests.databases import Databases
from tests.execution import history
from tests.execution.fleet import Fleet, Scale
from tests.execution.judging import judge
from tests.replication.standby import NAME, Standby

_SCALE = Scale(workers=2, concurrency=2, agents=8, turns=30, dispatchers=2, troubles=0, seconds=600)


def test_a_synchronous_standby_neither_loses_nor_repeats_work(
    primary: Databases, standby: Standby, seed: str, tmp_path: Path
) -> None:
    name = primary.make()
    with Database.open_target(primary.target(name)) as database:
        history.begin(database)
    primary.admin.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{NAME}'")
    primary.admin.execute("SELECT pg_reload_conf()")
    either, elsewhere = (Target(standby.either(each), "the test", tmp_path) for each in (name, "postgres"))
    fleet = Fleet(either, elsewhere, _SCALE, seed, tmp_path)

    def fail_over(fleet: Fleet) -> None:
        kill(primary.server)
        fleet.wait_until_away()
        standby.promote()
        fleet.wait_until_back()

    fleet.run(in_the_middle=fail_over)
    with Database.open_target(either) as database:
        assert not database.is_replica
        judge(database, fleet)
