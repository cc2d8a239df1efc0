"""Distribute the tables of projects over the nodes of a Citus cluster: by project, all of them colocated.

First a plan of SQL, which `--dry-run` prints, then its steps. A table is distributed in one transaction, with
its rows; after a run that died, the next one continues. Workers and the schema version, which belong to no
project, stay on the coordinator.
"""

import re
from collections.abc import Collection, Mapping

from cardbox_cli.errors import Conflict, SchemaMissing
from cardbox_cli.store.migrations.files import newest, tables
from cardbox_cli.store.migrations.steps import (
    Announce,
    MigrationPlan,
    MigrationStep,
    SchemaConnection,
    execute_step,
    schema_lock,
)

GLOBAL_IDS = "public.uniq_cards_card_id"
"""The index that keeps a card's id unique across projects, which no shard can."""

_FIRST_TABLE = "public.cards"
"""The table next to whose shards those of all other tables are stored."""

_PROJECT = r"^ +(tenant_id|project_id) +text COLLATE \"C\" (?:NOT NULL|PRIMARY KEY)"
_TRIGGER = r"^CREATE OR REPLACE TRIGGER (\w+)"
_VERB = "distribute "


def plan_distribution(database: SchemaConnection) -> MigrationPlan:
    """Return the steps that `distribute` would take now.

    Raises SchemaMissing without the extension or without tables of this version, Conflict if another program
    made some of them.
    """
    if not database.value("engine"):
        hint = "on a Citus cluster: CREATE EXTENSION citus, then SELECT citus_add_node(…) for each node"
        raise SchemaMissing("the database has no sharding extension, and nothing was changed", hint=hint)
    _check_tables(database)
    done = {name for name, spread in database.distributed_tables().items() if spread}
    return MigrationPlan(newest(), newest(), steps_without(done))


def steps_without(done: Collection[str]) -> list[MigrationStep]:
    """Return the steps that distribute all other tables of projects. The first table comes first."""
    todo = {name: column for name in tables() if name not in done and (column := project_column(name))}
    in_order = sorted(todo, key=lambda name: name != _FIRST_TABLE)
    return [MigrationStep(f"{_VERB}{name}", True, _distributing(name, todo[name])) for name in in_order]


def distributed_by(plan: MigrationPlan) -> list[str]:
    """Return the names of the tables that a plan distributes."""
    return [name for step in plan.steps if (name := step.name.removeprefix(_VERB)) != step.name]


def distribute(database: SchemaConnection, announce: Announce = lambda text: None) -> MigrationPlan:
    """Distribute the tables that are not distributed yet. Waits for another cbx, and announces that.

    Raises what `plan_distribution` raises, and UsageError behind a pooler.
    """
    with schema_lock(database, announce):
        plan = plan_distribution(database)
        for step in plan.steps:
            execute_step(database, step, announce)
        database.clear_table_cache()
    return plan


def distribution_statements(database: SchemaConnection, table: str) -> list[str]:
    """Return the statements that distribute a new table, none if tables are not distributed here."""
    column = project_column(table)
    return _distributing(table, column) if database.sharded and column else []


def project_column(table: str) -> str | None:
    """Return the column that holds the project of every row, None for a table that belongs to no project."""
    match = re.search(_PROJECT, tables()[table], re.MULTILINE)
    return match and match[1]


def check_distributed(distributed: Mapping[str, bool], version: int | None) -> None:
    """Raise SchemaMissing unless tables are distributed as this cbx would do it.

    `distributed` has the extension's tables, True if spread over shards; `version` is the database's.
    """
    if version != newest():
        what = f"the distributed tables have schema version {version}, but this cbx needs {newest()} there"
        raise SchemaMissing(what, hint="run `cbx db upgrade`")
    of_projects = {name for name in tables() if project_column(name)}
    missing = sorted(of_projects - {name for name, spread in distributed.items() if spread})
    if missing:
        hint = "finish it with `cbx db distribute`"
        raise SchemaMissing(f"some tables are distributed, but not {', '.join(missing)}", hint=hint)
    copied = sorted(distributed.keys() & (tables().keys() - of_projects))
    if copied:
        what = f"{', '.join(copied)} must stay on the coordinator, but the nodes have copies"
        raise SchemaMissing(what, hint=f"run `SELECT undistribute_table('{copied[0]}')`")


def _distributing(table: str, column: str) -> list[str]:
    """Return the statements that distribute a table with its rows. They belong in one transaction.

    Citus calls it unsafe to distribute a table with triggers. The trigger of cbx only refuses changes, on
    every shard; it would also refuse to remove the local copies of the rows that moved.
    """
    colocated = "none" if table == _FIRST_TABLE else _FIRST_TABLE
    triggers = re.findall(_TRIGGER, tables()[table], re.MULTILINE)
    return [
        *([f"DROP INDEX IF EXISTS {GLOBAL_IDS};"] if table == _FIRST_TABLE else []),
        *(["SET LOCAL citus.enable_unsafe_triggers = on;"] if triggers else []),
        f"SELECT create_distributed_table('{table}', '{column}', colocate_with => '{colocated}');",
        *(f"ALTER TABLE {table} DISABLE TRIGGER {name};" for name in triggers),
        f"SELECT truncate_local_data_after_distributing_table('{table}');",
        *(f"ALTER TABLE {table} ENABLE TRIGGER {name};" for name in triggers),
    ]


def _check_tables(database: SchemaConnection) -> None:
    database.clear_table_cache()
    for name in tables():
        database.require(name)
    version = database.check_version()
    if version != newest():
        raise SchemaMissing(f"the database has schema version {version}", hint="run `cbx db upgrade` first")
    makers = dict(database.rows("table_makers", names=list(tables())))
    foreign = sorted(name for name, is_ours in makers.items() if not is_ours)
    if foreign:
        raise Conflict(
            f"another program created {', '.join(foreign)}, and cbx does not alter tables of other programs",
            hint="use a database whose tables `cbx db init` created",
        )
