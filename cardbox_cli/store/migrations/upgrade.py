"""Making the tables of a database, and bringing older ones to the newest version.

First a plan of SQL, which `--dry-run` shows, then its steps; where a run dies, the next one goes on. Alters
no table that another program made.
"""

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from time import sleep
from typing import TYPE_CHECKING

from psycopg import sql

from cardbox_cli.store.migrations.distributing import distributing, project_column
from cardbox_cli.store.migrations.files import Migration, Part, migrations, statements, tables
from cardbox_cli.store.migrations.steps import MOMENT, Announce, Plan, Step, alone, run_all, take
from cardbox_cli.store.migrations.version import newest

if TYPE_CHECKING:
    from cardbox_cli.store.connection.database import Database

_RECORD = sql.SQL("INSERT INTO cbx.schema_version (version) VALUES ({}) ON CONFLICT DO NOTHING;")


def missing_tables(database: "Database") -> dict[str, str]:
    """The tables that do not exist, each with the SQL that makes it, spread where the others are spread."""
    missing = {name: text for name, text in tables().items() if name not in database.tables}
    return {name: "\n".join([text, *_spreading(database, name)]) for name, text in missing.items()}


def plan_upgrade(database: "Database") -> Plan:
    """What `upgrade` would do now. Raises SchemaTooNew for a database that a newer cbx has upgraded."""
    database.forget_tables()
    before = database.check_version() or 0
    pending = migrations(after=before)
    made = {part.table for migration in pending for part in migration.parts}
    ours: dict[str, bool] = dict(database.rows("table_makers", names=[*made, *tables()]))
    built = _built(database, *(index for migration in pending for index in migration.builds))
    steps = [_step(database, migration, ours, built) for migration in pending]
    lost = [
        each
        for name, text in tables().items()
        if name not in ours
        for each in (*statements(text), *_spreading(database, name))
    ]
    if lost:
        steps.append(Step("schema.sql", True, lost))
    return Plan(before, newest(), steps)


def _step(
    database: "Database", migration: Migration, ours: dict[str, bool], built: Mapping[str, bool]
) -> Step:
    """`ours` tells of each table that exists whether cbx made it, and learns what this step makes."""
    todo = []
    for part in migration.parts:
        if part.makes and part.table not in ours:
            ours[part.table] = True
            todo += [*part.statements, *_spreading(database, part.table)]
        elif not part.makes and ours.get(part.table):
            todo += _build(migration.builds, part, built)
    record = _RECORD.format(migration.number).as_string()
    return Step(migration.name, not migration.builds, [*todo, record])


def _spreading(database: "Database", table: str) -> list[str]:
    """What distributes a new table; nothing where tables are not distributed."""
    column = project_column(table)
    return distributing(table, column) if database.sharded and column else []


def _build(indexes: Iterable[str], part: Part, built: Mapping[str, bool]) -> list[str]:
    """A part's statements; of those that build some of these indexes what is still to do.

    `built` are those that there are, and whether each is whole. A whole one is not built again: on Citus, to
    build it if it does not exist breaks it. What is left of a broken one is dropped first.
    """
    of_part = [index for index in indexes if any(_builds(text, index) for text in part.statements)]
    if not of_part:
        return part.statements
    whole = [index for index in of_part if built.get(index)]
    todo = [text for text in part.statements if not any(_builds(text, index) for index in whole)]
    drops = [f"DROP INDEX CONCURRENTLY {index};" for index in of_part if built.get(index) is False]
    # The planner passes a new index on an expression over until it has statistics of it. Whether it has them
    # is not asked: an earlier run may have died just before.
    return [*drops, *todo, f"ANALYZE {part.table};"]


def _builds(statement: str, index: str) -> bool:
    return f" {index.rpartition('.')[2]} ON " in statement


def _built(database: "Database", *indexes: str) -> dict[str, bool]:
    return dict(database.rows("built_indexes", names=list(indexes)))


def add_missing_tables(database: "Database") -> list[str]:
    """Make every table that does not exist, in one transaction; their names. Raises SchemaTooNew."""
    while True:
        with database.transaction():
            database.check_version()
            if database.value("try_lock_schema"):
                database.forget_tables()
                missing = missing_tables(database)
                if database.sharded:
                    # Of what shards are told, each is a statement of its own.
                    database.run("change_shards_one_by_one")
                    run_all(database, [each for text in missing.values() for each in statements(text)])
                else:
                    run_all(database, missing.values())
                database.forget_tables()
                return list(missing)
        sleep(MOMENT)


def upgrade(database: "Database", announce: Announce = lambda text: None) -> Plan:
    """Bring the database to this cbx's schema version; what was done. Waits for others, and announces that.

    Raises SchemaTooNew for a database that a newer cbx has upgraded, UsageError behind a pooler.
    """
    with alone(database, announce):
        plan = plan_upgrade(database)
        for step in plan.steps:
            take(database, step, announce)
        database.forget_tables()
    return plan


def build_index(
    database: "Database", index: str, table: str, statement: str, announce: Announce = lambda text: None
) -> None:
    """Build an index without blocking writers, in place of what is left of a broken attempt.

    `statement` is a CREATE INDEX CONCURRENTLY IF NOT EXISTS. Behind a pooler nothing keeps two from trying.
    """
    with alone(database, announce) if database.direct else nullcontext():
        todo = _build([index], Part(table, False, [statement]), _built(database, index))
        take(database, Step(index, False, todo), announce)
