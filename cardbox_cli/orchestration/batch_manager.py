"""The ends of a batch's children: applied once each, whoever tells of them, and brought about where the batch
has ended before.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial

from cardbox_cli.errors import CbxError, DatabaseUnavailable
from cardbox_cli.execution.dispatch import dispatch
from cardbox_cli.execution.dispatch_requests import Dispatched, DispatchRequest, DispatchResult, Parent
from cardbox_cli.execution.queue.stopping import cancel_turn
from cardbox_cli.execution.recovery.reaping import ended_record
from cardbox_cli.execution.runtime import Caught, Ended, Runtime
from cardbox_cli.model.execution.batches import Batch, BatchEndStatus, BatchTask
from cardbox_cli.model.execution.turns import WATCHDOG, Fence
from cardbox_cli.orchestration.batch_ends import (
    CANCELED,
    DISPATCHES,
    EXHAUSTED,
    TIMED_OUT,
    end_batch,
    is_passing,
    report,
    retry_delay,
    settle,
    waited_for,
)


def apply_end(runtime: Runtime, ended: Ended) -> str | None:
    """Apply the end of a turn to the batch whose child it is; the batch, if that ended by it.

    In the caller's transaction, who holds the head of the turn's agent. A turn that is no child, or whose end
    is known, changes nothing.
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
    return batch.batch_id if settle(runtime, batch) else None


def learn(runtime: Runtime, task: BatchTask) -> str | None:
    """Apply the end of a child that nobody told of, as its rows show it; the batch, if that ended by it."""
    turn_id = task.agent_turn_id or ""
    with runtime.transaction():
        head = runtime.heads.try_lock(task.agent_id)
        if head is None and runtime.heads.get(task.agent_id) is not None:
            return None
        record = ended_record(runtime, turn_id)
        if record is None or record.end_status is None:
            return None
        ended = Ended(
            agent_turn_id=turn_id,
            agent_id=task.agent_id,
            end_status=record.end_status,
            deliverable_card_id=record.deliverable_card_id,
            error_code=record.error_code,
            message=record.error,
        )
        return apply_end(runtime, ended)


def stop_child(runtime: Runtime, task: BatchTask) -> bool:
    """Stop the turn of a child whose batch has ended: its epoch moves on, so what it writes is refused.

    False where another process is at it, or it had ended.
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


# The dispatch of a batch's children: one transaction each, in which the turn is asked for and noted.
#
# What is refused for a while is tried again by the backoff, what is refused for good has failed. Children
# that
# another process is dispatching are passed over.


class _Overtaken(Exception):
    """The task is not pending any more: whatever was written for it is taken back."""


class _Failed(Exception):
    """The dispatch failed otherwise than by a refusal."""


def dispatch_child(runtime: Runtime, batch: Batch, task: BatchTask) -> str | None:
    """Ask for the turn of a task that is due; the turn, None where none was asked for now."""
    try:
        with runtime.transaction():
            now = runtime.batches.hold_due(task)
            if now is None:
                return None
            answer = _asked(runtime, batch, task)
            if answer.result.status == "accepted":
                return _note(runtime, task, answer.result, now)
            _refused(runtime, task, answer.result, answer.message or "")
    except _Overtaken:
        return None
    except _Failed as exc:
        failed = DispatchResult(status="error", error_code="internal_error", agent_id=task.agent_id)
        with runtime.transaction():
            if runtime.batches.hold_due(task) is not None:
                _refused(runtime, task, failed, str(exc))
    return None


def _asked(runtime: Runtime, batch: Batch, task: BatchTask) -> Dispatched:
    """The answer to the request for the child's turn; nothing is written where it is not accepted."""
    parent = None
    if batch.parent_turn_id is not None:
        parent = Parent(agent_turn_id=batch.parent_turn_id, step_id=batch.parent_step_id)
    request = DispatchRequest(
        target_agent_id=task.agent_id,
        context_box_id=task.context_box_id,
        output_box_id=task.output_box_id,
        channel_id=batch.channel_id,
        source_agent_id=batch.source_agent_id,
        correlation_id=task.correlation_id,
        parent=parent,
        trace_id=batch.trace_id,
        metadata={"batch_id": batch.batch_id, "task_index": task.task_index},
        batch=_membership(batch, task),
    )
    try:
        return dispatch(runtime, request)
    except DatabaseUnavailable:
        raise
    except CbxError as exc:
        raise _Failed(exc.message) from exc


def _membership(batch: Batch, task: BatchTask) -> dict[str, object]:
    """Which child of what the turn is, and the call that waits for all of them."""
    of = {"batch_id": batch.batch_id, "task_index": task.task_index}
    return of if batch.parent_tool_call_id is None else {**of, "tool_call_id": batch.parent_tool_call_id}


def _note(runtime: Runtime, task: BatchTask, result: DispatchResult, now: datetime) -> str:
    turn_id = result.agent_turn_id or ""
    known = runtime.batches.dispatched(
        task,
        agent_turn_id=turn_id,
        context_box_id=result.context_box_id or task.context_box_id,
        output_box_id=result.output_box_id or "",
        now=now,
    )
    if not known:
        raise _Overtaken
    return turn_id


def _refused(runtime: Runtime, task: BatchTask, result: DispatchResult, message: str) -> None:
    store, code = runtime.batches, f"dispatch_{result.status}:{result.error_code}"
    passing = is_passing(result.error_code, result.status)
    if passing and task.attempts + 1 < DISPATCHES:
        at = runtime.database.now() + retry_delay(task.attempts + 1)
        store.put_off(task, at, error_code=code, error=message)
        return
    batch = store.lock(task.batch_id)
    if batch is None or not batch.is_running:
        return
    tried = f"{message} (refused {DISPATCHES} times)"
    store.fail(task, error_code=EXHAUSTED if passing else code, error=tried if passing else message)
    settle(runtime, batch)


# What keeps batches going without a daemon: whoever ends a turn applies that to its batch at once, and
# whoever looks at what is due does what was left: in workers, in `reap`, while somebody waits for a batch.
#
# Stateless; every step is a transaction of its own that may happen twice.


class BatchManager:
    """The follower of turns that sees to batches."""

    def turn_ended(self, runtime: Runtime, ended: Ended) -> None:
        """The end of a child goes to its batch; the batches of a parent that has ended are nobody's."""
        if not runtime.database.keeps_batches:
            return
        batch_id = apply_end(runtime, ended)
        if batch_id is not None:
            runtime.after_commit(partial(_quietly, partial(_stop_children, runtime, batch_id, Caught())))
        if ended.end_status != "success":
            desert = partial(_desert, runtime, ended.agent_turn_id, Caught())
            runtime.after_commit(partial(_quietly, desert))

    def turn_suspended(self, runtime: Runtime, fence: Fence) -> None:
        """A parent waits as long as its batches may run, and is told of those that have ended already."""
        store = runtime.batches
        if not runtime.database.keeps_batches:
            return
        margin = runtime.settings.unclaimed_time
        for batch in store.hold_of_turn(fence.agent_turn_id):
            if batch.is_running:
                store.keep_waiting(fence, batch.deadline_at + margin)
            elif batch.parent_tool_call_id in waited_for(runtime, fence.agent_turn_id):
                report(runtime, batch)

    def catch_up(self, runtime: Runtime) -> Caught:
        """Do what is due of all batches of the project."""
        return catch_up(runtime)


def catch_up(runtime: Runtime, batch_id: str | None = None) -> Caught:
    """Do what is due of this batch (None: of any): ends that nobody told of, deadlines, dispatches, stops.

    What cannot be done keeps nothing else up.
    """
    caught, store = Caught(), runtime.batches
    if not runtime.database.keeps_batches:
        return caught
    for task in store.silent(batch_id):
        with _trouble(caught, f"the child {task.task_index} of {task.batch_id}"):
            _add(caught.ended, learn(runtime, task))
    for each in store.settled(batch_id):
        with _trouble(caught, f"the end of {each}"):
            _add(caught.ended, _settled(runtime, each))
    for batch in store.overdue(batch_id):
        with _trouble(caught, f"the deadline of {batch.batch_id}"):
            _add(caught.ended, time_out(runtime, batch.batch_id))
    _desert(runtime, None, caught)
    _dispatch_children(runtime, batch_id, caught)
    _stop_children(runtime, batch_id, caught)
    for batch in store.to_report(None):
        with _trouble(caught, f"the report of {batch.batch_id}"):
            _report(runtime, batch.batch_id)
    return caught


def cancel(runtime: Runtime, batch_id: str, *, reason: str, actor: str | None = None) -> bool:
    """End a batch as failed for this reason, and stop its children; False where it had ended.

    The audit says so of an `actor` who is a person.
    """
    with runtime.transaction():
        ended = _ended_early(runtime, batch_id, "failed", code=CANCELED, why=reason)
        if ended is not None and actor is not None:
            detail = {"batch_id": batch_id, "reason": reason}
            runtime.audit.write("batch cancel", actor=actor, detail=detail)
    _stop_children(runtime, batch_id, Caught())
    return ended is not None


def time_out(runtime: Runtime, batch_id: str) -> str | None:
    """End a batch whose deadline has passed; its id, None where it had ended."""
    return _ended_early(runtime, batch_id, "timeout", code=TIMED_OUT, why="its deadline passed")


def dispatch_quietly(runtime: Runtime, batch_id: str) -> None:
    """Dispatch the children of a batch that has just been written; what fails is left to the next pass."""
    _quietly(partial(_dispatch_children, runtime, batch_id, Caught()))


def _ended_early(
    runtime: Runtime, batch_id: str, status: BatchEndStatus, *, code: str, why: str
) -> str | None:
    with runtime.transaction():
        batch = runtime.batches.lock(batch_id)
        if batch is None or not batch.is_running:
            return None
        end_batch(runtime, batch, status, error_code=code, error=why, open_code=code, open_error=why)
    return batch_id


def _settled(runtime: Runtime, batch_id: str) -> str | None:
    with runtime.transaction():
        batch = runtime.batches.lock(batch_id)
        return batch_id if batch is not None and settle(runtime, batch) else None


def _report(runtime: Runtime, batch_id: str) -> None:
    with runtime.transaction():
        batch = runtime.batches.lock(batch_id)
        if batch is not None:
            report(runtime, batch)


def _dispatch_children(runtime: Runtime, batch_id: str | None, caught: Caught) -> None:
    known: dict[str, Batch] = {}
    for task in runtime.batches.due(batch_id):
        batch = known.get(task.batch_id) or runtime.batches.get(task.batch_id)
        known[task.batch_id] = batch
        with _trouble(caught, f"the dispatch of child {task.task_index} of {task.batch_id}"):
            _add(caught.dispatched, dispatch_child(runtime, batch, task))


def _stop_children(runtime: Runtime, batch_id: str | None, caught: Caught) -> None:
    for task in runtime.batches.to_stop(batch_id):
        with _trouble(caught, f"the stop of turn {task.agent_turn_id}"):
            if stop_child(runtime, task):
                _add(caught.stopped, task.agent_turn_id)


def _desert(runtime: Runtime, agent_turn_id: str | None, caught: Caught) -> None:
    """End the batches of parents that have ended: nobody waits for them."""
    for batch in runtime.batches.deserted(agent_turn_id):
        with _trouble(caught, f"the batch {batch.batch_id}"):
            why = f"turn {batch.parent_turn_id}, which waited for it, has ended"
            if cancel(runtime, batch.batch_id, reason=why):
                caught.ended.append(batch.batch_id)


def _add(found: list[str], item: str | None) -> None:
    if item is not None:
        found.append(item)


@contextmanager
def _trouble(caught: Caught, what: str) -> Iterator[None]:
    try:
        yield
    except DatabaseUnavailable:
        raise
    except CbxError as exc:
        caught.troubles.append(f"{what}: {exc.message}")


def _quietly(action: Callable[[], None]) -> None:
    """Do what the next pass does as well: the end that it follows has been committed."""
    try:
        action()
    except CbxError:
        return
