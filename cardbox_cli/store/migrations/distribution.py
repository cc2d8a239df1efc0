"""Spreading the tables of projects over the nodes of a Citus cluster: by project, all of them colocated.

First a plan of SQL, which `--dry-run` shows, then its steps. A table is distributed in one transaction, with
its rows: where a run dies, the next one goes on. Workers and the schema version, which are of no project,
stay where they are, on the coordinator.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

from cardbox_cli.errors import Conflict, SchemaMissing
from cardbox_cli.store.migrations.distributing import FIRST, distributing, project_column
from cardbox_cli.store.migrations.files import tables
from cardbox_cli.store.migrations.steps import Announce, Plan, Step, alone, take
from cardbox_cli.store.migrations.version import newest

if TYPE_CHECKING:
    from cardbox_cli.store.connection.database import Database

_VERB = "distribute "


def plan_distribution(database: "Database") -> Plan:
    """What `distribute` would do now.

    Raises SchemaMissing without the extension or without tables of this version, Conflict where another
    program made some of them.
    """
    if not database.value("engine"):
        raise SchemaMissing(
            "the database has no sharding extension, and nothing was changed",
            hint="on a Citus cluster: CREATE EXTENSION citus, then SELECT citus_add_node(…) for each node",
        )
    _check_tables(database)
    done = {name for name, spread in database.distributed_tables().items() if spread}
    return Plan(newest(), newest(), steps_without(done))


def steps_without(done: Collection[str]) -> list[Step]:
    """The steps that distribute all tables of projects but those: the first goes first."""
    todo = {name: column for name in tables() if name not in done and (column := project_column(name))}
    in_order = sorted(todo, key=lambda name: name != FIRST)
    return [Step(f"{_VERB}{name}", True, distributing(name, todo[name])) for name in in_order]


def distributed_by(plan: Plan) -> list[str]:
    """The tables that a plan distributes."""
    return [name for step in plan.steps if (name := step.name.removeprefix(_VERB)) != step.name]


def distribute(database: "Database", announce: Announce = lambda text: None) -> Plan:
    """Distribute what is not distributed yet; what was done. Waits for others, and announces that.

    Raises what `plan_distribution` raises, and UsageError behind a pooler.
    """
    with alone(database, announce):
        plan = plan_distribution(database)
        for step in plan.steps:
            take(database, step, announce)
        database.forget_tables()
    return plan


def _check_tables(database: "Database") -> None:
    database.forget_tables()
    for name in tables():
        database.require(name)
    if database.check_version() != newest():
        version = database.check_version()
        raise SchemaMissing(f"the database has schema version {version}", hint="run `cbx db upgrade` first")
    makers = dict(database.rows("table_makers", names=list(tables())))
    foreign = sorted(name for name, ours in makers.items() if not ours)
    if foreign:
        raise Conflict(
            f"another program made {', '.join(foreign)}, and cbx alters none of its tables",
            hint="distribute a database whose tables `cbx db init` made",
        )
