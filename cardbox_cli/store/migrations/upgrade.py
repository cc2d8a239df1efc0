"""Creation of missing tables, and upgrades of older tables to the newest version.

The plan is a list of SQL steps, which `--dry-run` prints. If a run dies, the next run continues. Alters no
table that another program created.
"""

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from time import sleep

from psycopg import sql

from cardbox_cli.store.migrations.distribution import distribution_statements
from cardbox_cli.store.migrations.files import Migration, Part, migrations, newest, statements, tables
from cardbox_cli.store.migrations.steps import (
    MOMENT,
    Announce,
    MigrationPlan,
    MigrationStep,
    SchemaConnection,
    execute_step,
    run_all,
    schema_lock,
)

_VERSIONS = "cbx.schema_version"
_RECORD = sql.SQL("INSERT INTO cbx.schema_version (version) VALUES ({}) ON CONFLICT DO NOTHING;")


def missing_tables(database: SchemaConnection) -> dict[str, str]:
    """Return the SQL that creates each missing table, and distributes it if the others are distributed.

    Raises SchemaTooOld or SchemaTooNew.
    """
    database.check_version()
    existing = _makers(database, tables())
    missing = {name: text for name, text in tables().items() if name not in existing}
    return {
        name: "\n".join([text, *distribution_statements(database, name)]) for name, text in missing.items()
    }


def add_missing_tables(database: SchemaConnection) -> list[str]:
    """Create all missing tables in one transaction. Returns their names. Raises as `missing_tables` does."""
    while True:
        with database.transaction():
            database.check_version()
            if database.value("try_lock_schema"):
                database.clear_table_cache()
                missing = missing_tables(database)
                if database.sharded:
                    # Shards accept one statement at a time.
                    database.run("change_shards_one_by_one")
                    run_all(database, [each for text in missing.values() for each in statements(text)])
                else:
                    run_all(database, missing.values())
                database.clear_table_cache()
                return list(missing)
        sleep(MOMENT)


def plan_upgrade(database: SchemaConnection) -> MigrationPlan:
    """Return the steps that `upgrade` would execute now. Raises SchemaTooOld or SchemaTooNew."""
    database.clear_table_cache()
    before = database.check_version()
    pending = migrations(after=before or 0)
    makers = _makers(database, {*tables(), *(part.table for each in pending for part in each.parts)})
    built = _built(database, *(index for each in pending for index in each.builds))
    plan = _plan_without_version if before is None else _plan_from_version
    steps = plan(database, pending, makers, built)
    return MigrationPlan(before or 0, newest(), [step for step in steps if step.statements])


def upgrade(database: SchemaConnection, announce: Announce = lambda text: None) -> MigrationPlan:
    """Upgrade the database to this cbx's schema version. Announces if it waits for another cbx.

    Returns the executed steps. Raises SchemaTooOld or SchemaTooNew, and UsageError behind a pooler.
    """
    with schema_lock(database, announce):
        plan = plan_upgrade(database)
        for step in plan.steps:
            execute_step(database, step, announce)
        database.clear_table_cache()
    return plan


def build_index(
    database: SchemaConnection, index: str, table: str, statement: str, announce: Announce = lambda text: None
) -> None:
    """Build an index without blocking writers. Replaces the remains of a broken attempt.

    `statement` is a CREATE INDEX CONCURRENTLY IF NOT EXISTS. Behind a pooler, two processes may try at once.
    """
    with schema_lock(database, announce) if database.direct else nullcontext():
        todo = _build([index], Part(table, False, [statement]), _built(database, index))
        execute_step(database, MigrationStep(index, False, todo), announce)


def _plan_from_version(
    database: SchemaConnection, pending: list[Migration], makers: dict[str, bool], built: Mapping[str, bool]
) -> list[MigrationStep]:
    """Return the steps of the pending files, and one that creates tables of `schema.sql` that are missing."""
    steps = []
    for migration in pending:
        todo = _todo(database, migration, makers, built)
        steps.append(MigrationStep(migration.name, not migration.builds, [*todo, _record(migration.number)]))
    lost = [name for name in tables() if name not in makers]
    return [*steps, MigrationStep("schema.sql", True, _making(database, lost))]


def _plan_without_version(
    database: SchemaConnection, pending: list[Migration], makers: dict[str, bool], built: Mapping[str, bool]
) -> list[MigrationStep]:
    """Return steps that create missing tables, change tables that cbx created, and record the version last.

    If a run dies, no version is recorded, and the next run repeats all changes. The pending files must skip
    the new tables, which have the newest form. So these tables count as created by another program.
    """
    missing = [name for name in tables() if name not in makers]
    all_makers = {**dict.fromkeys(missing, False), **makers}
    changes = [
        MigrationStep(each.name, not each.builds, _todo(database, each, all_makers, built))
        for each in pending
    ]
    creation = _making(database, [name for name in missing if name != _VERSIONS])
    # The SQL that creates the table of versions also records the newest version.
    recorded = _making(database, [_VERSIONS]) if _VERSIONS in missing else [_record(newest())]
    return [MigrationStep("schema.sql", True, creation), *changes, MigrationStep(_VERSIONS, True, recorded)]


def _todo(
    database: SchemaConnection, migration: Migration, makers: dict[str, bool], built: Mapping[str, bool]
) -> list[str]:
    """Return the statements of a file that this database needs.

    `makers` has an entry for each existing table, True if cbx created it. Tables that the file creates are
    added.
    """
    todo = []
    for part in migration.parts:
        if part.makes and part.table not in makers:
            makers[part.table] = True
            todo += [*part.statements, *distribution_statements(database, part.table)]
        elif not part.makes and makers.get(part.table):
            todo += _build(migration.builds, part, built)
    return todo


def _making(database: SchemaConnection, names: Iterable[str]) -> list[str]:
    texts = tables()
    return [
        each
        for name in names
        for each in (*statements(texts[name]), *distribution_statements(database, name))
    ]


def _record(number: int) -> str:
    return _RECORD.format(number).as_string()


def _build(indexes: Iterable[str], part: Part, built: Mapping[str, bool]) -> list[str]:
    """Return a part's statements, except those for indexes that are already complete.

    `built` has an entry for each index that exists, True if it is complete. On Citus, CREATE INDEX IF NOT
    EXISTS breaks a complete index. An incomplete index is dropped first.
    """
    of_part = [index for index in indexes if any(_builds(text, index) for text in part.statements)]
    if not of_part:
        return part.statements
    complete = [index for index in of_part if built.get(index)]
    todo = [text for text in part.statements if not any(_builds(text, index) for index in complete)]
    drops = [f"DROP INDEX CONCURRENTLY {index};" for index in of_part if built.get(index) is False]
    # The planner ignores a new index on an expression until ANALYZE. A run may have died between the two.
    return [*drops, *todo, f"ANALYZE {part.table};"]


def _builds(statement: str, index: str) -> bool:
    return f" {index.rpartition('.')[2]} ON " in statement


def _built(database: SchemaConnection, *indexes: str) -> dict[str, bool]:
    return dict(database.rows("built_indexes", names=list(indexes)))


def _makers(database: SchemaConnection, names: Iterable[str]) -> dict[str, bool]:
    return dict(database.rows("table_makers", names=list(names)))
