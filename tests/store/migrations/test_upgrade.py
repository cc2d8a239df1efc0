"""Databases of earlier schema versions: brought to this one, or refused. An artificial next release upgrades most."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from cardbox_cli.errors import Conflict, SchemaMissing, SchemaTooOld
from cardbox_cli.store.cards import CardStore, index_text
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from cardbox_cli.store.migrations.files import BASELINE, newest, statements
from cardbox_cli.store.migrations.steps import MigrationPlan
from cardbox_cli.store.migrations.upgrade import add_missing_tables, missing_tables, plan_upgrade, upgrade
from tests.conftest import PROJECT, TABLES
from tests.databases import Databases
from tests.foreign.tables import (
    DEPLOYMENT,
    ITS_CARDS,
    LIBRARY,
    definitions,
    of_the_library,
    rows,
    without_file_numbers,
)
from tests.next_release import (
    AFTER,
    BASELINE_SCHEMA,
    BEFORE,
    PARCELS,
    SCHEMA,
    WEIGHTS,
    NextRelease,
    filled,
)

VERSIONS = "cbx.schema_version"
LOCK = "pg_advisory_lock(hashtext('cbx'), hashtext('schema'))"
UNLOCK = "pg_advisory_unlock(hashtext('cbx'), hashtext('schema'))"
UNFINISHED = "CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_cards_weight ON public.cards (tenant_id, (metadata ->> 'weight'))"

Open = Callable[[str], Database]


@pytest.fixture
def made_by(databases: Databases) -> Iterator[Open]:
    """Open a fresh database that a script made."""
    made: list[tuple[str, Database]] = []

    def make(script: str) -> Database:
        name = databases.make(databases.prepared(script))
        made.append((name, Database.connect(databases.target(name))))
        return made[-1][1]

    yield make
    for name, opened in made:
        opened.close()
        databases.drop(name)


@pytest.fixture
def old(made_by: Open, next_release: NextRelease) -> Database:
    """A database of this release, with rows, in a process of the next one."""
    return made_by(filled(SCHEMA, rows=20))


@contextmanager
def neighbour(target: Target) -> Iterator[psycopg.Connection[Any]]:
    """Another connection to the same database."""
    with psycopg.connect(target.conninfo or "", autocommit=True) as connection:
        connection.execute("SET lock_timeout = '20s'")
        yield connection


def defined(database: Database) -> dict[str, list[Any]]:
    return without_file_numbers(definitions(database.connection))


def state(database: Database) -> tuple[Any, ...]:
    """All definitions and rows."""
    return definitions(database.connection), rows(database.connection)


def versions(database: Database) -> list[int]:
    return [number for (number,) in database.connection.execute("SELECT version FROM cbx.schema_version")]


def columns(database: Database, table: str) -> list[str]:
    query = (
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"
    )
    return [name for (name,) in database.connection.execute(query, [table])]


def test_an_upgraded_baseline_equals_a_fresh_database(made_by: Open, database: Database) -> None:
    baseline = made_by(filled(BASELINE_SCHEMA, rows=20))
    plan = upgrade(baseline)
    assert (plan.before, plan.after) == (BASELINE, newest())
    assert defined(baseline) == defined(database)
    assert versions(baseline) == list(range(BASELINE, newest() + 1))


class TestNextRelease:
    def test_an_upgraded_database_equals_a_fresh_one_and_keeps_its_rows(
        self, old: Database, next_release: NextRelease
    ) -> None:
        kept = rows(old.connection)
        plan = upgrade(old)
        assert (plan.before, plan.after, [step.name for step in plan.steps]) == (
            BEFORE,
            AFTER,
            [PARCELS, WEIGHTS],
        )
        with next_release.fresh() as fresh:
            assert defined(old) == defined(fresh)
        found = rows(old.connection)
        for each in ("public.cards", "cbx.turns"):
            # A row ends with the new column, which is empty.
            kept[each] = [f"{row[:-1]},)" for row in kept[each]]
        assert {name: found[name] for name in kept if name != VERSIONS} == {
            name: found for name, found in kept.items() if name != VERSIONS
        }
        assert versions(old) == [BEFORE, BEFORE + 1, AFTER]

    def test_a_database_is_usable_before_its_upgrade(self, old: Database) -> None:
        with Database.open_target(old.target) as opened:
            assert opened.check_version() == BEFORE
            assert CardStore(opened, PROJECT).resolve("card-17") == "card-17"
            opened.refresh_schema()
            opened.script("DROP TABLE cbx.logs")
            opened.clear_table_cache()
            with pytest.raises(SchemaMissing, match=r"no table cbx\.logs") as missing:
                opened.require("cbx.logs")
            assert missing.value.hint == "add it with `cbx db upgrade`"

    def test_a_second_upgrade_changes_nothing(self, old: Database) -> None:
        upgrade(old)
        before = state(old)
        assert upgrade(old) == (AFTER, AFTER, [])
        assert state(old) == before

    def test_the_planner_gets_statistics_of_new_indexes(self, old: Database) -> None:
        upgrade(old)
        [(known,)] = old.connection.execute(
            "SELECT count(*) FROM pg_stats WHERE tablename = 'idx_cards_weight' AND attname <> 'tenant_id'"
        )
        assert known == 1

    def test_the_sql_of_the_plan_has_the_same_effect_as_an_upgrade(
        self, old: Database, next_release: NextRelease
    ) -> None:
        before = state(old)
        plan = plan_upgrade(old)
        assert state(old) == before
        for statement in statements(plan.script):
            old.connection.execute(statement.encode())
        with next_release.fresh() as fresh:
            assert defined(old) == defined(fresh)
        assert plan_upgrade(old).steps == []

    def test_an_empty_database_gets_schema_sql(self, empty_target: Target, next_release: NextRelease) -> None:
        with Database.connect(empty_target) as empty, next_release.fresh() as fresh:
            plan = upgrade(empty)
            assert (plan.before, plan.after, [step.name for step in plan.steps]) == (
                0,
                AFTER,
                ["schema.sql", VERSIONS],
            )
            assert defined(empty) == defined(fresh)
            assert versions(empty) == versions(fresh) == [AFTER]

    def test_missing_tables_are_added_with_the_columns_of_the_release(self, old: Database) -> None:
        assert list(missing_tables(old)) == ["cbx.parcels"]
        old.script("DROP TABLE cbx.turns")
        assert add_missing_tables(old) == ["cbx.turns", "cbx.parcels"]
        assert "parcel_id" in columns(old, "cbx.turns")
        assert add_missing_tables(old) == []


class TestLostObjects:
    @pytest.mark.parametrize("upgraded", [False, True])
    def test_lost_tables_are_created_again(
        self, upgraded: bool, old: Database, next_release: NextRelease
    ) -> None:
        if upgraded:
            upgrade(old)
        old.script("DROP TABLE cbx.audit, cbx.turns, cbx.project_settings")
        assert [step.name for step in upgrade(old).steps][-1] == "schema.sql"
        with next_release.fresh() as fresh:
            assert defined(old) == defined(fresh)

    @pytest.mark.parametrize("loss", ["DELETE FROM cbx.schema_version", "DROP TABLE cbx.schema_version"])
    @pytest.mark.parametrize("upgraded", [False, True])
    def test_a_lost_version_is_recorded_again(
        self, upgraded: bool, loss: str, old: Database, next_release: NextRelease
    ) -> None:
        """The changes are made again, and the version is recorded after them."""
        if upgraded:
            upgrade(old)
        old.script(loss)
        plan = upgrade(old)
        names = [step.name for step in plan.steps]
        assert (plan.before, names[-3:]) == (0, [PARCELS, WEIGHTS, VERSIONS])
        with next_release.fresh() as fresh:
            assert defined(old) == defined(fresh)
        assert versions(old) == [AFTER]

    def test_an_interrupted_index_build_is_completed(self, old: Database, next_release: NextRelease) -> None:
        with neighbour(old.target) as writer:
            writer.execute("BEGIN; DELETE FROM cards WHERE card_id = 'card-1'")
            old.connection.execute("SET statement_timeout = '200ms'")
            with pytest.raises(psycopg.errors.QueryCanceled):
                old.connection.execute(UNFINISHED.encode())
        old.connection.execute("RESET statement_timeout")
        assert [row for row in defined(old)["indexes"] if not row[-1]] != []
        upgrade(old)
        with next_release.fresh() as fresh:
            assert defined(old) == defined(fresh)

    def test_an_index_of_an_interrupted_upgrade_is_not_built_again(self, old: Database) -> None:
        upgrade(old)
        old.script("DROP INDEX public.idx_cards_parcel")
        old.connection.execute("DELETE FROM cbx.schema_version WHERE version = %s", [AFTER])
        [step] = plan_upgrade(old).steps
        built = [text for text in step.statements if text.startswith("CREATE INDEX")]
        assert [text.split()[6] for text in built] == ["idx_cards_parcel"]


class TestConcurrentUpgrades:
    def test_an_upgrade_waits_for_another_without_blocking_indexes(self, old: Database) -> None:
        announced = []
        with neighbour(old.target) as other:
            other.execute(f"SELECT {LOCK}")

            def finish(text: str) -> None:
                announced.append((text, versions(old)))
                other.execute("CREATE INDEX CONCURRENTLY theirs ON cards (created_at)")
                other.execute(f"SELECT {UNLOCK}")

            upgrade(old, finish)
        assert announced == [("another cbx changes the tables; waiting", [BEFORE])]
        assert old.schema_version() == AFTER

    def test_only_one_of_two_simultaneous_upgrades_changes_tables(self, old: Database) -> None:
        plans: list[MigrationPlan] = []
        both = threading.Barrier(2)

        def run() -> None:
            with Database.connect(old.target) as mine:
                both.wait()
                plans.append(upgrade(mine))

        threads = [threading.Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(len(plan.steps) for plan in plans) == [0, 2]
        assert {plan.after for plan in plans} == {AFTER}
        assert versions(old) == [BEFORE, BEFORE + 1, AFTER]

    def test_an_upgrade_that_waits_for_a_table_does_not_block_others(self, old: Database) -> None:
        announced = []
        with neighbour(old.target) as writer, neighbour(old.target) as another:
            writer.execute("BEGIN; LOCK TABLE cbx.turns IN ROW EXCLUSIVE MODE")

            def finish(text: str) -> None:
                announced.append(text)
                another.execute("BEGIN; LOCK TABLE cbx.turns IN ROW EXCLUSIVE MODE; COMMIT")
                writer.execute("COMMIT")

            upgrade(old, finish)
        assert announced == [f"another transaction is in the way of {PARCELS}; waiting"]
        assert versions(old) == [BEFORE, BEFORE + 1, AFTER]

    def test_an_upgrade_fails_on_a_conflict_instead_of_waiting(self, old: Database) -> None:
        old.script("ALTER TABLE cbx.turns ADD COLUMN parcel_id text; UPDATE cbx.turns SET parcel_id = 'same'")
        with pytest.raises(Conflict, match="uniq_turns_parcel"):
            upgrade(old)
        assert versions(old) == [BEFORE]
        old.script("UPDATE cbx.turns SET parcel_id = agent_turn_id")
        assert upgrade(old)[:2] == (BEFORE, AFTER)

    def test_an_upgrade_releases_its_lock(self, old: Database) -> None:
        upgrade(old)
        index_text(old)
        with Database.connect(old.target) as other:
            assert other.value("try_hold_schema")


class TestTablesOfOtherPrograms:
    def test_tables_of_a_card_box_library_stay_unchanged(
        self, made_by: Open, request: pytest.FixtureRequest
    ) -> None:
        shared = made_by(LIBRARY + ITS_CARDS)
        theirs = definitions(shared.connection)
        add_missing_tables(shared)
        assert of_the_library(definitions(shared.connection)) == theirs
        request.getfixturevalue("next_release")
        assert upgrade(shared)[:2] == (BEFORE, AFTER)
        assert of_the_library(definitions(shared.connection)) == theirs
        assert "weight" not in columns(shared, "public.cards")
        assert "parcel_id" in columns(shared, "cbx.turns")

    @pytest.mark.parametrize("make", [upgrade, add_missing_tables])
    def test_a_deployment_gets_only_the_missing_tables(
        self, make: Callable[[Database], object], made_by: Open, next_release: NextRelease
    ) -> None:
        shared = made_by(DEPLOYMENT + ITS_CARDS)
        theirs, filled = definitions(shared.connection), rows(shared.connection)
        make(shared)
        found = definitions(shared.connection)
        assert {
            name: [row for row in each if not row[0].startswith("cbx.")] for name, each in found.items()
        } == theirs
        assert {name: found for name, found in rows(shared.connection).items() if name in filled} == filled
        assert set(TABLES) | {"cbx.parcels"} <= {row[0] for row in found["tables"]}
        assert versions(shared) == [AFTER]
        assert plan_upgrade(shared).steps == []


@pytest.mark.parametrize("version", [1, 8, BASELINE - 1])
class TestVersionsBeforeTheBaseline:
    def test_a_version_before_the_baseline_is_refused_and_left_unchanged(
        self, version: int, database: Database
    ) -> None:
        database.connection.execute("UPDATE cbx.schema_version SET version = %s", [version])
        database.script("DROP TABLE cbx.api_tokens, public.card_boxes")
        before = state(database)
        for refused in (plan_upgrade, upgrade, missing_tables, add_missing_tables):
            with pytest.raises(SchemaTooOld, match=f"schema version {version},"):
                refused(database)
        assert state(database) == before

    def test_no_command_opens_a_version_before_the_baseline(self, version: int, database: Database) -> None:
        database.connection.execute("UPDATE cbx.schema_version SET version = %s", [version])
        with pytest.raises(SchemaTooOld, match=f"schema version {version},"):
            Database.open_target(database.target)
        with pytest.raises(SchemaTooOld, match=f"schema version {version},"):
            database.refresh_schema()
