"""Advance batches without a daemon: dispatch children, apply their ends, and end overdue batches.

The transaction that ends a turn also applies the end to its batch. Workers, `reap` and commands that wait for
a batch do all other work. Each action is one transaction and may be repeated. A temporarily refused dispatch
is tried again after a backoff. A permanent refusal fails the child. Children that another process has locked
are skipped.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

from cardbox_cli.errors import CbxError, DatabaseUnavailable
from cardbox_cli.execution.dispatch import dispatch
from cardbox_cli.execution.dispatch_requests import DispatchOutcome, DispatchRequest, DispatchResult, Parent
from cardbox_cli.execution.queue.stopping import cancel_turn
from cardbox_cli.execution.recovery.reaping import ended_record, record_trouble
from cardbox_cli.execution.runtime import CatchUpOutcome, Runtime, TurnEndEvent
from cardbox_cli.execution.turn_summary import convert
from cardbox_cli.model.execution.batches import Batch, BatchEndStatus, BatchTask
from cardbox_cli.model.execution.turns import WATCHDOG, Fence
from cardbox_cli.orchestration.batch_ends import (
    CANCELED,
    EXHAUSTED,
    MAX_DISPATCHES,
    TIMED_OUT,
    end_batch,
    end_if_decided,
    is_passing,
    report,
    retry_delay,
    waiting_call_ids,
)


def apply_end(runtime: Runtime, ended: TurnEndEvent) -> str | None:
    """Apply the end of a turn to its batch. Return the batch's id if this ended the batch, or None.

    Runs in the caller's transaction, which has locked the head of the turn's agent. Does nothing if the turn
    has no batch, or if its end is already applied.
    """
    store = runtime.batches
    batch = store.lock_of_child(ended.agent_turn_id)
    if batch is None:
        return None
    failed = ended.end_status != "success"
    store.end_task(
        ended.agent_turn_id,
        ended.end_status,
        deliverable_card_id=ended.deliverable_card_id,
        error_code=(ended.error_code or f"turn_{ended.end_status}") if failed else None,
        error=ended.message if failed else None,
    )
    return batch.batch_id if end_if_decided(runtime, batch) else None


def apply_missed_end(runtime: Runtime, task: BatchTask) -> str | None:
    """Apply the end of a child that another program ended. Return the id of the batch if this ended it."""
    with runtime.transaction():
        head = runtime.heads.try_lock(task.agent_id)
        if head is None and runtime.heads.get(task.agent_id) is not None:
            return None
        record = ended_record(runtime, task.agent_turn_id or "")
        if record is None or record.end_status is None:
            return None
        return apply_end(runtime, convert(TurnEndEvent, record, message=record.error))


def stop_child(runtime: Runtime, task: BatchTask) -> bool:
    """Stop the child of an ended batch, and increment the epoch, so that its writes are refused.

    Return False if another process is stopping it, or if it had already ended.
    """
    turn_id, reason = task.agent_turn_id or "", f"its batch {task.batch_id} has ended: {task.error}"
    with runtime.transaction():
        head = runtime.heads.lock(task.agent_id)
        record = ended_record(runtime, turn_id)
        fence = Fence(task.agent_id, turn_id, head.turn_epoch if head is not None else 0)
        if record is None or record.end_status is None:
            active = head is not None and head.active_agent_turn_id == turn_id
            end = cancel_turn(runtime, head, fence, message=reason)
            runtime.audit.write_of_turn(
                fence,
                action="stop",
                actor=WATCHDOG,
                reason=reason,
                epoch_after=fence.turn_epoch + 1 if active else None,
            )
        else:
            end = None
        store = runtime.batches
        if store.lock_of_child(turn_id) is not None:
            status = end.end_status if end is not None else "canceled"
            store.end_task(turn_id, status, deliverable_card_id=None, error_code=None, error=None)
        return end is not None and end.created


class _Overtaken(Exception):
    """The exception that rolls a dispatch back because the task is no longer pending."""


class _DispatchFailed(Exception):
    """The failure of a dispatch for a reason other than a refusal."""


def dispatch_child(
    runtime: Runtime, batch: Batch, task: BatchTask, *, retry_of: str | None = None
) -> str | None:
    """Dispatch the turn of a due task. Return the turn's id, or None if it was not dispatched.

    `retry_of` is the turn that the new one retries.
    """
    try:
        with runtime.transaction():
            now = runtime.batches.lock_due(task)
            if now is None:
                return None
            outcome = _dispatch_task(runtime, batch, task, retry_of)
            if outcome.result.status == "accepted":
                if retry_of is not None:
                    fence, new_turn_id = Fence(task.agent_id, retry_of, 0), outcome.result.agent_turn_id or ""
                    runtime.audit.record_successor(
                        fence, new_turn_id, action="retry", actor=batch.source_agent_id
                    )
                return _mark_dispatched(runtime, task, outcome.result, now)
            _handle_refusal(runtime, task, outcome.result, outcome.message or "")
    except _Overtaken:
        return None
    except _DispatchFailed as exc:
        failed = DispatchResult(status="error", error_code="internal_error", agent_id=task.agent_id)
        with runtime.transaction():
            if runtime.batches.lock_due(task) is not None:
                _handle_refusal(runtime, task, failed, str(exc))
    return None


def _dispatch_task(runtime: Runtime, batch: Batch, task: BatchTask, retry_of: str | None) -> DispatchOutcome:
    parent = None
    if batch.parent_turn_id is not None:
        parent = Parent(agent_turn_id=batch.parent_turn_id, step_id=batch.parent_step_id)
    of = {"batch_id": batch.batch_id, "task_index": task.task_index}
    awaited = {} if batch.parent_tool_call_id is None else {"tool_call_id": batch.parent_tool_call_id}
    request = DispatchRequest(
        target_agent_id=task.agent_id,
        context_box_id=task.context_box_id,
        output_box_id=task.output_box_id,
        channel_id=batch.channel_id,
        source_agent_id=batch.source_agent_id,
        correlation_id=task.correlation_id,
        parent=parent,
        trace_id=batch.trace_id,
        metadata=of if retry_of is None else {**of, "retry_of": retry_of},
        batch={**of, **awaited},
    )
    try:
        return dispatch(runtime, request)
    except DatabaseUnavailable:
        raise
    except CbxError as exc:
        raise _DispatchFailed(exc.message) from exc


def _mark_dispatched(runtime: Runtime, task: BatchTask, result: DispatchResult, now: datetime) -> str:
    turn_id, output_box_id = result.agent_turn_id or "", result.output_box_id or ""
    boxes = {"context_box_id": result.context_box_id or task.context_box_id, "output_box_id": output_box_id}
    if not runtime.batches.record_dispatch(task, agent_turn_id=turn_id, now=now, **boxes):
        raise _Overtaken
    return turn_id


def _handle_refusal(runtime: Runtime, task: BatchTask, result: DispatchResult, message: str) -> None:
    store, code = runtime.batches, f"dispatch_{result.status}:{result.error_code}"
    may_pass = is_passing(result.error_code, result.status)
    if may_pass and task.attempts + 1 < MAX_DISPATCHES:
        at = runtime.database.now() + retry_delay(task.attempts + 1)
        store.postpone(task, at, error_code=code, error=message)
        return
    batch = store.lock(task.batch_id)
    if batch is None or not batch.is_running:
        return
    if may_pass:
        code, message = EXHAUSTED, f"{message} (refused {MAX_DISPATCHES} times)"
    store.fail(task, error_code=code, error=message)
    end_if_decided(runtime, batch)


class BatchManager:
    """The follower of turns that manages batches."""

    def turn_ended(self, runtime: Runtime, ended: TurnEndEvent) -> None:
        """Apply the end of a child to its batch. Cancel the batches of a parent that did not succeed."""
        if not runtime.database.keeps_batches:
            return
        batch_id = apply_end(runtime, ended)
        if batch_id is not None:
            _defer_quietly(runtime, _stop_children, batch_id)
        if ended.end_status != "success":
            _defer_quietly(runtime, _cancel_deserted, ended.agent_turn_id)

    def turn_suspended(self, runtime: Runtime, fence: Fence) -> None:
        """Extend the parent's deadline past those of its running batches. Report batches that have ended."""
        store = runtime.batches
        if not runtime.database.keeps_batches:
            return
        margin = runtime.settings.unclaimed_time
        for batch in store.lock_by_turn(fence.agent_turn_id):
            if batch.is_running:
                store.keep_waiting(fence, batch.deadline_at + margin)
            elif batch.parent_tool_call_id in waiting_call_ids(runtime, fence.agent_turn_id):
                report(runtime, batch)

    def catch_up(self, runtime: Runtime) -> CatchUpOutcome:
        return catch_up(runtime)


def catch_up(runtime: Runtime, batch_id: str | None = None) -> CatchUpOutcome:
    """Run the due work of this batch, or of all: missed ends, deadlines, dispatches, stops and reports.

    Work that fails does not stop the remaining work.
    """
    caught, store = CatchUpOutcome(), runtime.batches
    if not runtime.database.keeps_batches:
        return caught
    for task in store.unrecorded_ends(batch_id):
        with record_trouble(caught.troubles, f"the child {task.task_index} of {task.batch_id}"):
            _add(caught.ended, apply_missed_end(runtime, task))
    for each in store.settled_batch_ids(batch_id):
        with record_trouble(caught.troubles, f"the end of {each}"), runtime.transaction():
            locked = store.lock(each)
            _add(caught.ended, each if locked is not None and end_if_decided(runtime, locked) else None)
    for batch in store.overdue(batch_id):
        with record_trouble(caught.troubles, f"the deadline of {batch.batch_id}"):
            why = "its deadline passed"
            _add(caught.ended, _end_early(runtime, batch.batch_id, "timeout", code=TIMED_OUT, why=why))
    _cancel_deserted(runtime, None, caught)
    _dispatch_children(runtime, batch_id, caught)
    _stop_children(runtime, batch_id, caught)
    for batch in store.unreported_batches(None):
        with record_trouble(caught.troubles, f"the report of {batch.batch_id}"), runtime.transaction():
            locked = store.lock(batch.batch_id)
            if locked is not None:
                report(runtime, locked)
    return caught


def cancel(runtime: Runtime, batch_id: str, *, reason: str, actor: str | None = None) -> bool:
    """End a batch as failed for this reason, and stop its children. Return False if it had already ended.

    `actor` is the person who cancels it, for the audit.
    """
    with runtime.transaction():
        ended = _end_early(runtime, batch_id, "failed", code=CANCELED, why=reason)
        if ended is not None and actor is not None:
            detail = {"batch_id": batch_id, "reason": reason}
            runtime.audit.write("batch cancel", actor=actor, detail=detail)
    _stop_children(runtime, batch_id, CatchUpOutcome())
    return ended is not None


def defer_dispatches(runtime: Runtime, batch_id: str) -> None:
    """Dispatch the children of a new batch after the commit. `catch_up` repeats failed dispatches."""
    _defer_quietly(runtime, _dispatch_children, batch_id)


def _end_early(runtime: Runtime, batch_id: str, status: BatchEndStatus, *, code: str, why: str) -> str | None:
    with runtime.transaction():
        batch = runtime.batches.lock(batch_id)
        if batch is None or not batch.is_running:
            return None
        end_batch(runtime, batch, status, error_code=code, error=why, open_code=code, open_error=why)
    return batch_id


def _dispatch_children(runtime: Runtime, batch_id: str | None, caught: CatchUpOutcome) -> None:
    known: dict[str, tuple[Batch, dict[int, str | None]]] = {}
    for task in runtime.batches.due(batch_id):
        if task.batch_id not in known:
            batch = runtime.batches.get(task.batch_id)
            known[task.batch_id] = batch, _retried_turns(runtime, batch)
        batch, retried = known[task.batch_id]
        with record_trouble(caught.troubles, f"the dispatch of child {task.task_index} of {task.batch_id}"):
            turn = retried.get(task.task_index)
            _add(caught.dispatched, dispatch_child(runtime, batch, task, retry_of=turn))


def _retried_turns(runtime: Runtime, batch: Batch) -> dict[int, str | None]:
    """Return the turns, by task, of the batch that this batch retries. A batch with a parent retries none."""
    old = None if batch.parent_turn_id else runtime.batches.retried_batch(batch.batch_id)
    return {} if old is None else {each.task_index: each.agent_turn_id for each in runtime.batches.tasks(old)}


def _stop_children(runtime: Runtime, batch_id: str | None, caught: CatchUpOutcome) -> None:
    for task in runtime.batches.tasks_awaiting_stop(batch_id):
        with record_trouble(caught.troubles, f"the stop of turn {task.agent_turn_id}"):
            if stop_child(runtime, task):
                _add(caught.stopped, task.agent_turn_id)


def _cancel_deserted(runtime: Runtime, agent_turn_id: str | None, caught: CatchUpOutcome) -> None:
    """Cancel the batches whose parent has ended, because no call waits for them any more."""
    for batch in runtime.batches.abandoned_batches(agent_turn_id):
        with record_trouble(caught.troubles, f"the batch {batch.batch_id}"):
            why = f"turn {batch.parent_turn_id}, which waited for it, has ended"
            if cancel(runtime, batch.batch_id, reason=why):
                caught.ended.append(batch.batch_id)


def _add(found: list[str], item: str | None) -> None:
    if item is not None:
        found.append(item)


def _defer_quietly(runtime: Runtime, action: Callable[..., None], item_id: str) -> None:
    """Run an action after the commit. Ignores its errors, because `catch_up` repeats it."""

    def run() -> None:
        with suppress(CbxError):
            action(runtime, item_id, CatchUpOutcome())

    runtime.defer(run)
