"""Purge of rows that no reader sees any more: expired cards, box info without a box, and old stderr of the
commands of turns. On request, it includes deleted cards.

Works in batches. Each batch is a transaction that skips locked rows and leaves them to the next purge. An
interrupted purge has committed whole batches. A purge never changes a box, but reports dangling references.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import msgspec

from cardbox_cli.limits import LOG_AGE, MAX_BOXES_SEARCHED
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.project_store import NO_BOX, ProjectStore
from cardbox_cli.store.execution.turn_store import LogStore

BATCH_SIZE = 1000

Advance = Callable[[int], None]


class PurgeCounts(msgspec.Struct, frozen=True):
    """Numbers of rows to purge, or of purged rows. A deleted card that has expired counts as deleted."""

    expired: int = 0
    deleted: int = 0
    box_info: int = 0
    logs: int = 0

    def __add__(self, other: "PurgeCounts") -> "PurgeCounts":
        mine, others = msgspec.structs.astuple(self), msgspec.structs.astuple(other)
        return PurgeCounts(*(one + more for one, more in zip(mine, others, strict=True)))

    @property
    def total(self) -> int:
        return sum(msgspec.structs.astuple(self))


class DanglingBox(msgspec.Struct, frozen=True):
    """A box, and how many of its positions refer to no card."""

    project_id: str
    box_id: str
    count: int


class GarbageCollector(ProjectStore):
    """The garbage of one project. With `deleted`, it includes soft-deleted cards."""

    def find(self, *, deleted: bool, latest: int | None = MAX_BOXES_SEARCHED.value) -> PurgeCounts:
        """Count the rows to purge now. Counting deleted cards reads all cards of the project.

        Examines the `latest` oldest rows of box info, or all if None.
        """
        return PurgeCounts(
            expired=self._value("count_expired"),
            deleted=self._value("count_deleted") if deleted else 0,
            box_info=self._value("count_orphaned_box_info", latest=latest)
            if self.database.keeps_box_info
            else 0,
            logs=self._value("count_old_logs", before=self._oldest()) if self._logs.writable else 0,
        )

    def purge(
        self, *, deleted: bool, batch_size: int = BATCH_SIZE, advance: Advance = lambda _: None
    ) -> PurgeCounts:
        """Purge the garbage and return the numbers. `advance` gets the size of each batch after its commit.

        Do not call it within a transaction, because that would merge all batches into one.
        """
        purge = partial(_purge, limit=batch_size, advance=advance)
        return PurgeCounts(
            expired=purge(partial(self._purge, "purge_expired"), "-infinity"),
            deleted=purge(partial(self._purge, "purge_deleted"), "") if deleted else 0,
            box_info=purge(self._box_info, NO_BOX) if self.database.keeps_box_info else 0,
            logs=purge(partial(self._purge, "purge_old_logs", before=self._oldest()), "")
            if self._logs.writable
            else 0,
        )

    def dangling(
        self,
        *,
        latest: int | None = MAX_BOXES_SEARCHED.value,
        without_expired: bool = False,
        without_deleted: bool = False,
    ) -> list[DanglingBox]:
        """Return the boxes with dangling references, most references first.

        `without_expired` and `without_deleted` count references as if these cards were purged. Searches the
        `latest` last changed boxes, or all if None.
        """
        visible = {"without_expired": without_expired, "without_deleted": without_deleted}
        rows = self._rows("dangling_references", latest=latest, **visible)
        return [DanglingBox(self.project_id, box_id, count) for box_id, count in rows]

    def _purge(self, query: str, after: str, limit: int, **where: datetime) -> tuple[Any, ...]:
        row = self._row(query, after=after, limit=limit, **where)
        assert row is not None
        return row

    @property
    def _logs(self) -> LogStore:
        return LogStore(self.database, self.project_id)

    def _oldest(self) -> datetime:
        return self.database.now() - timedelta(days=LOG_AGE.value)

    def _box_info(self, after: str, limit: int) -> tuple[int, str | None]:
        with self.database.transaction():
            orphans = self._column("lock_orphaned_box_info", after=after, limit=limit)
            # A box with this id may have been created before we had the lock. This statement sees it.
            return (self._run("purge_box_info", box_ids=orphans), orphans[-1]) if orphans else (0, None)


def _purge(batch: Callable[[str, int], tuple[Any, ...]], after: str, *, limit: int, advance: Advance) -> int:
    """Purge batch by batch. A batch returns its size and the key to continue from, or None at the end."""
    purged = 0
    while True:
        count, last = batch(after, limit)
        if last is None:
            return purged
        after = last
        purged += count
        advance(count)


def projects_with_rows(database: Database) -> list[str]:
    projects = database.column("projects_with_rows")
    if database.keeps_box_info:
        projects += database.column("projects_with_box_info")
    return sorted(set(projects))
