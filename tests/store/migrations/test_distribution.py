"""The SQL that distributes the tables, as `cbx db distribute --dry-run` prints it where none is distributed."""

from pathlib import Path

import pytest

from cardbox_cli.errors import SchemaMissing
from cardbox_cli.store.migrations.distribution import (
    check_distributed,
    distributed_by,
    project_column,
    steps_without,
)
from cardbox_cli.store.migrations.files import newest, tables
from cardbox_cli.store.migrations.steps import MigrationPlan

PINNED = Path(__file__).with_name("distribution.sql")
OF_PROJECTS = {name for name in tables() if project_column(name)}


def test_the_distribution_sql_matches_the_pinned_file() -> None:
    plan = MigrationPlan(newest(), newest(), steps_without(()))
    assert plan.script + "\n" == PINNED.read_text(encoding="utf-8")
    assert set(distributed_by(plan)) == OF_PROJECTS


def test_distributed_tables_are_skipped() -> None:
    left = steps_without(OF_PROJECTS - {"cbx.leases", "public.projects"})
    assert [step.name for step in left] == ["distribute public.projects", "distribute cbx.leases"]


def test_all_tables_with_a_project_are_distributed() -> None:
    assert tables().keys() - OF_PROJECTS == {"cbx.workers", "cbx.schema_version"}


def test_tables_that_this_cbx_distributed_are_accepted() -> None:
    check_distributed(dict.fromkeys(OF_PROJECTS, True), newest())


@pytest.mark.parametrize(
    ("found", "version", "message"),
    [
        (dict.fromkeys(OF_PROJECTS, True), newest() - 1, "have schema version"),
        (dict.fromkeys(OF_PROJECTS - {"cbx.leases"}, True), newest(), "but not cbx.leases"),
        (dict.fromkeys(OF_PROJECTS, True) | {"cbx.turns": False}, newest(), "but not cbx.turns"),
        (dict.fromkeys(OF_PROJECTS, True) | {"cbx.workers": False}, newest(), "cbx.workers must stay"),
    ],
    ids=["older", "one missing", "one copied", "workers copied"],
)
def test_tables_that_another_cbx_distributed_are_refused(
    found: dict[str, bool], version: int, message: str
) -> None:
    with pytest.raises(SchemaMissing, match=message):
        check_distributed(found, version)
