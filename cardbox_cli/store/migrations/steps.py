"""Changes to tables: a plan of SQL steps, and their execution.

Only one cbx at a time creates or changes tables. It never waits within a transaction, because a CREATE INDEX
CONCURRENTLY waits for the end of all other transactions.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from time import sleep
from typing import Any, NamedTuple, Protocol

from psycopg import errors

from cardbox_cli.errors import Conflict, UsageError

Announce = Callable[[str], None]

# Seconds between two attempts to get a lock: one that is held briefly, and one that may be held for minutes.
MOMENT, _POLL_INTERVAL = 0.05, 1.0


class SchemaConnection(Protocol):
    """The part of a `Database` that creates and changes tables.

    This package cannot import `Database`, which imports it to create the embedded server's tables.
    """

    @property
    def direct(self) -> bool: ...
    @property
    def sharded(self) -> bool: ...
    @property
    def idle(self) -> bool: ...
    def transaction(self) -> AbstractContextManager[None]: ...
    def rows(self, name: str, /, **parameters: Any) -> list[tuple[Any, ...]]: ...
    def value(self, name: str, /, **parameters: Any) -> Any: ...
    def run(self, name: str, /, **parameters: Any) -> int: ...
    def script(self, text: str) -> None: ...
    def check_version(self) -> int | None: ...
    def distributed_tables(self) -> dict[str, bool]: ...
    def clear_table_cache(self) -> None: ...
    def require(self, table: str) -> None: ...


class MigrationStep(NamedTuple):
    """Statements that run in one transaction if `whole`. Otherwise they run outside and are repeatable."""

    name: str
    whole: bool
    statements: list[str]

    @property
    def script(self) -> str:
        lines = ["BEGIN;", *self.statements, "COMMIT;"] if self.whole else self.statements
        return "\n".join([f"-- {self.name}", *lines])


class MigrationPlan(NamedTuple):
    """The steps from one schema version to another, which may be the same."""

    before: int
    after: int
    steps: list[MigrationStep]

    @property
    def script(self) -> str:
        return "\n\n".join(step.script for step in self.steps)


def execute_step(database: SchemaConnection, step: MigrationStep, announce: Announce) -> None:
    """Execute a step. If another transaction holds a lock that a `whole` step needs, retry until it ends."""
    if step.whole:
        obstacle = f"another transaction is in the way of {step.name}"
        _poll(lambda: _take_whole(database, step), announce, obstacle)
    else:
        run_all(database, step.statements)


def _take_whole(database: SchemaConnection, step: MigrationStep) -> bool:
    """Execute a `whole` step. Returns False, and changes nothing, if it cannot get a lock soon."""
    try:
        with database.transaction():
            database.run("give_way")
            if database.sharded:
                database.run("change_shards_one_by_one")
            run_all(database, step.statements)
    except Conflict as exc:
        if not isinstance(exc.__cause__, errors.LockNotAvailable | errors.DeadlockDetected):
            raise
        return False
    return True


def run_all(database: SchemaConnection, scripts: Iterable[str]) -> None:
    for script in scripts:
        database.script(script)


@contextmanager
def schema_lock(database: SchemaConnection, announce: Announce) -> Iterator[None]:
    """Prevent every other cbx from creating or changing tables. The session's end also ends the lock."""
    if not database.direct:
        hint = "pass the server's own address as --database-url"
        raise UsageError("this command does not work through a connection pooler", hint=hint)
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
        sleep(_POLL_INTERVAL)
