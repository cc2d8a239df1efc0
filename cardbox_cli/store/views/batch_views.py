"""Lists of batches: those of cbx, and those of another system's batch manager. Never writes.

That manager runs every due task in its tables, so cbx only reads them.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from heapq import merge
from itertools import islice
from typing import Any, Literal

import msgspec

from cardbox_cli.errors import NotFound
from cardbox_cli.model.execution.batches import TASK_OPEN, Batch
from cardbox_cli.store.connection.project_store import (
    FurtherCount,
    ProjectStore,
    page_parameters,
    read_pages,
    require_single,
)
from cardbox_cli.store.connection.tables import BATCHES, FOREIGN_BATCHES
from cardbox_cli.store.execution.batch_store import BatchFilter, BatchStore


class ForeignBatch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch of another system's manager."""

    batch_id: str
    status: str
    task_count: int
    fail_fast: bool
    parent_turn_id: str | None
    parent_tool_call_id: str | None
    deadline_at: datetime | None
    created_at: datetime | None
    updated_at: datetime | None


class ForeignTask(msgspec.Struct, frozen=True, kw_only=True):
    """A child of a batch of another system's manager. Its metadata may be any JSON."""

    batch_id: str
    task_index: Any
    status: str
    agent_id: str
    agent_turn_id: str | None
    output_box_id: str | None
    error_detail: str | None
    digest: Any


class BatchRow(msgspec.Struct, frozen=True, kw_only=True):
    """A batch in a list. `ended_count` is the number of ended children.

    `manager` names the system that manages the batch: cbx or the other one.
    """

    batch_id: str
    status: str
    task_count: int
    ended_count: int
    parent_turn_id: str | None
    deadline_at: datetime | None
    created_at: datetime | None
    ended_at: datetime | None
    manager: Literal["cbx", "pmo"]


class BatchMembership(msgspec.Struct, frozen=True):
    """The batch and position of a child turn. `task_index` is None if the child's row has no index."""

    batch_id: str | None
    task_index: int | None


class BatchViews(ProjectStore):
    @property
    def _own(self) -> BatchStore | None:
        has_tables = self.database.tables.issuperset(BATCHES)
        return BatchStore(self.database, self.project_id) if has_tables else None

    @property
    def has_foreign(self) -> bool:
        """Return whether this database has the tables of another system's batch manager."""
        return self.database.tables.issuperset(FOREIGN_BATCHES)

    def newest(self, where: BatchFilter, *, limit: int | None = None) -> Iterator[BatchRow]:
        """Yield the batches that match `where`, newest first, reading page by page."""
        where = self._resolve_dates(where)
        own = iter(()) if self._own is None else read_pages(partial(self._page, where), limit=None)
        foreign = read_pages(partial(self._foreign_page, where), limit=None) if self.has_foreign else iter(())
        if self._own is None and not self.has_foreign:
            BatchStore(self.database, self.project_id).require()
        return islice(merge(own, foreign, key=_creation_order, reverse=True), limit)

    def further(self, where: BatchFilter, last: BatchRow) -> FurtherCount:
        """Return how many batches of cbx `newest` would yield after `last`. Does not count other batches."""
        if self._own is None or last.manager != "cbx":
            return FurtherCount(0, not self.has_foreign)
        counted = self._further("count_further_batches", where, last, key="batch_id")
        return FurtherCount(counted.count, counted.all_seen and not self.has_foreign)

    def find_foreign(self, batch_id: str) -> ForeignBatch | None:
        """Return the batch with this id from the other system's manager, or None."""
        return self._one(ForeignBatch, "foreign_batch", batch_id=batch_id) if self.has_foreign else None

    def foreign_tasks(self, batch_ids: Sequence[str]) -> list[ForeignTask]:
        """Return the tasks of these batches of the other system's manager, in order."""
        if not self.has_foreign or not batch_ids:
            return []
        tasks = self._all(ForeignTask, "tasks_of_foreign_batches", batch_ids=list(batch_ids))
        return sorted(tasks, key=lambda task: (task.batch_id, index_or_none(task.task_index) or 0))

    def members(self, turn_ids: Sequence[str]) -> Mapping[str, BatchMembership]:
        """Return the batch and position of each of these turns that is a child of a batch."""
        parameters = {"turn_ids": list(turn_ids)}
        rows = self._rows("foreign_children", **parameters) if self.has_foreign and turn_ids else []
        if self._own is not None and turn_ids:
            rows += self._rows("children_of_batches", **parameters)
        return {turn_id: BatchMembership(batch_id, index_or_none(index)) for turn_id, batch_id, index in rows}

    def get_many(self, batch_ids: Sequence[str]) -> dict[str, BatchRow]:
        """Return those of these batches that exist, by id."""
        rows: dict[str, BatchRow] = {}
        for batch_id in batch_ids:
            batch = None if self._own is None else self._own.find(batch_id)
            foreign = self.find_foreign(batch_id) if batch is None else None
            if batch is not None and self._own is not None:
                rows[batch_id] = _own_row(batch, self._own.counts(batch_id))
            elif foreign is not None:
                rows[batch_id] = _foreign_row(foreign, self.foreign_tasks([batch_id]))
        return rows

    def resolve(self, wanted: str) -> str:
        """Return the full id as `BatchStore.resolve` does, but also for batches of the other system."""
        own = self._own
        if not self.has_foreign:
            return (own or BatchStore(self.database, self.project_id)).resolve(wanted)
        try:
            if own is not None:
                return own.resolve(wanted)
        except NotFound:
            pass
        is_whole = self.find_foreign(wanted) is not None
        candidates = [wanted] if is_whole else self._search_ids(wanted, "find_foreign_batch_ids")
        return require_single("batch", wanted, candidates, self.project_id)

    def _page(self, where: BatchFilter, after: Any, size: int) -> list[BatchRow]:
        batches = self._all(Batch, "list_batches", **page_parameters(where, after, size, key="batch_id"))
        batch_ids = [each.batch_id for each in batches]
        counts = BatchStore(self.database, self.project_id).counts_by_batch(batch_ids)
        return [_own_row(batch, counts[batch.batch_id]) for batch in batches]

    def _foreign_page(self, where: BatchFilter, after: Any, size: int) -> list[BatchRow]:
        place = page_parameters(where, after, size, key="batch_id")
        batches = self._all(ForeignBatch, "list_foreign_batches", **place)
        tasks = self.foreign_tasks([each.batch_id for each in batches])
        return [
            _foreign_row(each, [task for task in tasks if task.batch_id == each.batch_id]) for each in batches
        ]


def index_or_none(value: Any) -> int | None:
    """Return a position from another system's metadata, or None if the value is not an integer."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _creation_order(row: BatchRow) -> tuple[datetime, str]:
    return row.created_at or datetime.min.replace(tzinfo=UTC), row.batch_id


def _own_row(batch: Batch, counts: Mapping[str, int]) -> BatchRow:
    ended_count = sum(count for status, count in counts.items() if status not in TASK_OPEN)
    return _row(batch, "cbx", ended_count, batch.ended_at)


def _foreign_row(batch: ForeignBatch, tasks: Sequence[ForeignTask]) -> BatchRow:
    ended_at = None if batch.status == "running" else batch.updated_at
    return _row(batch, "pmo", sum(task.status not in TASK_OPEN for task in tasks), ended_at)


def _row(
    batch: Batch | ForeignBatch, manager: Literal["cbx", "pmo"], ended_count: int, ended_at: datetime | None
) -> BatchRow:
    return BatchRow(
        batch_id=batch.batch_id,
        status=batch.status,
        task_count=batch.task_count,
        ended_count=ended_count,
        parent_turn_id=batch.parent_turn_id,
        deadline_at=batch.deadline_at,
        created_at=batch.created_at,
        ended_at=ended_at,
        manager=manager,
    )
