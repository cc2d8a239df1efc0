"""The steps of a change to tables: statements that happen whole, or one by one; a plan of them; taking them.

One maker of tables at a time, and nobody waits within a transaction: whoever builds an index CONCURRENTLY
waits for the end of all others.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from time import sleep
from typing import TYPE_CHECKING, NamedTuple

from psycopg import errors

from cardbox_cli.errors import Conflict, UsageError

if TYPE_CHECKING:
    from cardbox_cli.store.connection.database import Database

Announce = Callable[[str], None]

# Seconds between two tries: for a lock that is held for a moment, and for what may take minutes.
MOMENT, _WHILE = 0.05, 1.0


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


def take(database: "Database", step: Step, announce: Announce) -> None:
    """Do what a step says. Where a transaction of somebody else is in the way, try again until it is not."""
    if step.whole:
        obstacle = f"another transaction is in the way of {step.name}"
        _poll(lambda: _take_whole(database, step), announce, obstacle)
    else:
        run_all(database, step.statements)


def _take_whole(database: "Database", step: Step) -> bool:
    """Whether it was done: not where another transaction keeps it waiting for more than a moment."""
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


def run_all(database: "Database", scripts: Iterable[str]) -> None:
    """Execute scripts of ours one after the other."""
    for script in scripts:
        database.script(script)


@contextmanager
def alone(database: "Database", announce: Announce) -> Iterator[None]:
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
