"""Distribution of the tables over the nodes of a Citus cluster. All rows of a project are on the same node.

The plan is a list of SQL steps, which `--dry-run` prints. Each step distributes one table and its rows in one
transaction. If a run dies, the next run continues. The tables of workers and of the schema version, which
belong to no project, stay on the coordinator.
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
"""The index that keeps card ids unique across projects. Shards cannot have such an index."""

_FIRST_TABLE = "public.cards"
"""The table that is distributed first. The shards of all other tables are stored next to its shards."""

_PROJECT = r"^ +(tenant_id|project_id) +text COLLATE \"C\" (?:NOT NULL|PRIMARY KEY)"
_TRIGGER = r"^CREATE OR REPLACE TRIGGER (\w+)"
_VERB = "distribute "


def plan_distribution(database: SchemaConnection) -> MigrationPlan:
    """Return the steps that `distribute` would take now.

    Raises SchemaMissing without the extension or without tables of this version. Raises Conflict if another
    program created a table.
    """
    if not database.value("engine"):
        hint = "on a Citus cluster: CREATE EXTENSION citus, then SELECT citus_add_node(…) for each node"
        raise SchemaMissing("the database has no sharding extension, and nothing was changed", hint=hint)
    _check_tables(database)
    done = {name for name, spread in database.distributed_tables().items() if spread}
    return MigrationPlan(newest(), newest(), steps_without(done))


def steps_without(done: Collection[str]) -> list[MigrationStep]:
    """Return the steps that distribute the tables of projects except those in `done`."""
    todo = {name: column for name in tables() if name not in done and (column := project_column(name))}
    in_order = sorted(todo, key=lambda name: name != _FIRST_TABLE)
    return [MigrationStep(f"{_VERB}{name}", True, _distributing(name, todo[name])) for name in in_order]


def distributed_by(plan: MigrationPlan) -> list[str]:
    """Return the names of the tables that a plan distributes."""
    return [name for step in plan.steps if (name := step.name.removeprefix(_VERB)) != step.name]


def distribute(database: SchemaConnection, announce: Announce = lambda text: None) -> MigrationPlan:
    """Distribute the tables that are not distributed yet. Announces if it waits for another cbx.

    Returns the executed steps. Raises as `plan_distribution` does, and UsageError behind a pooler.
    """
    with schema_lock(database, announce):
        plan = plan_distribution(database)
        for step in plan.steps:
            execute_step(database, step, announce)
        database.clear_table_cache()
    return plan


def distribution_statements(database: SchemaConnection, table: str) -> list[str]:
    """Return the statements that distribute a new table. Empty if this database is not distributed."""
    column = project_column(table)
    return _distributing(table, column) if database.sharded and column else []


def project_column(table: str) -> str | None:
    """Return the column with the project of each row, or None for a table that belongs to no project."""
    match = re.search(_PROJECT, tables()[table], re.MULTILINE)
    return match and match[1]


def check_distributed(distributed: Mapping[str, bool], version: int | None) -> None:
    """Raise SchemaMissing unless the tables are distributed as `distribute` does it.

    `distributed` is as in `distributed_tables`. `version` is the schema version of the database.
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
    """Return the statements that distribute a table with its rows. They must run in one transaction.

    Citus calls it unsafe to distribute a table with triggers. The trigger of cbx is safe, because it only
    refuses changes. It is disabled while the local copies of the moved rows are deleted.
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
