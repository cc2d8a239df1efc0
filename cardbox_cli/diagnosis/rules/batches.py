"""Rules about a suspended turn that waits for a batch, whether cbx or another system manages it.

A rule about a batch that another system manages has no fix that would change the batch.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial

from cardbox_cli.diagnosis import evidence as show
from cardbox_cli.diagnosis.registry import REAPER, DiagnosisRule, Proof, RowEvidence, waiting_rule
from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.diagnosis.verdict import reaper_rule
from cardbox_cli.model.execution.batches import IN_PROGRESS, TASK_DISPATCHED, TASK_OPEN, TASK_PENDING
from cardbox_cli.model.execution.situations import BatchFacts, TaskFacts

_FOREIGN_MANAGER = "the other system's batch manager"


def _awaited(s: Snapshot, *, own: bool) -> Iterator[BatchFacts]:
    """Yield batches with unanswered calls of the suspended turn: cbx's if `own`, else of other systems."""
    calls = {call.tool_call_id for call in s.unanswered} if s.suspended else set()
    return (batch for batch in s.batches if batch.tool_call_id in calls and batch.is_own == own)


def _running(s: Snapshot, *, own: bool) -> Iterator[BatchFacts]:
    return (batch for batch in _awaited(s, own=own) if batch.status == IN_PROGRESS)


def _batch(s: Snapshot, batch: BatchFacts) -> RowEvidence:
    ended = sum(task.status not in TASK_OPEN for task in batch.tasks)
    until = f"deadline {show.instant(s, batch.deadline_at)}" if batch.deadline_at else "no deadline"
    children = f"{ended} of {len(batch.tasks)} children have ended"
    return RowEvidence(batch.table, batch.batch_id, f"{batch.status}, {children}; {until}")


def _task(s: Snapshot, batch: BatchFacts, task: TaskFacts) -> RowEvidence:
    position = "?" if task.task_index is None else str(task.task_index)
    turn = f", turn {task.turn}" if task.turn else f", due for dispatch {show.instant(s, task.due_at)}"
    ended = f", which ended {task.ended} {show.instant(s, task.ended_at)}" if task.ended else ""
    table = batch.table.replace("batches", "batch_tasks")
    return RowEvidence(table, f"{batch.batch_id}/{position}", f"{task.status}{turn}{ended}")


def _open_tasks(s: Snapshot, batch: BatchFacts) -> tuple[RowEvidence, ...]:
    return tuple(_task(s, batch, task) for task in batch.tasks if task.status in TASK_OPEN)


def _unrecorded(s: Snapshot, batch: BatchFacts) -> tuple[TaskFacts, ...]:
    """Return the children that ended more than `grace` ago, but that the batch still shows as dispatched."""
    return tuple(
        task
        for task in batch.tasks
        if task.status == TASK_DISPATCHED and task.ended is not None and s.age(task.ended_at) > s.grace
    )


def _undispatched(s: Snapshot, batch: BatchFacts) -> tuple[TaskFacts, ...]:
    """Return the pending children that have been due for dispatch for longer than `unclaimed_time`."""
    limit = s.settings.unclaimed_time
    pending = (task for task in batch.tasks if task.status == TASK_PENDING)
    return tuple(task for task in pending if s.age(task.due_at) > limit)


def _is_overdue(s: Snapshot, batch: BatchFacts) -> bool:
    return batch.deadline_at is not None and s.now > batch.deadline_at + s.grace


def _runs(s: Snapshot, *, own: bool) -> Proof:
    for batch in _running(s, own=own):
        return (*(show.call(s, call) for call in s.open_calls), _batch(s, batch), *_open_tasks(s, batch))
    return None


def _has_overdue_batch(s: Snapshot, *, own: bool) -> Proof:
    overdue = [batch for batch in _running(s, own=own) if _is_overdue(s, batch)]
    return tuple(each for batch in overdue for each in (_batch(s, batch), *_open_tasks(s, batch))) or None


def _has_late_tasks(
    s: Snapshot, *, own: bool, find: Callable[[Snapshot, BatchFacts], tuple[TaskFacts, ...]]
) -> Proof:
    """Prove that `find` returns children of a running batch. Only the first such batch is shown."""
    for batch in _running(s, own=own):
        if tasks := find(s, batch):
            return (_batch(s, batch), *(_task(s, batch, task) for task in tasks))
    return None


def _is_unreported(s: Snapshot) -> Proof:
    """Prove that an awaited batch of cbx ended more than `grace` ago, but its call has no report."""
    for batch in _awaited(s, own=True):
        if batch.status != IN_PROGRESS and s.age(batch.ended_at) > s.grace:
            return (*(show.call(s, call) for call in s.unanswered), _batch(s, batch))
    return None


def _deadline(s: Snapshot) -> datetime | None:
    running = [*_running(s, own=True), *_running(s, own=False)]
    return min((batch.deadline_at for batch in running if batch.deadline_at), default=None)


def _children(s: Snapshot) -> str:
    """Return the next actor: the workers of the first three running children, or the reaper without any."""
    running = [*_running(s, own=True), *_running(s, own=False)]
    turns = [task.turn for batch in running for task in batch.tasks if task.status == TASK_DISPATCHED]
    shown = ", ".join(turn for turn in turns[:3] if turn)
    more = f" and {len(turns) - 3} more" if len(turns) > 3 else ""
    return f"the workers that run {shown}{more}" if shown else REAPER


RULES = (
    reaper_rule(
        name="batch-overdue",
        proves="The awaited batch has not ended, although its deadline passed more than {poll} ago.",
        rank=63,
        holds=partial(_has_overdue_batch, own=True),
    ),
    reaper_rule(
        name="batch-child-untold",
        proves="A child of the awaited batch has ended, but the batch still shows it as dispatched.",
        rank=60,
        holds=partial(_has_late_tasks, own=True, find=_unrecorded),
    ),
    reaper_rule(
        name="batch-not-dispatched",
        proves="A child of the awaited batch has been due for dispatch for more than {unclaimed}.",
        rank=59,
        holds=partial(_has_late_tasks, own=True, find=_undispatched),
    ),
    reaper_rule(
        name="batch-not-reported",
        proves="The awaited batch has ended, but its result was not reported.",
        rank=71,
        holds=_is_unreported,
    ),
    DiagnosisRule(
        name="foreign-child-untold",
        proves="A child of another system's batch has ended, but that system still shows it as dispatched.",
        rank=54,
        holds=partial(_has_late_tasks, own=False, find=_unrecorded),
        actor=f"{_FOREIGN_MANAGER}, no later than the batch's deadline",
        due=_deadline,
    ),
    DiagnosisRule(
        name="foreign-batch-overdue",
        proves="Another system's batch has not ended, although its deadline passed more than {poll} ago.",
        rank=53,
        holds=partial(_has_overdue_batch, own=False),
        actor=_FOREIGN_MANAGER,
    ),
    waiting_rule(
        name="batch-running",
        proves="The turn waits for a batch, and the batch is running.",
        rank=17,
        holds=partial(_runs, own=True),
        actor=_children,
        due=_deadline,
    ),
    waiting_rule(
        name="foreign-batch-running",
        proves="The turn waits for a batch of another system, and the batch is running.",
        rank=16,
        holds=partial(_runs, own=False),
        actor=_children,
        due=_deadline,
    ),
)
