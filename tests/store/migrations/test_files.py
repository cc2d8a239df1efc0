"""What the numbered files and `schema.sql` must keep to."""

import re
from pathlib import Path

import pytest

from cardbox_cli.store.migrations.files import Migration, migrations, statements, tables
from cardbox_cli.store.migrations.version import FOLDER, newest
from tests.conftest import TABLES
from tests.store.migrations.old import DUMPS, version

ALL = migrations(after=0)


def test_their_numbers_leave_no_gap_and_none_stands_twice() -> None:
    names = [path.name for path in sorted(Path(FOLDER).glob("*.sql"))]
    assert [int(name[:4]) for name in names] == list(range(1, newest() + 1))
    assert [migration.name for migration in ALL] == names


def test_schema_sql_records_the_newest_version_and_makes_every_table() -> None:
    assert list(tables()) == TABLES
    assert f"VALUES ({newest()})" in tables()["cbx.schema_version"]


def test_each_version_before_the_newest_that_was_published_has_its_dump() -> None:
    # 5 and 6 came together, as did 7 to 12, and 13 and 14: no database was ever made that says one of these.
    assert {version(dump) for dump in DUMPS} == set(range(1, newest())) - {5, *range(7, 12), 13}


@pytest.mark.parametrize("migration", ALL, ids=lambda each: each.name)
def test_a_file_says_what_it_is_about_and_can_be_run_again(migration: Migration) -> None:
    texts = [text for part in migration.parts for text in part.statements]
    assert all(part.statements for part in migration.parts)
    assert {part.table for part in migration.parts} <= set(TABLES)
    assert all(text.endswith(";") for text in texts)
    built = [text for text in texts if "CONCURRENTLY" in text]
    assert len(built) == len(migration.builds)
    for text in texts:
        for verb in re.findall(
            r"(?:CREATE (?:TABLE|SCHEMA|(?:UNIQUE )?INDEX)|ADD COLUMN|DROP INDEX)\b.*", text
        ):
            assert re.search(r"\bIF (NOT )?EXISTS\b", verb) or text.startswith("DO $$"), verb


@pytest.mark.parametrize("migration", [each for each in ALL if each.builds], ids=lambda each: each.name)
def test_a_file_without_a_transaction_builds_the_indexes_that_it_names(migration: Migration) -> None:
    built = [(part.table, text) for part in migration.parts for text in part.statements if "INDEX" in text]
    for name, (table, text) in zip(migration.builds, built, strict=True):
        schema, _, index = name.partition(".")
        assert table.startswith(f"{schema}.")
        assert re.match(rf"CREATE INDEX CONCURRENTLY IF NOT EXISTS {index} ON {table}\s", text)


@pytest.mark.parametrize("migration", [each for each in ALL if each.builds], ids=lambda each: each.name)
def test_what_else_a_file_without_a_transaction_says_can_be_said_again(migration: Migration) -> None:
    others = [text for part in migration.parts for text in part.statements if "INDEX" not in text]
    assert all(
        re.sub("^--.*\n", "", text, flags=re.MULTILINE).startswith("CREATE OR REPLACE") for text in others
    )


def test_a_statement_ends_with_the_semicolon_that_ends_a_line() -> None:
    assert statements("-- why\nSELECT ';' ||\n  1;\n\nDO $$ BEGIN\n  x; END $$;\n") == [
        "-- why\nSELECT ';' ||\n  1;",
        "DO $$ BEGIN\n  x; END $$;",
    ]
