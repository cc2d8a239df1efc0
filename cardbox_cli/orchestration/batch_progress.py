"""The progress of a batch, its join box, and waiting for its end."""

from collections.abc import Callable, Iterator
from datetime import datetime
from time import sleep
from typing import Any

import msgspec

from cardbox_cli.errors import Conflict, WaitTimeout
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.turn_summary import convert, polls
from cardbox_cli.model.execution.batches import Batch, BatchTask
from cardbox_cli.model.ids import unique
from cardbox_cli.orchestration.batch_ends import error_of
from cardbox_cli.orchestration.batch_manager import catch_up
from cardbox_cli.text.command_lines import quote_argument


class TaskProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a child. Its turn has had the state or end status `state` since the time `since`."""

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
    batch: Batch
    tasks: list[TaskProgress]
    now: datetime


def progress_of(runtime: Runtime, batch_id: str) -> Progress:
    """Return the progress of a batch in one snapshot. Raises NotFound."""
    with runtime.database.snapshot():
        batch = runtime.batches.get(batch_id)
        known = runtime.batches.progress(batch_id)
        tasks = [_progress(task, *known[task.task_index]) for task in runtime.batches.tasks(batch_id)]
        return Progress(batch=batch, tasks=tasks, now=runtime.database.now())


def _progress(task: BatchTask, state: Any, steps: int) -> TaskProgress:
    runs = task.status == "dispatched"
    return convert(
        TaskProgress,
        task,
        state=(state or "unknown") if runs else task.status,
        steps=steps,
        since=task.dispatched_at,
        error=error_of(task),
    )


def join_box(runtime: Runtime, batch: Batch) -> str:
    """Return the box with the deliverables of an ended batch in task order. Creates the box if it is missing.

    A child without a deliverable is skipped. Raises Conflict for a running batch.
    """
    if batch.is_running:
        raise Conflict(
            f"batch {batch.batch_id} has not ended, so its deliverables are incomplete",
            hint="wait for the batch with --wait, or with `cbx batch watch`",
        )
    if batch.join_box_id is not None:
        return batch.join_box_id
    with runtime.transaction():
        locked = runtime.batches.lock(batch.batch_id)
        if locked is not None and locked.join_box_id is not None:
            return locked.join_box_id
        card_ids = [task.deliverable_card_id for task in runtime.batches.tasks(batch.batch_id)]
        title = f"what the children of {batch.batch_id} delivered"
        box = runtime.boxes.create(unique(filter(None, card_ids)), title=title, allow_dangling=True)
        return runtime.batches.set_join_box(batch.batch_id, box.box_id)


def poll_batch(
    runtime: Runtime, batch_id: str, *, timeout: float | None, pause: Callable[[float], object] = sleep
) -> Iterator[Progress]:
    """Run the batch's due work and yield its progress, repeatedly until it ends.

    Raises NotFound, and WaitTimeout after `timeout` seconds unless it is None. No transaction is open between
    two polls. `pause` must sleep for at most the given seconds.
    """
    for _ in polls(timeout, pause):
        catch_up(runtime, batch_id)
        progress = progress_of(runtime, batch_id)
        yield progress
        if not progress.batch.is_running:
            return
    raise WaitTimeout(
        f"batch {batch_id} did not end within {timeout:g} s",
        hint=f"the batch continues; watch it with `cbx batch watch {quote_argument(batch_id)}`",
        details={"batch_id": batch_id, "status": progress.batch.status},
    )
