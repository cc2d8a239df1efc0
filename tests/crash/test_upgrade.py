"""`cbx db upgrade` of an artificial next release, killed at every statement: the next run continues."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import psycopg
import pytest
from psycopg import sql

from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.migrations.steps import MigrationStep
from cardbox_cli.store.migrations.upgrade import plan_upgrade
from tests.cli.conftest import succeed
from tests.conftest import Result
from tests.crash.harness import Connection, Scene, Stage, value
from tests.crash.processes import Command, until
from tests.databases import Databases
from tests.foreign.tables import definitions, without_file_numbers
from tests.next_release import AFTER, BEFORE, PARCELS, SCHEMA, WEIGHTS, NextRelease, filled

MakeStage = Callable[..., Stage]

# However many rows there are, they are two numbers, whatever their order and that of the columns.
DATA = sql.SQL("SELECT count(*), sum(hashtextextended(jsonb_strip_nulls(to_jsonb(t))::text, 0)) FROM {} AS t")
FILLED = "SELECT schemaname, relname FROM pg_stat_user_tables WHERE relname <> 'schema_version'"
BUILDING = "SELECT pid FROM pg_stat_progress_create_index WHERE phase LIKE 'waiting for%'"


def defined(connection: Connection) -> dict[str, list[Any]]:
    return without_file_numbers(definitions(connection))


def data(connection: Connection) -> dict[tuple[str, str], Any]:
    names = connection.execute(FILLED).fetchall()
    return {name: connection.execute(DATA.format(sql.Identifier(*name))).fetchone() for name in names}


def next_step(connection: Connection) -> MigrationStep | None:
    steps = plan_upgrade(Database.adopt(connection)).steps
    return steps[0] if steps else None


class Upgrades:
    """`cbx db upgrade` of the next release, in a scene."""

    def __init__(self, release: NextRelease, scene: Scene) -> None:
        self.scene = scene
        self._line = ("python", "-m", "tests.crash.as_next_release", str(release.folder), "db", "upgrade")

    def run(self) -> Result:
        return self.scene.run(*self._line)

    def started(self) -> AbstractContextManager[Command]:
        return self.scene.started(*self._line)

    def stopped(self, point: str) -> AbstractContextManager[Command]:
        return self.scene.stopped(point, *self._line)

    def kill(self, point: str) -> None:
        self.scene.kill(point, *self._line)

    def strike(self, point: str) -> bool:
        return self.scene.strike(point, *self._line)

    def kill_throughout(self, step: MigrationStep) -> MigrationStep:
        """Kill upgrades at every statement of their first step, and around its COMMIT. Returns the rest of it.

        Each of them leaves less of a step that is not whole: an index that is there is not built again.
        """
        number, left = 1, step
        while number <= len(left.statements):
            self.kill(f"script:{number}")
            with self.scene.connection() as connection:
                now = next_step(connection)
            assert now == left or (now is not None and not step.whole and less(now, left))
            number, left = number + (now == left), now
        if step.whole:
            self.kill("commit:1")
        return left


def less(now: MigrationStep, before: MigrationStep) -> bool:
    """True if a step is an earlier one without some of its statements, but with its last two."""
    return (
        now.name == before.name
        and len(now.statements) < len(before.statements)
        and now.statements == [each for each in before.statements if each in now.statements]
        and now.statements[-2:] == before.statements[-2:]
    )


@pytest.mark.parametrize("rows", [1_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_an_upgrade_killed_at_any_statement_continues(
    rows: int, stage: MakeStage, databases: Databases, next_release: NextRelease
) -> None:
    prepared = stage(template=databases.prepared(filled(SCHEMA, rows)))
    with prepared.scene() as scene, next_release.fresh() as fresh:
        upgrades = Upgrades(next_release, scene)
        with scene.connection() as connection:
            kept = data(connection)
        done = []
        while True:
            with scene.connection() as connection:
                before, step = defined(connection), next_step(connection)
            if step is None:
                break
            done.append(step.name)
            left = upgrades.kill_throughout(step)
            with scene.connection() as connection:
                assert next_step(connection) == left
                assert not step.whole or defined(connection) == before
            # Killed after it, or at the first statement of the next; or it was the last.
            if step.whole:
                upgrades.kill("committed:1")
            else:
                upgrades.strike(f"script:{len(left.statements) + 1}")
        assert done == [PARCELS, WEIGHTS]
        succeed(upgrades.run())
        with scene.connection() as connection:
            assert defined(connection) == defined(fresh.connection)
            found = data(connection)
            assert {name: found[name] for name in kept} == kept


def test_a_killed_upgrade_without_a_recorded_version_is_repeated(
    stage: MakeStage, databases: Databases, next_release: NextRelease
) -> None:
    """The version is recorded last, so that a killed run is repeated."""
    lost = f"{SCHEMA}\nDROP TABLE cbx.schema_version, cbx.audit;"
    with stage(template=databases.prepared(lost)).scene() as scene, next_release.fresh() as fresh:
        upgrades = Upgrades(next_release, scene)
        kills = 0
        while upgrades.strike(f"script:{kills + 1}"):
            kills += 1
            with scene.connection() as connection:
                assert Database.adopt(connection).schema_version() is None
        assert kills >= 10
        with scene.connection() as connection:
            assert defined(connection) == defined(fresh.connection)
            assert next_step(connection) is None


def test_an_upgrade_waits_for_another_that_is_running(
    stage: MakeStage, databases: Databases, next_release: NextRelease
) -> None:
    with stage(template=databases.prepared(filled(SCHEMA, 1_000))).scene() as scene:
        upgrades = Upgrades(next_release, scene)
        with upgrades.stopped("script:2") as first, upgrades.started() as second:
            told = second.streams / "err"
            until(lambda: told.exists() and "another cbx changes the tables; waiting" in told.read_text())
            first.go_on()
            assert succeed(first.result()) == f"schema version {AFTER}, was {BEFORE}\n"
            assert succeed(second.result()) == f"schema version {AFTER}\n"
        with scene.connection() as connection:
            assert next_step(connection) is None


def test_an_upgrade_can_be_repeated_after_an_interrupted_index_build(
    stage: MakeStage, databases: Databases, next_release: NextRelease
) -> None:
    prepared = stage(template=databases.prepared(filled(SCHEMA, 1_000)))
    with prepared.scene() as scene, psycopg.connect(scene.conninfo) as writer:
        upgrades = Upgrades(next_release, scene)
        # The first step is done by then: it would wait for the writer.
        upgrades.kill("committed:1")
        writer.execute("DELETE FROM cards WHERE card_id = 'card-1'")
        with (
            upgrades.started() as upgrade,
            psycopg.connect(scene.conninfo, autocommit=True) as watcher,
        ):
            until(lambda: watcher.execute(BUILDING).fetchone())
            value(watcher, "SELECT pg_terminate_backend(pid) FROM pg_stat_progress_create_index")
            assert upgrade.result().code == 7
            assert value(watcher, "SELECT count(*) FROM pg_index WHERE NOT indisvalid") == 1
        writer.rollback()
        writer.close()
        succeed(upgrades.run())
        with scene.connection() as connection:
            assert value(connection, "SELECT count(*) FROM pg_index WHERE NOT indisvalid") == 0
            assert next_step(connection) is None
