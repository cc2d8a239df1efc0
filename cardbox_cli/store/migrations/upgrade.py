"""Making the tables of a database, and bringing older ones to the newest version.

First a plan of SQL, which `--dry-run` shows, then its steps; where a run dies, the next one goes on. Alters
no table that another program made. One maker at a time, and nobody waits within a transaction: whoever builds
an index CONCURRENTLY waits for the end of all others.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from time import sleep
from typing import TYPE_CHECKING, NamedTuple

from psycopg import errors, sql

from cardbox_cli.errors import Conflict, UsageError
from cardbox_cli.store.migrations.files import Migration, Part, migrations, statements, tables
from cardbox_cli.store.migrations.version import newest

if TYPE_CHECKING:
    from cardbox_cli.store.connection.database import Database

Announce = Callable[[str], None]

# Seconds between two tries: for a lock that is held for a moment, and for what may take minutes.
_MOMENT, _WHILE = 0.05, 1.0
_RECORD = sql.SQL("INSERT INTO cbx.schema_version (version) VALUES ({}) ON CONFLICT DO NOTHING;")


class Step(NamedTuple):
    """Statements that happen whole, or, outside of transactions, one by one, each harmless to repeat."""

    name: str
    whole: bool
    statements: list[str]

    @property
    def script(self) -> str:
        """The step, as psql would run it."""
        all_of_it = ["BEGIN;", *self.statements, "COMMIT;"] if self.whole else self.statements
        return "\n".join([f"-- {self.name}", *all_of_it])


class Plan(NamedTuple):
    """What brings a database from one schema version to another; both may be the same."""

    before: int
    after: int
    steps: list[Step]

    @property
    def script(self) -> str:
        """All of it, as psql would run it."""
        return "\n\n".join(step.script for step in self.steps)


def missing_tables(database: "Database") -> dict[str, str]:
    """The tables that do not exist, each with the SQL that makes it."""
    return {name: text for name, text in tables().items() if name not in database.tables}


def plan_upgrade(database: "Database") -> Plan:
    """What `upgrade` would do now. Raises SchemaTooNew for a database that a newer cbx has upgraded."""
    database.forget_tables()
    before = database.check_version() or 0
    pending = migrations(after=before)
    made = {part.table for migration in pending for part in migration.parts}
    ours: dict[str, bool] = dict(database.rows("table_makers", names=[*made, *tables()]))
    broken = _broken(database, *(migration.builds for migration in pending if migration.builds))
    steps = [_step(migration, ours, broken) for migration in pending]
    lost = [text for name, text in tables().items() if name not in ours]
    if lost:
        steps.append(Step("schema.sql", True, [each for text in lost for each in statements(text)]))
    return Plan(before, newest(), steps)


def _step(migration: Migration, ours: dict[str, bool], broken: set[str]) -> Step:
    """`ours` tells of each table that exists whether cbx made it, and learns what this step makes."""
    todo = []
    for part in migration.parts:
        if part.makes and part.table not in ours:
            ours[part.table] = True
            todo += part.statements
        elif not part.makes and ours.get(part.table):
            todo += _build(migration.builds, part, broken) if migration.builds else part.statements
    record = _RECORD.format(migration.number).as_string()
    return Step(migration.name, migration.builds is None, [*todo, record])


def _build(index: str, part: Part, broken: set[str]) -> list[str]:
    drop = [f"DROP INDEX CONCURRENTLY {index};"] if index in broken else []
    # The planner passes a new index on an expression over until it has statistics of it.
    return [*drop, *part.statements, f"ANALYZE {part.table};"]


def _broken(database: "Database", *indexes: str) -> set[str]:
    return {name for (name,) in database.rows("broken_indexes", names=list(indexes))}


def add_missing_tables(database: "Database") -> list[str]:
    """Make every table that does not exist, in one transaction; their names. Alters none that does.

    Raises SchemaTooNew for a database that a newer cbx has upgraded.
    """
    while True:
        with database.transaction():
            database.check_version()
            if database.value("try_lock_schema"):
                database.forget_tables()
                missing = missing_tables(database)
                _run(database, missing.values())
                database.forget_tables()
                return list(missing)
        sleep(_MOMENT)


def upgrade(database: "Database", announce: Announce = lambda text: None) -> Plan:
    """Bring the database to this cbx's schema version; what was done. Waits for others, and announces that.

    Raises SchemaTooNew for a database that a newer cbx has upgraded, UsageError behind a pooler.
    """
    with _alone(database, announce):
        plan = plan_upgrade(database)
        for step in plan.steps:
            _take(database, step, announce)
        database.forget_tables()
    return plan


def build_index(
    database: "Database", index: str, table: str, statement: str, announce: Announce = lambda text: None
) -> None:
    """Build an index without blocking writers, in place of what is left of a broken attempt.

    `statement` is a CREATE INDEX CONCURRENTLY IF NOT EXISTS. Behind a pooler nothing keeps two from trying.
    """
    with _alone(database, announce) if database.direct else nullcontext():
        todo = _build(index, Part(table, False, [statement]), _broken(database, index))
        _take(database, Step(index, False, todo), announce)


def _take(database: "Database", step: Step, announce: Announce) -> None:
    if step.whole:
        obstacle = f"another transaction is in the way of {step.name}"
        _poll(lambda: _take_whole(database, step), announce, obstacle)
    else:
        _run(database, step.statements)


def _take_whole(database: "Database", step: Step) -> bool:
    """Whether it was done: not where another transaction keeps it waiting for more than a moment."""
    try:
        with database.transaction():
            database.run("give_way")
            _run(database, step.statements)
    except Conflict as exc:
        if not isinstance(exc.__cause__, errors.LockNotAvailable | errors.DeadlockDetected):
            raise
        return False
    return True


def _run(database: "Database", scripts: Iterable[str]) -> None:
    for script in scripts:
        database.script(script)


@contextmanager
def _alone(database: "Database", announce: Announce) -> Iterator[None]:
    """Nobody else makes or changes tables meanwhile. The lock is the session's, and ends with it."""
    if not database.direct:
        raise UsageError(
            "a pooler stands before the database, and this needs a session of its own",
            hint="name the server itself with --database-url",
        )
    _poll(lambda: bool(database.value("try_hold_schema")), announce, "another cbx changes the tables")
    try:
        yield
    finally:
        if database.idle:
            database.run("release_schema")


def _poll(attempt: Callable[[], bool], announce: Announce, obstacle: str) -> None:
    if attempt():
        return
    announce(f"{obstacle}; waiting")
    while not attempt():
        sleep(_WHILE)
