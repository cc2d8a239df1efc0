"""How a batch ends: once, by one compare-and-set, with the edge and the one result that its parent waits for
in the same transaction.

Whoever ends it holds it, and no head: children that still run are stopped after the commit, by `children.py`.
"""

from collections.abc import Sequence

from cardbox_cli.errors import Conflict, NotFound
from cardbox_cli.execution.queue.reports import report_result
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.execution.batches import Batch, BatchEndStatus, BatchTask
from cardbox_cli.model.execution.turns import WAITING, WATCHDOG, Edge, Fence, new_id
from cardbox_cli.orchestration.batches.decisions import (
    BATCHES,
    FAILED_FAST,
    TaskResult,
    batch_end,
    joined,
    result_of,
    summary_of,
)

JOIN = "join"


def settle(runtime: Runtime, batch: Batch) -> bool:
    """End a batch, which is held, if the states of its tasks say so; whether they did."""
    if not batch.is_running:
        return False
    status = batch_end(runtime.batches.counts(batch.batch_id), fail_fast=batch.fail_fast)
    if status is None:
        return False
    return end_batch(
        runtime, batch, status, open_code=FAILED_FAST, open_error="another child of its batch failed"
    )


def end_batch(
    runtime: Runtime,
    batch: Batch,
    status: BatchEndStatus,
    *,
    open_code: str,
    open_error: str,
    error_code: str | None = None,
    error: str | None = None,
) -> bool:
    """End a batch, which is held, and cancel its open tasks for `open_code`; False where it had ended.

    `error_code` is what ended it, if that is not its children's doing.
    """
    store = runtime.batches
    ended = store.end(
        batch.batch_id,
        status,
        error_code=error_code,
        error=error,
        open_code=open_code,
        open_error=open_error,
    )
    if ended is None:
        return False
    runtime.turns.insert_edge(join_edge(ended, "response"))
    report(runtime, ended)
    return True


def report(runtime: Runtime, batch: Batch) -> None:
    """Answer the call of the parent that waits for the end of a batch, which is held.

    A turn that has not suspended yet is told when it does; one that waits no more is told nothing.
    """
    turn_id, call_id = batch.parent_turn_id, batch.parent_tool_call_id
    if batch.is_running or turn_id is None or call_id is None:
        return
    content = joined(batch, results_of(runtime, runtime.batches.tasks(batch.batch_id)))
    try:
        with runtime.transaction():
            report_result(runtime, turn_id, call_id, content, source_agent_id=BATCHES)
    except (NotFound, Conflict) as exc:
        if isinstance(exc, NotFound) and runtime.turns.head_of(turn_id) is not None:
            return
        if call_id in waited_for(runtime, turn_id):
            # Another turn's call of this id has the one report that may be: `why` tells of it.
            return
        _drop(runtime, batch, exc.message)
    runtime.batches.reported(batch.batch_id)


def waited_for(runtime: Runtime, agent_turn_id: str) -> set[str]:
    """The calls that a turn waits for, and that nothing has answered."""
    tools = runtime.turns.waiting_tools(agent_turn_id)
    return {tool.tool_call_id for tool in tools if tool.wait_status == WAITING}


def _drop(runtime: Runtime, batch: Batch, why: str) -> None:
    row = runtime.inbox.turn_row(batch.parent_turn_id or "")
    agent_id = batch.source_agent_id if row is None else row.agent_id
    runtime.audit.write_of_turn(
        Fence(agent_id, batch.parent_turn_id or "", 0),
        action="report-dropped",
        actor=WATCHDOG,
        reason=why,
        epoch_after=None,
        detail={"batch_id": batch.batch_id, "tool_call_id": batch.parent_tool_call_id},
    )


def results_of(runtime: Runtime, tasks: Sequence[BatchTask]) -> list[TaskResult]:
    """What the children of a batch delivered, in order."""
    summaries = summaries_of(runtime, tasks)
    return [result_of(task, summaries.get(task.task_index)) for task in tasks]


def summaries_of(runtime: Runtime, tasks: Sequence[BatchTask]) -> dict[int, str]:
    """The summary of each child's deliverable that can be seen, by its index."""
    wanted = {task.deliverable_card_id: task.task_index for task in tasks if task.deliverable_card_id}
    cards = runtime.cards.get_many(list(wanted)).cards if wanted else []
    return {wanted[card.card_id]: summary_of(card.content) for card in cards}


def join_edge(batch: Batch, phase: str) -> Edge:
    """The edge that says who waits for the batch, or that it has ended."""
    asked = (batch.source_agent_id, batch.parent_turn_id, batch.parent_step_id)
    source, target = (asked, (BATCHES, None, None)) if phase == "request" else ((BATCHES, None, None), asked)
    return Edge(
        edge_id=new_id("edge"),
        channel_id=batch.channel_id,
        primitive=JOIN,
        edge_phase=phase,
        source_agent_id=source[0],
        source_agent_turn_id=source[1],
        source_step_id=source[2],
        target_agent_id=target[0],
        target_agent_turn_id=target[1],
        correlation_id=batch.batch_id,
        enqueue_mode=None,
        recursion_depth=batch.recursion_depth,
        trace_id=batch.trace_id,
        parent_step_id=batch.parent_step_id,
        metadata={
            "batch_id": batch.batch_id,
            "task_count": batch.task_count,
            **({} if batch.parent_tool_call_id is None else {"tool_call_id": batch.parent_tool_call_id}),
            **({} if phase == "request" else {"status": batch.status}),
        },
        created_at=None,
    )
