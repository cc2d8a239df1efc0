"""Batches in Postgres: their parents, the states of their tasks, and the work that is still due.

Methods take part in the caller's transaction. Locks are acquired in one order: the head of a child, its
batch, tasks, the call of the parent. A holder of a batch or a task locks no head.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from cardbox_cli.errors import MissingRight
from cardbox_cli.model.execution.batches import Batch, BatchTask
from cardbox_cli.model.execution.turns import Fence
from cardbox_cli.store.connection.database import jsonb
from cardbox_cli.store.connection.project_store import DateFilter, ProjectStore, require_single
from cardbox_cli.store.connection.tables import BATCHES, write_grant

# Maximum number of due items per query.
MAX_DUE = 500


class BatchFilter(DateFilter, frozen=True, kw_only=True):
    """Filter of a list of batches; None means any."""

    status: str | None = None
    parent_turn_id: str | None = None


class BatchStore(ProjectStore):
    def require(self) -> None:
        """Raise SchemaMissing without the tables of batches, MissingRight if our role may not write them."""
        self._require(*BATCHES)
        if not self.database.keeps_batches:
            role = self.database.role
            what = f"the database role {role!r} may not write the tables {' and '.join(BATCHES)}"
            raise MissingRight(what, hint=write_grant(BATCHES, role))

    # --- beginning

    def add(self, batch: Batch, tasks: Sequence[BatchTask]) -> Batch | None:
        """Insert a batch and its tasks; return the stored batch, or None if its id is taken."""
        stored = self._one(Batch, "insert_batch", **msgspec.structs.asdict(batch))
        if stored is not None:
            rows = jsonb([msgspec.structs.asdict(task) for task in tasks])
            self._run("insert_batch_tasks", tasks=rows)
        return stored

    def lock_due(self, task: BatchTask) -> datetime | None:
        """Lock the head of the task's agent, if any; return the time, or None if the task must wait.

        It must wait if another transaction has locked the head, or if the task is not due.
        """
        key = {"batch_id": task.batch_id, "task_index": task.task_index}
        row = self._row("lock_batch_task", **key, agent_id=task.agent_id)
        now, is_held, due_at = row or (None, False, None)
        return now if is_held and due_at is not None and now is not None and due_at <= now else None

    def due(self, batch_id: str | None) -> list[BatchTask]:
        """Return due tasks of this batch, or of any for None."""
        return self._find_tasks("due_batch_tasks", batch_id, now=self.database.now())

    def record_dispatch(
        self, task: BatchTask, *, agent_turn_id: str, context_box_id: str, output_box_id: str, now: datetime
    ) -> bool:
        """Record the turn that was dispatched for the task; return False if it is no longer pending."""
        key = {"batch_id": task.batch_id, "task_index": task.task_index, "agent_turn_id": agent_turn_id}
        boxes = {"context_box_id": context_box_id, "output_box_id": output_box_id}
        return self._value("dispatch_batch_task", **key, **boxes, now=now) is not None

    def postpone(self, task: BatchTask, next_try_at: datetime, *, error_code: str, error: str) -> None:
        """Record that the dispatch of the task was refused, and when it is due again."""
        key = {"batch_id": task.batch_id, "task_index": task.task_index}
        self._run("put_off_batch_task", **key, next_try_at=next_try_at, error_code=error_code, error=error)

    def fail(self, task: BatchTask, *, error_code: str, error: str) -> None:
        """Record that the task failed without a turn. The caller has locked the batch."""
        key = {"batch_id": task.batch_id, "task_index": task.task_index}
        self._run("fail_batch_task", **key, error_code=error_code, error=error, now=self.database.now())

    def renew_task(self, task: BatchTask, *, agent_turn_id: str | None, output_box_id: str | None) -> bool:
        """Count a new turn for an ended task, or make the task pending for None; False if it has changed."""
        key = {"batch_id": task.batch_id, "task_index": task.task_index, "old_turn_id": task.agent_turn_id}
        new = {"agent_turn_id": agent_turn_id, "output_box_id": output_box_id, "now": self.database.now()}
        return self._value("renew_batch_task", **key, **new) is not None

    def retried_batch(self, batch_id: str) -> str | None:
        """Return the id of the batch that this batch retries, or None."""
        retried: str | None = self._value("batch_retried_by", batch_id=batch_id)
        return retried

    # --- ending

    def lock_of_child(self, agent_turn_id: str) -> Batch | None:
        """Return the running batch of this turn's task, locked until the end of the transaction."""
        return self._one(Batch, "lock_batch_of_child", agent_turn_id=agent_turn_id)

    def end_task(
        self,
        agent_turn_id: str,
        status: str,
        *,
        deliverable_card_id: str | None,
        error_code: str | None,
        error: str | None,
    ) -> None:
        """Record the end of a child, whose batch is locked. After the batch's end it stays canceled."""
        end = {"deliverable_card_id": deliverable_card_id, "error_code": error_code, "error": error}
        now = self.database.now()
        self._run("end_batch_task", agent_turn_id=agent_turn_id, status=status, **end, now=now)

    def end(
        self,
        batch_id: str,
        status: str,
        *,
        error_code: str | None,
        error: str | None,
        open_code: str,
        open_error: str,
    ) -> Batch | None:
        """End the batch, and cancel its open tasks with `open_code`; return None if it has ended already."""
        end = {"batch_id": batch_id, "status": status, "error_code": error_code, "error": error}
        cause = {"open_code": open_code, "open_error": open_error}
        return self._one(Batch, "end_batch", **end, **cause, now=self.database.now())

    def record_report(self, batch_id: str) -> None:
        """Record that the parent's call no longer needs a report of the batch's end."""
        self._run("note_batch_reported", batch_id=batch_id)

    def set_join_box(self, batch_id: str, join_box_id: str) -> str:
        """Record the box of the children's deliverables; return the one that was recorded first."""
        return str(self._value("point_batch", batch_id=batch_id, join_box_id=join_box_id))

    def keep_waiting(self, fence: Fence, deadline: datetime) -> None:
        self._run("extend_suspended", **msgspec.structs.asdict(fence), deadline=deadline)

    # --- looking

    def get(self, batch_id: str) -> Batch:
        batch = self._one(Batch, "batch", batch_id=batch_id)
        return self._require_item(batch, "batch", batch_id, "`cbx batch list` shows the newest")

    def find(self, batch_id: str) -> Batch | None:
        return self._one(Batch, "batch", batch_id=batch_id)

    def lock(self, batch_id: str) -> Batch | None:
        return self._one(Batch, "lock_batch", batch_id=batch_id)

    def lock_by_turn(self, agent_turn_id: str) -> list[Batch]:
        """Return the batches that a turn created, locked until the end of the transaction."""
        return self._all(Batch, "hold_batches_of_turn", agent_turn_id=agent_turn_id)

    def tasks(self, batch_id: str) -> list[BatchTask]:
        """Return the tasks of a batch in order."""
        return self._all(BatchTask, "tasks_of_batch", batch_id=batch_id)

    def progress(self, batch_id: str) -> dict[int, tuple[str | None, int]]:
        """Return by task the state of its turn, or None, and the number of its steps."""
        return {
            index: (state, steps) for index, state, steps in self._rows("batch_progress", batch_id=batch_id)
        }

    def counts(self, batch_id: str) -> dict[str, int]:
        return dict(self._rows("count_batch_tasks", batch_id=batch_id))

    def counts_by_batch(self, batch_ids: Sequence[str]) -> Mapping[str, dict[str, int]]:
        counts: dict[str, dict[str, int]] = {batch_id: {} for batch_id in batch_ids}
        for batch_id, status, count in self._rows("count_tasks_of_batches", batch_ids=list(batch_ids)):
            counts[batch_id][status] = count
        return counts

    def overdue(self, batch_id: str | None) -> list[Batch]:
        """Return the running batches, or this one, whose deadline has passed."""
        now = self.database.now()
        return self._all(Batch, "overdue_batches", batch_id=batch_id, now=now, limit=MAX_DUE)

    def settled_batch_ids(self, batch_id: str | None) -> list[str]:
        """Return the ids of the running batches, or this one, without open tasks."""
        return self._column("settled_batches", batch_id=batch_id, limit=MAX_DUE)

    def abandoned_batches(self, agent_turn_id: str | None) -> list[Batch]:
        """Return the running batches whose parent turn has ended: of this turn, or of any for None."""
        return self._all(Batch, "deserted_batches", agent_turn_id=agent_turn_id, limit=MAX_DUE)

    def unreported_batches(self, agent_turn_id: str | None) -> list[Batch]:
        """Return the ended batches that owe their parent's call a report: of this turn, or of any (None)."""
        return self._all(Batch, "batches_to_report", agent_turn_id=agent_turn_id, limit=MAX_DUE)

    def unrecorded_ends(self, batch_id: str | None) -> list[BatchTask]:
        """Return children of this batch, or of any, whose turn may have ended without updating the task."""
        return self._find_tasks("silent_children", batch_id)

    def tasks_awaiting_stop(self, batch_id: str | None) -> list[BatchTask]:
        """Return children of this batch, or of any, that must still be stopped."""
        return self._find_tasks("children_to_stop", batch_id)

    def newest(self, where: BatchFilter | None = None, *, limit: int | None = None) -> Iterator[Batch]:
        """Yield the batches that match `where`, newest first, reading page by page."""
        self.require()
        return self._list(Batch, "list_batches", where or BatchFilter(), limit, key="batch_id")

    def resolve(self, wanted: str) -> str:
        """Return the full id for an id, or for a unique part of one. Raises NotFound, AmbiguousId."""
        self.require()
        if self.find(wanted) is not None:
            return wanted
        candidates = self._search_ids(wanted, "find_batch_ids", index="cbx.idx_batches_shown")
        return require_single("batch", wanted, candidates, self.project_id)

    def _find_tasks(self, query: str, batch_id: str | None, **more: Any) -> list[BatchTask]:
        return self._all(BatchTask, query, batch_id=batch_id, limit=MAX_DUE, **more)
