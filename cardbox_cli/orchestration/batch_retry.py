"""Retry the children of a batch that did not succeed.

While the batch runs, it counts their new turns. After its end, a new batch runs them and carries over the
results of the others: a batch ends once, and so its parent gets one result.
"""

from collections.abc import Mapping, Sequence

import msgspec

from cardbox_cli.errors import Conflict
from cardbox_cli.execution.dispatch_requests import refusal_error
from cardbox_cli.execution.recovery.retrying import BatchPlace, retry_turn
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.turn_summary import summary
from cardbox_cli.model.cards import OPERATOR
from cardbox_cli.model.execution.batches import Batch, BatchTask
from cardbox_cli.model.execution.headers import new_trace_id
from cardbox_cli.model.execution.turns import Successor, replacement
from cardbox_cli.model.ids import derived_id
from cardbox_cli.orchestration.batch_ends import end_if_decided, join_edge
from cardbox_cli.orchestration.batch_manager import defer_dispatches
from cardbox_cli.store.views.turn_views import TurnViews


def retry_batch(runtime: Runtime, batch_id: str, *, only_failed: bool, actor: str) -> Batch:
    """Run the children again that did not succeed, or with `only_failed`, those that failed.

    A child whose turn `cbx turn retry` has repeated with success is not run again. Returns the batch that
    counts the turns. Raises Conflict if no child is left, or a new batch already retries this one.
    """
    runtime.database.require_execution()
    runtime.batches.require()
    statuses = ("failed",) if only_failed else ("failed", "canceled", "timeout", "partial")
    with runtime.transaction():
        batch, tasks = runtime.batches.get(batch_id), runtime.batches.tasks(batch_id)
        chosen = [task for task in tasks if task.status in statuses]
        if not chosen:
            ended = "failed" if only_failed else "ended without success"
            hint = f"`cbx batch show {batch_id}` shows each child"
            raise Conflict(f"no child of batch {batch_id} has {ended}", hint=hint)
        successors = runtime.audit.successors([task.agent_turn_id or "" for task in chosen])
        repeated = {
            task.task_index: found
            for task in chosen
            if (found := replacement(successors.get(task.agent_turn_id or "", ()))) is not None
            and found.end_status in (None, "success")
        }
        retry = _renew if batch.is_running else _make_successor
        retried = retry(runtime, batch, tasks, chosen, repeated)
        detail = {"batch_id": batch_id, "retried_as": retried.batch_id}
        runtime.audit.write("batch retry", actor=actor, detail=detail)
        defer_dispatches(runtime, retried.batch_id)
    return retried


def successor_id(project_id: str, batch_id: str) -> str:
    """Return the id of the batch that retries an ended batch. There is at most one."""
    return f"batch_{derived_id('batch-retry', project_id, batch_id).hex}"


_Repeated = Mapping[int, Successor]


def _renew(
    runtime: Runtime,
    batch: Batch,
    tasks: Sequence[BatchTask],
    chosen: Sequence[BatchTask],
    repeated: _Repeated,
) -> Batch:
    """Retry ended children of a running batch, all or none."""
    turns = {
        task.task_index: _repeating_turn(runtime, batch, task, repeated.get(task.task_index))
        for task in chosen
        if task.agent_turn_id
    }
    locked = runtime.batches.lock(batch.batch_id)
    if locked is None or not locked.is_running:
        hint = f"run `cbx batch retry {batch.batch_id}` again"
        raise Conflict(f"batch {batch.batch_id} has just ended", hint=hint)
    for task in chosen:
        turn_id, output_box_id = turns.get(task.task_index, (None, None))
        if not runtime.batches.renew_task(task, agent_turn_id=turn_id, output_box_id=output_box_id):
            raise Conflict(
                f"another process has just retried task {task.task_index} of batch {batch.batch_id}",
                hint=f"`cbx batch show {batch.batch_id}` shows it",
            )
    return locked


def _repeating_turn(
    runtime: Runtime, batch: Batch, task: BatchTask, repeated: Successor | None
) -> tuple[str | None, str | None]:
    """Return the turn that repeats a child's, and its output box. Dispatch the turn if there is none."""
    if repeated is not None:
        turn = TurnViews(runtime.database, runtime.project_id).get(repeated.agent_turn_id)
        return turn.agent_turn_id, turn.output_box_id
    fields: dict[str, str | int] = {"batch_id": batch.batch_id, "task_index": task.task_index}
    if batch.parent_tool_call_id is not None:
        fields["tool_call_id"] = batch.parent_tool_call_id
    outcome = retry_turn(
        runtime,
        task.agent_turn_id or "",
        source_agent_id=batch.source_agent_id,
        batch=BatchPlace(fields, batch.trace_id),
    )
    if outcome.result.status != "accepted":
        raise refusal_error(outcome, "nothing was written")
    return outcome.result.agent_turn_id, outcome.result.output_box_id


def _make_successor(
    runtime: Runtime,
    old: Batch,
    tasks: Sequence[BatchTask],
    chosen: Sequence[BatchTask],
    repeated: _Repeated,
) -> Batch:
    """Write the batch that retries an ended batch. It carries over the results of the other children."""
    batch_id, now = successor_id(runtime.project_id, old.batch_id), runtime.database.now()
    again = {each.task_index for each in chosen}
    carried = [each for each in tasks if each.task_index not in again]
    new = Batch(
        batch_id=batch_id,
        # A result that is carried over must not end the new batch.
        fail_fast=old.fail_fast and all(each.status == "success" for each in carried),
        task_count=old.task_count,
        request_sha256=old.request_sha256,
        source_agent_id=OPERATOR,
        parent_turn_id=None,
        parent_step_id=None,
        parent_tool_call_id=None,
        channel_id=old.channel_id,
        recursion_depth=0,
        trace_id=new_trace_id(),
        deadline_at=now + (old.deadline_at - old.created_at),
        created_at=now,
    )
    if runtime.batches.find(batch_id) is not None:
        raise _already_retried(old, batch_id)
    for task in chosen:
        _refuse_running(task, repeated.get(task.task_index))
    copies = [msgspec.structs.replace(each, batch_id=batch_id, agent_turn_id=None) for each in carried]
    for task in chosen:
        done = repeated.get(task.task_index)
        copies.append(_pending_copy(task, new) if done is None else _ended_copy(runtime, task, new, done))
    stored = runtime.batches.add(new, copies)
    if stored is None:
        raise _already_retried(old, batch_id)
    runtime.turns.insert_edge(join_edge(stored, "request", retry_of=old.batch_id))
    end_if_decided(runtime, stored)
    return stored


def _already_retried(old: Batch, batch_id: str) -> Conflict:
    return Conflict(
        f"batch {old.batch_id} is already retried as {batch_id}",
        hint=f"`cbx batch show {batch_id}` shows it, `cbx batch retry {batch_id}` retries it",
    )


def _refuse_running(task: BatchTask, repeated: Successor | None) -> None:
    """Raise Conflict if a turn of the task still runs: another turn must not do its work at the same time."""
    place = f"task {task.task_index} of batch {task.batch_id}"
    if task.stop_due:
        raise Conflict(f"{place} is still being stopped", hint="try again after `cbx reap`")
    if repeated is not None and repeated.end_status is None:
        turn_id = repeated.agent_turn_id
        hint = f"wait for it with `cbx turn wait {turn_id}`, then run this command again"
        raise Conflict(f"{place} is already retried as turn {turn_id}, which has not ended", hint=hint)


def _pending_copy(task: BatchTask, batch: Batch) -> BatchTask:
    return BatchTask(
        batch_id=batch.batch_id,
        task_index=task.task_index,
        target_strategy=task.target_strategy,
        target_ref=task.target_ref,
        agent_id=task.agent_id,
        context_box_id=task.context_box_id,
        output_box_id=None,
        next_try_at=batch.created_at,
    )


def _ended_copy(runtime: Runtime, task: BatchTask, batch: Batch, done: Successor) -> BatchTask:
    """Return the task with the result of the turn that has repeated it with success."""
    turn = summary(TurnViews(runtime.database, runtime.project_id).get(done.agent_turn_id))
    return msgspec.structs.replace(
        _pending_copy(task, batch),
        status="success",
        output_box_id=turn.output_box_id,
        deliverable_card_id=turn.deliverable_card_id,
        dispatched_at=turn.created_at,
        ended_at=turn.ended_at,
    )
