"""Purging what no reader sees any more: expired cards, soft-deleted ones if asked to, box info without a box.

Works in batches, each a transaction of its own that waits for no writer: what another transaction holds is
passed over and left to the next run. Stopped in the middle it has done whole batches. Boxes are never
changed; the references that then lead nowhere are reported.
"""

from collections.abc import Callable

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
        return Rubbish(
            expired=self._purge_cards("purge_expired", "-infinity", batch_size, advance),
            deleted=self._purge_cards("purge_deleted", "", batch_size, advance) if deleted else 0,
            box_info=self._purge_box_info(batch_size, advance) if self.database.keeps_box_info else 0,
        )

    def dangling(self, *, without_expired: bool = False, without_deleted: bool = False) -> list[Dangling]:
        """The boxes with references that lead to no card, most first.

        With `without_…` as it would be if those cards were purged.
        """
        rows = self._rows(
            "dangling_references", without_expired=without_expired, without_deleted=without_deleted
        )
        return [Dangling(self.project_id, box_id, count) for box_id, count in rows]

    def _purge_cards(self, query: str, after: str, batch_size: int, advance: Advance) -> int:
        purged = 0
        while True:
            row = self._row(query, after=after, limit=batch_size)
            assert row is not None
            count, last = row
            if not count:
                return purged
            after = last
            purged += count
            advance(count)

    def _purge_box_info(self, batch_size: int, advance: Advance) -> int:
        purged = 0
        after = _NIL
        while True:
            with self.database.transaction():
                orphans = self._column("lock_orphaned_box_info", after=after, limit=batch_size)
                # A box of this id may have come back before the lock was ours; this statement sees it.
                count = self._run("purge_box_info", box_ids=orphans) if orphans else 0
            if not orphans:
                return purged
            after = orphans[-1]
            purged += count
            advance(count)


def projects(database: Database) -> list[str]:
    """Every project that the database holds anything of."""
    found = database.column("projects_with_rows")
    if database.keeps_box_info:
        found += database.column("projects_with_box_info")
    return sorted(set(found))
