"""How far a batch is, the wait for its end, and the box that joins what its children delivered."""

from collections.abc import Callable, Iterator
from datetime import datetime
from time import monotonic, sleep
from typing import Any

import msgspec

from cardbox_cli.errors import Conflict, WaitedTooLong
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.execution.batches import Batch, BatchTask
from cardbox_cli.model.ids import unique
from cardbox_cli.orchestration.batch_ends import error_of
from cardbox_cli.orchestration.batch_manager import catch_up
from cardbox_cli.text import argument


class TaskProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a child is. `state` is where its turn stands, or how it ended; `since` is when that began."""

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
    """How far a batch is, at this time."""

    batch: Batch
    tasks: list[TaskProgress]
    now: datetime


def progress_of(runtime: Runtime, batch_id: str) -> Progress:
    """How far a batch is: one snapshot. Raises NotFound."""
    with runtime.database.snapshot():
        batch = runtime.batches.get(batch_id)
        known = runtime.batches.progress(batch_id)
        tasks = [_progress(task, *known[task.task_index]) for task in runtime.batches.tasks(batch_id)]
        return Progress(batch=batch, tasks=tasks, now=runtime.database.now())


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


# The box that joins what the children of a batch delivered, in task order: what a reducer reads.


def join_box(runtime: Runtime, batch: Batch) -> str:
    """The box of the deliverables of a batch that has ended, made if there is none yet.

    A child that delivered nothing has no card in it. Raises Conflict for a batch that goes on.
    """
    if batch.is_running:
        raise Conflict(
            f"batch {batch.batch_id} has not ended: what its children deliver is not all there",
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


# Waiting for the end of a batch, by looks at its rows, each of which does what is due of it.


# Seconds between two looks: at first, and at most.
_SOON, _LATE = 0.05, 1.0


def looks_at(
    runtime: Runtime, batch_id: str, *, timeout: float | None, pause: Callable[[float], object] = sleep
) -> Iterator[Progress]:
    """How far a batch is, look by look, the last when it has ended; before each one, what is due is done.

    Raises NotFound, and WaitedTooLong after `timeout` seconds (None: never). No transaction is open between
    two looks. `pause` waits for so many seconds, or less.
    """
    give_up = None if timeout is None else monotonic() + timeout
    interval = _SOON
    while True:
        catch_up(runtime, batch_id)
        seen = progress_of(runtime, batch_id)
        yield seen
        if not seen.batch.is_running:
            return
        left = _LATE if give_up is None else give_up - monotonic()
        if left <= 0:
            raise WaitedTooLong(
                f"batch {batch_id} has not ended within {timeout:g} s",
                hint=f"it goes on; `cbx batch watch {argument(batch_id)}` watches it",
                details={"batch_id": batch_id, "status": seen.batch.status},
            )
        pause(min(interval, left))
        interval = min(interval * 1.3, _LATE)
