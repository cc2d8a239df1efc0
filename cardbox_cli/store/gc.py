"""Purging what no reader sees any more: expired cards, soft-deleted ones if asked to, box info without a box.

Works in batches, each a transaction of its own that waits for no writer: what another transaction holds is
passed over and left to the next run. Stopped in the middle it has done whole batches. Boxes are never
changed; the references that then lead nowhere are reported.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.project_store import ProjectStore

BATCH_SIZE = 1000
_NIL = "00000000-0000-0000-0000-000000000000"

Advance = Callable[[int], None]


class Rubbish(msgspec.Struct, frozen=True):
    """How many rows there are, or were, to purge. A deleted card that has expired counts as deleted."""

    expired: int = 0
    deleted: int = 0
    box_info: int = 0

    def __add__(self, other: "Rubbish") -> "Rubbish":
        return Rubbish(
            self.expired + other.expired, self.deleted + other.deleted, self.box_info + other.box_info
        )

    @property
    def total(self) -> int:
        """All rows together."""
        return self.expired + self.deleted + self.box_info


class Dangling(msgspec.Struct, frozen=True):
    """A box, and how many of its places hold the id of no card."""

    project_id: str
    box_id: str
    count: int


class Collector(ProjectStore):
    """The garbage of one project. With `deleted`, soft-deleted cards are garbage too."""

    def find(self, *, deleted: bool) -> Rubbish:
        """What there is to purge now. Counting the deleted cards reads all cards of the project."""
        return Rubbish(
            expired=self._value("count_expired"),
            deleted=self._value("count_deleted") if deleted else 0,
            box_info=self._value("count_orphaned_box_info") if self.database.keeps_box_info else 0,
        )

    def purge(
        self, *, deleted: bool, batch_size: int = BATCH_SIZE, advance: Advance = lambda _: None
    ) -> Rubbish:
        """Purge it; what went. `advance` gets the size of each batch after its commit.

        Must not be called within a transaction: the batches would be none.
        """
        purge = partial(_purge, limit=batch_size, advance=advance)
        return Rubbish(
            expired=purge(partial(self._cards, "purge_expired"), "-infinity"),
            deleted=purge(partial(self._cards, "purge_deleted"), "") if deleted else 0,
            box_info=purge(self._box_info, _NIL) if self.database.keeps_box_info else 0,
        )

    def dangling(self, *, without_expired: bool = False, without_deleted: bool = False) -> list[Dangling]:
        """The boxes with references that lead to no card, most first.

        With `without_…` as it would be if those cards were purged.
        """
        rows = self._rows(
            "dangling_references", without_expired=without_expired, without_deleted=without_deleted
        )
        return [Dangling(self.project_id, box_id, count) for box_id, count in rows]

    def _cards(self, query: str, after: str, limit: int) -> tuple[Any, ...]:
        row = self._row(query, after=after, limit=limit)
        assert row is not None
        return row

    def _box_info(self, after: str, limit: int) -> tuple[int, str | None]:
        with self.database.transaction():
            orphans = self._column("lock_orphaned_box_info", after=after, limit=limit)
            # A box of this id may have come back before the lock was ours; this statement sees it.
            return (self._run("purge_box_info", box_ids=orphans), orphans[-1]) if orphans else (0, None)


def _purge(batch: Callable[[str, int], tuple[Any, ...]], after: str, *, limit: int, advance: Advance) -> int:
    """Purge batch by batch, each of which answers its size and where the next begins, None at the end."""
    purged = 0
    while True:
        count, last = batch(after, limit)
        if last is None:
            return purged
        after = last
        purged += count
        advance(count)


def projects(database: Database) -> list[str]:
    """Every project that the database holds anything of."""
    found = database.column("projects_with_rows")
    if database.keeps_box_info:
        found += database.column("projects_with_box_info")
    return sorted(set(found))
