"""Databases of earlier schema versions, brought to this one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from cardbox_cli.errors import Conflict, SchemaMissing
from cardbox_cli.model.identity import ProjectSettings
from cardbox_cli.store.card_search import index_text
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from cardbox_cli.store.migrations.files import statements
from cardbox_cli.store.migrations.upgrade import add_missing_tables, plan_upgrade, upgrade
from cardbox_cli.store.migrations.version import newest
from cardbox_cli.store.projects import ProjectsStore
from tests.conftest import PROJECT
from tests.databases import Databases
from tests.foreign.tables import (
    ITS_CARDS,
    LIBRARY,
    definitions,
    of_the_library,
    rows,
    without_file_numbers,
)
from tests.store.migrations.old import DUMPS, script, version

VERSIONS = "cbx.schema_version"
SHAPE = """
SELECT (SELECT relnamespace::regnamespace || '.' || relname FROM pg_class WHERE oid = attrelid), attname, format_type(atttypid, atttypmod), attnotnull, attcollation,
    attstorage::text, pg_get_expr(adbin, adrelid)
FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE attnum > 0 AND NOT attisdropped
    AND attrelid IN (SELECT oid FROM pg_class WHERE relkind = 'r' AND relnamespace::regnamespace::text
        IN ('public', 'resource', 'state', 'cbx'))
ORDER BY 1, 2
"""


@pytest.fixture
def at_version(databases: Databases) -> Iterator[Callable[[str], Database]]:
    """Open a fresh database as a dump has it."""
    made: list[tuple[str, Database]] = []

    def make(dump: str) -> Database:
        name = databases.make(databases.prepared(script(dump, rows=20)))
        made.append((name, Database.open_target(databases.target(name))))
        return made[-1][1]

    yield make
    for name, opened in made:
        opened.close()
        databases.drop(name)


@contextmanager
def neighbour(target: Target) -> Iterator[psycopg.Connection[Any]]:
    """Another connection to the same database."""
    with psycopg.connect(target.conninfo or "", autocommit=True) as connection:
        connection.execute("SET lock_timeout = '20s'")
        yield connection


def defined(database: Database) -> dict[str, list[Any]]:
    return without_file_numbers(definitions(database.connection))


def shape(database: Database) -> list[Any]:
    """All that defines the tables but the order of their columns."""
    found = defined(database)
    parts = ("indexes", "constraints", "triggers", "functions")
    return [*database.connection.execute(SHAPE).fetchall(), *(row for part in parts for row in found[part])]


def set_back(database: Database, number: int) -> None:
    """Let the database say that it has an earlier version."""
    database.connection.execute("DELETE FROM cbx.schema_version")
    database.connection.execute("INSERT INTO cbx.schema_version VALUES (%s)", [number])


def versions(database: Database) -> list[int]:
    return [number for (number,) in database.connection.execute("SELECT version FROM cbx.schema_version")]


class TestOldVersions:
    @pytest.mark.parametrize("dump", DUMPS)
    def test_one_becomes_as_a_fresh_one_and_no_row_is_written_again(
        self, dump: str, at_version: Callable[[str], Database], database: Database
    ) -> None:
        old = at_version(dump)
        kept = rows(old.connection)
        plan = upgrade(old)
        assert (plan.before, plan.after) == (version(dump), newest())
        assert defined(old) == defined(database)
        found = rows(old.connection)
        assert {name: found[name] for name in kept if name != VERSIONS} == {
            name: found for name, found in kept.items() if name != VERSIONS
        }
        assert versions(old)[-1 - newest() + version(dump) :] == list(range(version(dump), newest() + 1))

    @pytest.mark.parametrize("dump", DUMPS)
    def test_one_is_used_as_it_is_until_then(self, dump: str, at_version: Callable[[str], Database]) -> None:
        old = at_version(dump)
        assert old.check_version() == version(dump)
        assert CardStore(old, PROJECT).resolve("card-17") == "card-17"

    def test_again_changes_nothing(self, at_version: Callable[[str], Database]) -> None:
        old = at_version("version_1")
        upgrade(old)
        before = definitions(old.connection), rows(old.connection)
        assert upgrade(old) == (newest(), newest(), [])
        assert (definitions(old.connection), rows(old.connection)) == before

    def test_the_planner_gets_statistics_of_new_indexes(self, at_version: Callable[[str], Database]) -> None:
        old = at_version("version_1")
        upgrade(old)
        [(known,)] = old.connection.execute(
            "SELECT count(*) FROM pg_stats WHERE tablename IN ('idx_cards_type', 'idx_boxes_suffix')"
            " AND attname <> 'tenant_id'"
        )
        assert known == 2

    @pytest.mark.parametrize("dump", DUMPS)
    def test_the_plan_is_sql_that_does_the_same(
        self, dump: str, at_version: Callable[[str], Database], database: Database
    ) -> None:
        old = at_version(dump)
        before = definitions(old.connection), rows(old.connection)
        plan = plan_upgrade(old)
        assert (definitions(old.connection), rows(old.connection)) == before
        for statement in statements(plan.script):
            old.connection.execute(statement.encode())
        assert defined(old) == defined(database)
        assert plan_upgrade(old).steps == []

    def test_before_version_4_settings_are_the_defaults(self, at_version: Callable[[str], Database]) -> None:
        projects = ProjectsStore(at_version("version_3"))
        projects.create("shop", title="shop", owner_id="t")
        assert projects.settings("shop") == ProjectSettings()
        with pytest.raises(SchemaMissing, match=r"no table cbx\.project_settings"):
            projects.configure("shop", enable_share_context=True)


def test_an_empty_database_goes_through_all_versions(empty_target: Target, database: Database) -> None:
    with Database.connect(empty_target) as empty:
        assert upgrade(empty)[:2] == (0, newest())
        assert defined(empty) == defined(database)
        assert versions(empty) == list(range(1, newest() + 1))


class TestWhatWasLost:
    def test_an_index_of_the_inbox_and_a_column_of_turns(self, database: Database) -> None:
        fresh = shape(database)
        database.script("DROP INDEX state.idx_inbox_due; ALTER TABLE cbx.turns DROP COLUMN end_status")
        set_back(database, 3)
        assert shape(database) != fresh
        upgrade(database)
        assert shape(database) == fresh

    def test_every_index_and_every_column_that_can_be_empty(self, database: Database) -> None:
        fresh = shape(database)
        database.script("""DO $$ DECLARE lost text; BEGIN
            FOR lost IN SELECT format('DROP INDEX %s', indexrelid::regclass) FROM pg_index
                JOIN pg_class ON pg_class.oid = indrelid
                WHERE NOT indisprimary AND relnamespace::regnamespace::text IN ('public', 'resource', 'state', 'cbx')
                    AND relname NOT LIKE 'chat%' AND relname NOT IN ('batches', 'batch_tasks', 'api_tokens')
            LOOP EXECUTE lost; END LOOP;
            FOR lost IN SELECT format('ALTER TABLE %I.%I DROP COLUMN %I', table_schema, table_name, column_name)
                FROM information_schema.columns
                WHERE (table_schema IN ('state', 'cbx') OR table_name IN ('project_agents', 'tools'))
                    AND table_name NOT IN ('schema_version', 'logs', 'batches', 'batch_tasks', 'api_tokens')
                    AND table_name NOT LIKE 'chat%' AND (is_nullable = 'YES' OR column_default IS NOT NULL)
            LOOP EXECUTE lost; END LOOP; END $$""")
        set_back(database, 4)
        upgrade(database)
        assert shape(database) == fresh

    def test_a_trigger(self, database: Database) -> None:
        fresh = shape(database)
        database.script("DROP FUNCTION cbx.refuse_audit_change CASCADE")
        assert shape(database) != fresh
        set_back(database, 10)
        upgrade(database)
        assert shape(database) == fresh

    @pytest.mark.parametrize("number", [3, newest()])
    def test_a_table(self, number: int, database: Database) -> None:
        fresh = defined(database)
        database.script("DROP TABLE cbx.audit, cbx.project_settings")
        set_back(database, number)
        upgrade(database)
        assert defined(database) == fresh

    def test_the_version(self, database: Database) -> None:
        fresh = defined(database)
        database.script("DELETE FROM cbx.schema_version")
        assert upgrade(database)[:2] == (0, newest())
        assert defined(database) == fresh

    def test_the_rest_of_an_index_whose_building_was_interrupted(
        self, at_version: Callable[[str], Database], database: Database
    ) -> None:
        old = at_version("version_1")
        blocked = "CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_cards_type ON public.cards (tenant_id, (metadata ->> 'type'))"
        with neighbour(old.target) as writer:
            writer.execute("BEGIN; DELETE FROM cards WHERE card_id = 'card-1'")
            old.connection.execute("SET statement_timeout = '200ms'")
            with pytest.raises(psycopg.errors.QueryCanceled):
                old.connection.execute(blocked.encode())
        old.connection.execute("RESET statement_timeout")
        assert [row for row in defined(old)["indexes"] if not row[-1]] != []
        upgrade(old)
        assert defined(old) == defined(database)

    def test_what_an_interrupted_upgrade_has_built_is_not_built_again(self, database: Database) -> None:
        set_back(database, 15)
        database.connection.execute("DROP INDEX public.idx_cards_trace")
        [lists] = [step for step in plan_upgrade(database).steps if step.name.startswith("0016")]
        built = [text for text in lists.statements if text.startswith("CREATE INDEX")]
        assert [text.split()[6] for text in built] == ["idx_cards_trace"]


class TestOneAtATime:
    def test_it_waits_for_another_and_keeps_nobody_from_building_indexes(
        self, database: Database, target: Target
    ) -> None:
        set_back(database, 3)
        announced = []
        with neighbour(target) as other:
            other.execute("SELECT pg_advisory_lock(hashtext('cbx'), hashtext('schema'))")

            def finish(text: str) -> None:
                announced.append((text, versions(database)))
                other.execute("CREATE INDEX CONCURRENTLY theirs ON cards (created_at)")
                other.execute("SELECT pg_advisory_unlock(hashtext('cbx'), hashtext('schema'))")

            upgrade(database, finish)
        assert announced == [("another cbx changes the tables; waiting", [3])]
        assert database.schema_version() == newest()

    def test_whoever_waits_for_a_table_lets_others_pass(self, database: Database, target: Target) -> None:
        set_back(database, 4)
        announced = []
        with neighbour(target) as writer, neighbour(target) as another:
            writer.execute("BEGIN; LOCK TABLE cbx.turns IN ROW EXCLUSIVE MODE")

            def finish(text: str) -> None:
                announced.append(text)
                another.execute("BEGIN; LOCK TABLE cbx.turns IN ROW EXCLUSIVE MODE; COMMIT")
                writer.execute("COMMIT")

            upgrade(database, finish)
        assert announced == ["another transaction is in the way of 0006_complete.sql; waiting"]
        assert versions(database) == list(range(4, newest() + 1))

    def test_what_cannot_be_is_no_reason_to_wait(self, at_version: Callable[[str], Database]) -> None:
        old = at_version("version_3")
        old.script("""DROP INDEX state.idx_agent_inbox_unique;
            UPDATE state.agent_inbox SET correlation_id = 'the same'""")
        with pytest.raises(Conflict, match="idx_agent_inbox_unique"):
            upgrade(old)
        old.script("UPDATE state.agent_inbox SET correlation_id = inbox_id")
        assert upgrade(old)[:2] == (5, newest())

    def test_the_lock_ends_with_it(self, database: Database, target: Target) -> None:
        set_back(database, 4)
        upgrade(database)
        index_text(database)
        with Database.connect(target) as other:
            assert other.value("try_hold_schema")


def test_the_tables_of_a_card_box_library_stay_as_they_are(databases: Databases) -> None:
    name = databases.make(databases.prepared(LIBRARY + ITS_CARDS))
    with Database.connect(databases.target(name)) as database:
        theirs = definitions(database.connection)
        add_missing_tables(database)
        set_back(database, 1)
        assert upgrade(database)[:2] == (1, newest())
        assert of_the_library(definitions(database.connection)) == theirs
    databases.drop(name)
