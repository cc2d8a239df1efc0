"""Databases of earlier schema versions, brought to this one."""

from collections.abc import Callable
from typing import Any

import pytest

from cardbox_cli.errors import SchemaMissing
from cardbox_cli.model.identity import ProjectSettings
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import SCHEMA_VERSION, Database
from cardbox_cli.store.projects import ProjectsStore
from cardbox_cli.store.schema import add_missing_tables, upgrade
from tests.conftest import TABLES, Databases
from tests.foreign.tables import (
    CARD_TABLES,
    ITS_CARDS,
    LIBRARY,
    definitions,
    of_the_library,
    without_file_numbers,
)
from tests.store.test_cards import text

# What version 2 did not have.
OLD_TABLES = [*CARD_TABLES, "public.projects", "resource.profiles", "cbx.box_info", "cbx.schema_version"]
NEW_TABLES = [name for name in TABLES if name not in OLD_TABLES]
TO_VERSION_3 = "DROP TABLE cbx.project_settings; UPDATE cbx.schema_version SET version = 3"
RECORD_2 = "UPDATE cbx.schema_version SET version = 2"
TO_VERSION_2 = ";".join([*(f"DROP TABLE {name}" for name in NEW_TABLES), "DROP SCHEMA state", RECORD_2])
# What version 1 did not have.
NEW_INDEXES = ["idx_boxes_suffix", "idx_cards_type"]
RECORD_1 = "UPDATE cbx.schema_version SET version = 1"
TO_VERSION_1 = ";".join([TO_VERSION_2, *(f"DROP INDEX {name}" for name in NEW_INDEXES), RECORD_1])
INDEXES = "SELECT indexname FROM pg_indexes WHERE indexname = ANY(%s) ORDER BY 1"


def new_indexes(database: Database) -> list[str]:
    return [name for (name,) in database.connection.execute(INDEXES, [NEW_INDEXES])]


def of_new_tables(found: dict[str, list[Any]], *, only: bool) -> dict[str, list[Any]]:
    """Those of `definitions` that are about the new tables, or about all others."""
    return {name: [row for row in rows if (row[0] in NEW_TABLES) == only] for name, rows in found.items()}


class TestVersion1:
    def test_it_gets_the_new_tables_and_indexes_and_nothing_else(
        self, database: Database, cards: CardStore, row_counts: Callable[[], dict[str, int]]
    ) -> None:
        cards.add(text("Keep me", "kept"))
        fresh = without_file_numbers(definitions(database.connection))
        database.script(TO_VERSION_1)
        older, rows = definitions(database.connection), row_counts()
        assert new_indexes(database) == []
        assert upgrade(database) == (1, SCHEMA_VERSION)
        newer = definitions(database.connection)
        assert new_indexes(database) == NEW_INDEXES
        assert sorted(newer["indexes"]) == sorted(fresh["indexes"])
        assert {**of_new_tables(newer, only=False), "indexes": []} == {**older, "indexes": []}
        assert without_file_numbers(newer)["columns"] == fresh["columns"]
        assert row_counts() == {**rows, **dict.fromkeys(NEW_TABLES, 0), "cbx.schema_version": 2}
        assert cards.get("kept").card_id == "kept"

    def test_the_planner_gets_statistics_of_them(self, database: Database, cards: CardStore) -> None:
        cards.add(text("Keep me", "kept"))
        database.script(TO_VERSION_1)
        upgrade(database)
        [(known,)] = database.connection.execute(
            "SELECT count(*) FROM pg_stats WHERE tablename = 'idx_cards_type' AND attname <> 'tenant_id'"
        )
        assert known == 1

    def test_again_changes_nothing(self, database: Database) -> None:
        database.script(TO_VERSION_1)
        upgrade(database)
        before = definitions(database.connection)
        assert upgrade(database) == (SCHEMA_VERSION, SCHEMA_VERSION)
        assert definitions(database.connection) == before

    def test_it_is_used_as_it_is_until_then(self, database: Database, cards: CardStore) -> None:
        database.script(TO_VERSION_1)
        cards.add(text("Keep me", "kept"))
        assert database.check_version() == 1
        assert cards.resolve("kept") == "kept"


class TestVersion2:
    def test_it_gets_the_new_tables_as_a_fresh_database_has_them_and_nothing_else(
        self, database: Database, cards: CardStore, row_counts: Callable[[], dict[str, int]]
    ) -> None:
        cards.add(text("Keep me", "kept"))
        fresh = without_file_numbers(definitions(database.connection))
        database.script(TO_VERSION_2)
        older, rows = definitions(database.connection), row_counts()
        assert upgrade(database) == (2, SCHEMA_VERSION)
        newer = definitions(database.connection)
        assert of_new_tables(newer, only=False) == older
        assert of_new_tables(without_file_numbers(newer), only=True) == of_new_tables(fresh, only=True)
        assert row_counts() == {**rows, **dict.fromkeys(NEW_TABLES, 0), "cbx.schema_version": 2}
        assert cards.get("kept").card_id == "kept"

    def test_it_is_used_as_it_is_until_then(self, database: Database, cards: CardStore) -> None:
        database.script(TO_VERSION_2)
        cards.add(text("Keep me", "kept"))
        assert database.check_version() == 2
        assert cards.resolve("kept") == "kept"


class TestVersion3:
    def test_it_gets_a_place_for_settings_and_nothing_else(self, database: Database) -> None:
        fresh = without_file_numbers(definitions(database.connection))
        database.script(TO_VERSION_3)
        assert upgrade(database) == (3, SCHEMA_VERSION)
        assert without_file_numbers(definitions(database.connection)) == fresh

    def test_until_then_settings_are_the_defaults(self, database: Database) -> None:
        database.script(TO_VERSION_3)
        database.forget_tables()
        projects = ProjectsStore(database)
        projects.create("shop", title="shop", owner_id="t")
        assert projects.settings("shop") == ProjectSettings()
        with pytest.raises(SchemaMissing, match=r"no table cbx\.project_settings"):
            projects.configure("shop", enable_share_context=True)


def test_the_tables_of_a_card_box_library_stay_as_they_are(databases: Databases) -> None:
    name = databases.make("template1")
    with Database.connect(databases.target(name)) as database:
        database.script(LIBRARY + ITS_CARDS)
        theirs = definitions(database.connection)
        add_missing_tables(database)
        database.script("UPDATE cbx.schema_version SET version = 1")
        assert upgrade(database) == (1, SCHEMA_VERSION)
        assert of_the_library(definitions(database.connection)) == theirs
    databases.drop(name)
