"""The dispatch of a batch's children: one transaction each, in which the turn is asked for and noted.

What is refused for a while is tried again by the backoff, what is refused for good has failed. Children that
another process is dispatching are passed over.
"""

from datetime import datetime

from cardbox_cli.errors import CbxError, DatabaseUnavailable
from cardbox_cli.execution.dispatch.dispatch import dispatch
from cardbox_cli.execution.dispatch.request import Dispatched, DispatchRequest, DispatchResult, Parent
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.execution.batches import Batch, BatchTask
from cardbox_cli.orchestration.batches.decisions import (
    DISPATCHES,
    EXHAUSTED,
    is_passing,
    retry_delay,
)
from cardbox_cli.orchestration.batches.ending import settle


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
