"""The rules for `schema.sql` and the numbered files, also for those of an artificial next release."""

import re
from pathlib import Path

import pytest

from cardbox_cli.errors import SchemaTooNew, SchemaTooOld
from cardbox_cli.store.connection.tables import OWN
from cardbox_cli.store.migrations import files
from cardbox_cli.store.migrations.files import (
    BASELINE,
    Migration,
    check_version,
    migrations,
    statements,
    tables,
)
from tests.conftest import TABLES
from tests.next_release import AFTER, BASELINE_SCHEMA, BEFORE, PARCELS, WEIGHTS, NextRelease


def check(migration: Migration) -> None:
    """A file changes tables of `schema.sql`, and can be run again."""
    texts = [text for part in migration.parts for text in part.statements]
    assert texts
    assert all(part.statements for part in migration.parts)
    assert {part.table for part in migration.parts} <= tables().keys()
    assert all(text.endswith(";") for text in texts)
    for text in texts:
        for verb in re.findall(
            r"(?:CREATE (?:TABLE|SCHEMA|(?:UNIQUE )?INDEX)|ADD COLUMN|DROP INDEX)\b.*", text
        ):
            assert re.search(r"\bIF (NOT )?EXISTS\b", verb) or text.startswith("DO $$"), verb


def check_builds(migration: Migration) -> None:
    """A file without a transaction builds the indexes that it names. Its other statements can be repeated."""
    made = [(part.table, text) for part in migration.parts for text in part.statements]
    built = [(table, text) for table, text in made if "INDEX" in text]
    for name, (table, text) in zip(migration.builds, built, strict=True):
        schema, _, index = name.partition(".")
        assert table.startswith(f"{schema}.")
        assert re.match(rf"CREATE INDEX CONCURRENTLY IF NOT EXISTS {index} ON {table}\s", text)
    others = (re.sub("^--.*\n", "", text, flags=re.MULTILINE) for _, text in made if "INDEX" not in text)
    assert all(text.startswith("CREATE OR REPLACE") for text in others)


def check_release(names: list[str]) -> list[Migration]:
    """Check the files of a release, which have these names; what they say."""
    found = migrations(after=0)
    assert [each.name for each in found] == names
    assert [each.number for each in found] == list(range(BASELINE + 1, files.newest() + 1))
    for each in found:
        check(each)
        if each.builds:
            check_builds(each)
        else:
            assert not [text for part in each.parts for text in part.statements if "CONCURRENTLY" in text]
    assert tables()["cbx.schema_version"].endswith(
        f" cbx.schema_version (version) VALUES ({files.newest()}) ON CONFLICT DO NOTHING;"
    )
    return found


def test_the_files_of_this_release_follow_the_rules() -> None:
    check_release([path.name for path in sorted(Path(files.FOLDER).glob("*.sql"))])
    assert list(tables()) == TABLES
    assert tables().keys() == OWN


def test_the_files_of_the_next_release_follow_the_rules(next_release: NextRelease) -> None:
    parcels, weights = check_release(
        [path.name for path in sorted((next_release.folder / "migrations").iterdir())]
    )[-2:]
    assert (parcels.name, parcels.builds) == (PARCELS, ())
    assert [(part.table, part.makes) for part in parcels.parts] == [
        ("cbx.parcels", True),
        ("public.cards", False),
        ("cbx.turns", False),
    ]
    assert (weights.name, len(weights.builds), weights.number) == (WEIGHTS, 3, AFTER)
    assert tables().keys() - TABLES == {"cbx.parcels"}


def test_the_baseline_file_records_the_baseline_version() -> None:
    """The first numbered file needs `baseline.sql`: a copy of `schema.sql` as it was before."""
    recorded = re.findall(r"VALUES \((\d+)\) ON CONFLICT", BASELINE_SCHEMA)
    assert recorded == [str(BASELINE)]


def test_supported_versions_are_accepted() -> None:
    for version in (None, BASELINE, files.newest()):
        check_version(version)


@pytest.mark.parametrize("version", [1, 8, BASELINE - 1])
def test_a_version_before_the_baseline_is_refused(version: int) -> None:
    with pytest.raises(SchemaTooOld, match=f"has schema version {version}, but cbx upgrades only") as old:
        check_version(version)
    assert old.value.hint == "`cbx db upgrade --help` shows the commands that move its data to a new database"


def test_a_version_after_the_newest_is_refused(next_release: NextRelease) -> None:
    check_version(BEFORE)
    check_version(AFTER)
    with pytest.raises(
        SchemaTooNew, match=f"schema version {AFTER + 1}, but this cbx only knows versions up to {AFTER}"
    ):
        check_version(AFTER + 1)


def test_a_statement_ends_at_a_semicolon_at_the_end_of_a_line() -> None:
    assert statements("-- why\nSELECT ';' ||\n  1;\n\nDO $$ BEGIN\n  x; END $$;\n") == [
        "-- why\nSELECT ';' ||\n  1;",
        "DO $$ BEGIN\n  x; END $$;",
    ]
