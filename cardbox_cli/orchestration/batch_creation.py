"""Create a batch: write its contexts, agents, tasks and edge in one transaction, then dispatch its children.

After the commit, each child is dispatched in its own transaction.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from cardbox_cli.errors import BadRequest, CorrelationConflict
from cardbox_cli.execution.dispatch_requests import Caller
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.execution.batches import Batch, BatchTask, new_batch_id
from cardbox_cli.model.execution.headers import Lineage, new_trace_id
from cardbox_cli.model.execution.turns import MAX_DEPTH
from cardbox_cli.model.ids import derived_id
from cardbox_cli.orchestration.batch_ends import join_edge
from cardbox_cli.orchestration.batch_manager import defer_dispatches
from cardbox_cli.orchestration.delegation import digest_of, prepare
from cardbox_cli.settings import MAX_TASKS

if TYPE_CHECKING:
    from cardbox_cli.model.handwritten.tasks import ForkJoin, Task


FORK_JOIN_NAME = "fork_join"


class BatchCreation(msgspec.Struct, frozen=True, kw_only=True):
    """A batch. `created` is False if the batch existed before.

    `notes` warn a person, by task, about tasks that the caller's policy would refuse to a model.
    """

    batch: Batch
    created: bool
    notes: dict[int, list[str]] = {}


def create_batch(
    runtime: Runtime, caller: Caller, asked: "ForkJoin", *, allow_dangling: bool = False
) -> BatchCreation:
    """Create a batch on behalf of `caller`. The end of the batch answers the caller's tool call, if any.

    A repeated call gets the same batch. Joins the caller's transaction, and dispatches the children after the
    commit. `allow_dangling` is that of `prepare`. Raises BadRequest for an invalid batch, and the errors of
    `prepare` for its tasks. Raises CorrelationConflict if the call has created a different batch.
    """
    runtime.database.require_execution()
    runtime.batches.require()
    with runtime.transaction():
        check_tasks(asked.tasks, limit=runtime.settings.max_tasks)
        batch_id, digest = _id_of(runtime, caller), digest_of(caller, asked.model_dump(mode="json"))
        known = runtime.batches.find(batch_id)
        if known is not None:
            return BatchCreation(batch=_require_same(known, digest), created=False)
        lineage = _lineage(runtime, caller)
        delegations = prepare(
            runtime,
            caller,
            asked.tasks,
            tool_suffix=FORK_JOIN_NAME,
            within=("tasks",),
            allow_dangling=allow_dangling,
        )
        seconds = asked.deadline_seconds or runtime.settings.batch_deadline
        parent, now = caller.parent, runtime.database.now()
        batch = runtime.batches.add(
            Batch(
                batch_id=batch_id,
                fail_fast=asked.fail_fast,
                task_count=len(delegations),
                request_sha256=digest,
                source_agent_id=caller.agent_id,
                parent_turn_id=parent.agent_turn_id if parent else None,
                parent_step_id=parent.step_id if parent else None,
                parent_tool_call_id=parent.tool_call_id if parent else None,
                channel_id=caller.channel_id,
                recursion_depth=lineage.depth,
                trace_id=lineage.trace_id or new_trace_id(),
                deadline_at=now + timedelta(seconds=seconds),
                created_at=now,
            ),
            [
                BatchTask(
                    batch_id=batch_id,
                    task_index=index,
                    target_strategy=task.target_strategy,
                    target_ref=task.target_ref,
                    agent_id=each.agent_id,
                    context_box_id=each.context_box_id,
                    output_box_id=each.output_box_id,
                    next_try_at=now,
                )
                for index, (each, task) in enumerate(zip(delegations, asked.tasks, strict=True))
            ],
        )
        if batch is None:
            raise CorrelationConflict(
                f"another process has just created batch {batch_id}",
                hint="try again: if the request is the same, cbx returns the existing batch",
            )
        runtime.turns.insert_edge(join_edge(batch, "request"))
        defer_dispatches(runtime, batch_id)
    notes = {index: each.notes for index, each in enumerate(delegations) if each.notes}
    return BatchCreation(batch=batch, created=True, notes=notes)


def check_tasks(tasks: "Sequence[Task]", *, limit: int) -> None:
    """Raise BadRequest for too many tasks, or if several tasks are for the same agent."""
    refuse_too_many(len(tasks), limit)
    reused: dict[str, int] = {}
    for index, task in enumerate(tasks):
        if task.target_strategy == "reuse" and reused.setdefault(task.target_ref, index) != index:
            raise BadRequest(
                f"{FORK_JOIN_NAME}: tasks[{index}].target_ref: duplicate reuse target agent_id in batch:"
                f" {task.target_ref!r} already does tasks[{reused[task.target_ref]}]",
                hint="an agent runs one turn at a time; use the strategy clone to copy the agent",
            )


def refuse_too_many(count: int, limit: int) -> None:
    if count > limit:
        raise BadRequest(
            f"{FORK_JOIN_NAME}: tasks fanout exceeds max limit (got={count}, max={limit})",
            hint=f"split the tasks into several batches, or raise {MAX_TASKS.name}",
        )


def _id_of(runtime: Runtime, caller: Caller) -> str:
    """Return the id of the batch. It is derived from the tool call that creates the batch, or is new."""
    parent = caller.parent
    if parent is None or parent.tool_call_id is None:
        return new_batch_id()
    call = (runtime.project_id, parent.agent_turn_id, parent.tool_call_id)
    return f"batch_{derived_id('batch', *call).hex}"


def _require_same(known: Batch, digest: str) -> Batch:
    if known.request_sha256 != digest:
        raise CorrelationConflict(
            f"the call {known.parent_tool_call_id!r} has already created a different batch: {known.batch_id}",
            hint=f"run `cbx batch show {known.batch_id}` to see it; a call can create one batch",
            details={"batch_id": known.batch_id},
        )
    return known


def _lineage(runtime: Runtime, caller: Caller) -> Lineage:
    """Return the depth and trace of the batch, which equal the depth and trace of its parent.

    Raises BadRequest if its children would exceed the depth limit.
    """
    row = runtime.inbox.turn_row(caller.parent.agent_turn_id) if caller.parent else None
    if row is None:
        return Lineage(depth=0, trace_id=None)
    if row.lineage.depth + 1 >= MAX_DEPTH:
        raise BadRequest(
            f"{FORK_JOIN_NAME}: recursion_depth_exceeded: delegation depth {row.lineage.depth + 1} exceeds "
            f"the limit of {MAX_DEPTH - 1}",
            hint="do the rest of the work in this turn",
        )
    return row.lineage
