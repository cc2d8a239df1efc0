"""The view and progress of a batch for people and scripts, its join box, and waiting for its end."""

from collections.abc import Callable, Iterator
from datetime import datetime
from time import monotonic, sleep
from typing import Any

import msgspec

from cardbox_cli.errors import Conflict, WaitedTooLong
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.execution.batches import IN_PROGRESS, TASK_OPEN, Batch, BatchTask
from cardbox_cli.model.ids import unique
from cardbox_cli.orchestration.batch_ends import error_of, summaries_of
from cardbox_cli.orchestration.batch_manager import catch_up
from cardbox_cli.store.views.batch_views import BatchViews, ForeignBatch, ForeignTask, index_of
from cardbox_cli.text import argument


class BatchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a child; `error` is {code, message}, or None for a success or a running child."""

    task_index: int
    status: str
    summary: str | None
    output_box_id: str | None
    agent_turn_id: str | None
    error: dict[str, str] | None


class BatchView(msgspec.Struct, frozen=True, kw_only=True):
    """A batch and the results of its children, in order. `error` says what ended it before its children."""

    batch_id: str
    status: str
    task_count: int
    deadline_at: datetime | None
    results: list[BatchResult]
    error: dict[str, str] | None
    fail_fast: bool
    parent_turn_id: str | None
    join_box_id: str | None
    created_at: datetime | None
    ended_at: datetime | None


class TaskProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a child. `state` is the state or end status of its turn, since the time `since`."""

    task_index: int
    status: str
    state: str
    steps: int
    agent_id: str
    agent_turn_id: str | None
    since: datetime | None
    ended_at: datetime | None
    error: dict[str, str] | None


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a batch at the time `now`."""

    batch: Batch
    tasks: list[TaskProgress]
    now: datetime


def batch_view(runtime: Runtime, batch: Batch) -> BatchView:
    """Return the view of a batch, within the caller's snapshot."""
    tasks = runtime.batches.tasks(batch.batch_id)
    summaries = summaries_of(runtime, tasks)
    error = None
    if batch.error_code is not None:
        error = {"code": batch.error_code, "message": batch.error or batch.status}
    return BatchView(
        batch_id=batch.batch_id,
        status=batch.status,
        task_count=batch.task_count,
        deadline_at=batch.deadline_at,
        results=[_result(task, summaries.get(task.task_index)) for task in tasks],
        error=error,
        fail_fast=batch.fail_fast,
        parent_turn_id=batch.parent_turn_id,
        join_box_id=batch.join_box_id,
        created_at=batch.created_at,
        ended_at=batch.ended_at,
    )


def foreign_view(views: BatchViews, batch: ForeignBatch) -> BatchView:
    """Return the view of a batch of another system's manager, as far as its rows show."""
    tasks = views.foreign_tasks([batch.batch_id])
    return BatchView(
        batch_id=batch.batch_id,
        status=batch.status,
        task_count=batch.task_count,
        deadline_at=batch.deadline_at,
        results=[_foreign_result(position, task) for position, task in enumerate(tasks)],
        error=None,
        fail_fast=batch.fail_fast,
        parent_turn_id=batch.parent_turn_id,
        join_box_id=None,
        created_at=batch.created_at,
        ended_at=None if batch.status == IN_PROGRESS else batch.updated_at,
    )


def _foreign_result(position: int, task: ForeignTask) -> BatchResult:
    index = index_of(task.task_index)
    failed = task.status not in (*TASK_OPEN, "success") or task.error_detail is not None
    said = task.error_detail or f"the child ended: {task.status}"
    return BatchResult(
        task_index=position if index is None else index,
        status=task.status,
        summary=task.digest if isinstance(task.digest, str) else None,
        output_box_id=task.output_box_id,
        agent_turn_id=task.agent_turn_id,
        error={"code": f"turn_{task.status}", "message": said} if failed else None,
    )


def progress_of(runtime: Runtime, batch_id: str) -> Progress:
    """Return the progress of a batch in one snapshot. Raises NotFound."""
    with runtime.database.snapshot():
        batch = runtime.batches.get(batch_id)
        known = runtime.batches.progress(batch_id)
        tasks = [_progress(task, *known[task.task_index]) for task in runtime.batches.tasks(batch_id)]
        return Progress(batch=batch, tasks=tasks, now=runtime.database.now())


def _result(task: BatchTask, summary: str | None) -> BatchResult:
    return BatchResult(
        task_index=task.task_index,
        status=task.status,
        summary=summary,
        output_box_id=task.output_box_id if task.agent_turn_id else None,
        agent_turn_id=task.agent_turn_id,
        error=error_of(task),
    )


def _progress(task: BatchTask, state: Any, steps: int) -> TaskProgress:
    runs = task.status == "dispatched"
    return TaskProgress(
        task_index=task.task_index,
        status=task.status,
        state=(state or "unknown") if runs else task.status,
        steps=steps,
        agent_id=task.agent_id,
        agent_turn_id=task.agent_turn_id,
        since=task.dispatched_at,
        ended_at=task.ended_at,
        error=error_of(task),
    )


def join_box(runtime: Runtime, batch: Batch) -> str:
    """Return the box with the deliverables of an ended batch in task order, for a reducer; create it if
    missing.

    A child without a deliverable has no card in it. Raises Conflict for a running batch.
    """
    if batch.is_running:
        raise Conflict(
            f"batch {batch.batch_id} has not ended, so its deliverables are incomplete",
            hint="wait for it with --wait, or with `cbx batch watch`",
        )
    if batch.join_box_id is not None:
        return batch.join_box_id
    with runtime.transaction():
        held = runtime.batches.lock(batch.batch_id)
        if held is not None and held.join_box_id is not None:
            return held.join_box_id
        card_ids = [task.deliverable_card_id for task in runtime.batches.tasks(batch.batch_id)]
        title = f"what the children of {batch.batch_id} delivered"
        box = runtime.boxes.create(unique(filter(None, card_ids)), title=title, allow_dangling=True)
        return runtime.batches.point(batch.batch_id, box.box_id)


# Seconds between two polls: at first, and at most.
_MIN_POLL_INTERVAL, _MAX_POLL_INTERVAL = 0.05, 1.0


def looks_at(
    runtime: Runtime, batch_id: str, *, timeout: float | None, pause: Callable[[float], object] = sleep
) -> Iterator[Progress]:
    """Yield the batch's progress after each poll until it ends, doing its due work before each.

    Raises NotFound, and WaitedTooLong after `timeout` seconds (None: never). No transaction is open between
    two polls. `pause` sleeps for the given seconds or less.
    """
    deadline = None if timeout is None else monotonic() + timeout
    interval = _MIN_POLL_INTERVAL
    while True:
        catch_up(runtime, batch_id)
        progress = progress_of(runtime, batch_id)
        yield progress
        if not progress.batch.is_running:
            return
        left = _MAX_POLL_INTERVAL if deadline is None else deadline - monotonic()
        if left <= 0:
            raise WaitedTooLong(
                f"batch {batch_id} did not end within {timeout:g} s",
                hint=f"it continues; watch it with `cbx batch watch {argument(batch_id)}`",
                details={"batch_id": batch_id, "status": progress.batch.status},
            )
        pause(min(interval, left))
        interval = min(interval * 1.3, _MAX_POLL_INTERVAL)
