"""Rules about turns that wait for a batch: one that goes on, that nobody went on with, or that ended untold.

A batch of another system's manager is shown and explained; no rule has a fix that would change it.
"""

from collections.abc import Iterator
from datetime import datetime

from cardbox_cli.diagnosis import evidence as show
from cardbox_cli.diagnosis.registry import REAPER, DiagnosisRule, Evidence, Proof
from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.diagnosis.verdict import REAP
from cardbox_cli.model.execution.batches import IN_PROGRESS, TASK_DISPATCHED, TASK_OPEN, TASK_PENDING
from cardbox_cli.model.execution.situations import BatchFacts, TaskFacts

_THEIR_MANAGER = "the other system's manager of batches"


def _awaited(s: Snapshot, *, own: bool) -> Iterator[BatchFacts]:
    """The batches that answer calls of the suspended turn which nothing answers yet."""
    calls = {call.tool_call_id for call in s.unanswered} if s.suspended else set()
    return (batch for batch in s.batches if batch.tool_call_id in calls and batch.is_own == own)


def _running(s: Snapshot, *, own: bool) -> Iterator[BatchFacts]:
    return (batch for batch in _awaited(s, own=own) if batch.status == IN_PROGRESS)


def _batch(s: Snapshot, batch: BatchFacts) -> Evidence:
    ended = sum(task.status not in TASK_OPEN for task in batch.tasks)
    until = f"deadline {show.instant(s, batch.deadline_at)}" if batch.deadline_at else "no deadline"
    children = f"{ended} of {len(batch.tasks)} children have ended"
    return Evidence(batch.table, batch.batch_id, f"{batch.status}, {children}; {until}")


def _task(s: Snapshot, batch: BatchFacts, task: TaskFacts) -> Evidence:
    place = "?" if task.task_index is None else str(task.task_index)
    turn = f", turn {task.turn}" if task.turn else f", to be dispatched {show.instant(s, task.due_at)}"
    ended = f", which ended {task.ended} {show.instant(s, task.ended_at)}" if task.ended else ""
    table = batch.table.replace("batches", "batch_tasks")
    return Evidence(table, f"{batch.batch_id}/{place}", f"{task.status}{turn}{ended}")


def _open(s: Snapshot, batch: BatchFacts) -> tuple[Evidence, ...]:
    return tuple(_task(s, batch, task) for task in batch.tasks if task.status in TASK_OPEN)


def _untold(s: Snapshot, batch: BatchFacts) -> tuple[TaskFacts, ...]:
    """The children that have ended, and whose batch does not know."""
    return tuple(
        task
        for task in batch.tasks
        if task.status == TASK_DISPATCHED and task.ended is not None and s.age(task.ended_at) > s.grace
    )


def _undispatched(s: Snapshot, batch: BatchFacts) -> tuple[TaskFacts, ...]:
    """The children that should have been dispatched for longer than a look at what is due may take."""
    patience = s.settings.unclaimed_time
    pending = (task for task in batch.tasks if task.status == TASK_PENDING)
    return tuple(task for task in pending if s.age(task.due_at) > patience)


def _overdue(s: Snapshot, batch: BatchFacts) -> bool:
    return batch.deadline_at is not None and s.now > batch.deadline_at + s.grace


def _goes_on(s: Snapshot) -> Proof:
    for batch in _running(s, own=True):
        return (*(show.call(s, call) for call in s.open_calls), _batch(s, batch), *_open(s, batch))
    return None


def _theirs_goes_on(s: Snapshot) -> Proof:
    for batch in _running(s, own=False):
        return (*(show.call(s, call) for call in s.open_calls), _batch(s, batch), *_open(s, batch))
    return None


def _is_overdue(s: Snapshot) -> Proof:
    overdue = [batch for batch in _running(s, own=True) if _overdue(s, batch)]
    return tuple(each for batch in overdue for each in (_batch(s, batch), *_open(s, batch))) or None


def _has_untold(s: Snapshot) -> Proof:
    for batch in _running(s, own=True):
        if untold := _untold(s, batch):
            return (_batch(s, batch), *(_task(s, batch, task) for task in untold))
    return None


def _has_undispatched(s: Snapshot) -> Proof:
    for batch in _running(s, own=True):
        if tasks := _undispatched(s, batch):
            return (_batch(s, batch), *(_task(s, batch, task) for task in tasks))
    return None


def _is_unreported(s: Snapshot) -> Proof:
    for batch in _awaited(s, own=True):
        if batch.status != IN_PROGRESS and s.age(batch.ended_at) > s.grace:
            return (*(show.call(s, call) for call in s.unanswered), _batch(s, batch))
    return None


def _theirs_has_untold(s: Snapshot) -> Proof:
    for batch in _running(s, own=False):
        if untold := _untold(s, batch):
            return (_batch(s, batch), *(_task(s, batch, task) for task in untold))
    return None


def _theirs_is_overdue(s: Snapshot) -> Proof:
    overdue = [batch for batch in _running(s, own=False) if _overdue(s, batch)]
    return tuple(each for batch in overdue for each in (_batch(s, batch), *_open(s, batch))) or None


def _deadline(s: Snapshot) -> datetime | None:
    running = [*_running(s, own=True), *_running(s, own=False)]
    return min((batch.deadline_at for batch in running if batch.deadline_at), default=None)


def _children(s: Snapshot) -> str:
    """Who must act next: the turns of the children that go on."""
    running = [*_running(s, own=True), *_running(s, own=False)]
    turns = [task.turn for batch in running for task in batch.tasks if task.status == TASK_DISPATCHED]
    shown = ", ".join(turn for turn in turns[:3] if turn)
    more = f" and {len(turns) - 3} more" if len(turns) > 3 else ""
    return f"whoever runs {shown}{more}" if shown else REAPER


RULES = (
    DiagnosisRule(
        name="batch-overdue",
        proves="The deadline of the batch that it waits for passed more than {poll} ago, and nobody acted.",
        rank=63,
        holds=_is_overdue,
        actor=REAPER,
        fix=REAP,
    ),
    DiagnosisRule(
        name="batch-child-untold",
        proves="A child of the batch that the turn waits for has ended, and the batch was not told.",
        rank=60,
        holds=_has_untold,
        actor=REAPER,
        fix=REAP,
    ),
    DiagnosisRule(
        name="batch-not-dispatched",
        proves="A child of the batch that it waits for is to be dispatched for longer than {unclaimed}.",
        rank=59,
        holds=_has_undispatched,
        actor=REAPER,
        fix=REAP,
    ),
    DiagnosisRule(
        name="batch-not-reported",
        proves="The batch that the turn waits for has ended, and its result was not reported.",
        rank=71,
        holds=_is_unreported,
        actor=REAPER,
        fix=REAP,
    ),
    DiagnosisRule(
        name="foreign-child-untold",
        proves="A child of another system's batch has ended without its event: there it counts as running.",
        rank=54,
        holds=_theirs_has_untold,
        actor=f"{_THEIR_MANAGER}, at the batch's deadline at the latest",
        due=_deadline,
    ),
    DiagnosisRule(
        name="foreign-batch-overdue",
        proves="The deadline of another system's batch passed more than {poll} ago, and nobody acted.",
        rank=53,
        holds=_theirs_is_overdue,
        actor=_THEIR_MANAGER,
    ),
    DiagnosisRule(
        name="batch-running",
        proves="The turn waits for a batch whose children go on.",
        verdict="waiting",
        severity="ok",
        rank=17,
        holds=_goes_on,
        actor=_children,
        due=_deadline,
    ),
    DiagnosisRule(
        name="foreign-batch-running",
        proves="The turn waits for a batch of another system, which that goes on with.",
        verdict="waiting",
        severity="ok",
        rank=16,
        holds=_theirs_goes_on,
        actor=_children,
        due=_deadline,
    ),
)
