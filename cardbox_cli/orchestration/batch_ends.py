"""What becomes of a batch: decided from values alone, without a database.

How a batch ends from the ends of its children, whether a refused dispatch is tried again, and what is told of
it: to the call of its parent, to people and scripts.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from cardbox_cli.errors import Conflict, NotFound
from cardbox_cli.execution.queue.reports import report_result
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.limits import JOINED_SIZE
from cardbox_cli.model.cards import card_text
from cardbox_cli.model.content import JsonContent, StoredContent, ToolResultContent
from cardbox_cli.model.execution.batches import TASK_OPEN, Batch, BatchEndStatus, BatchTask
from cardbox_cli.model.execution.turns import WAITING, WATCHDOG, Edge, Fence, new_id
from cardbox_cli.text import shortened

BATCHES = "sys.cbx.batches"
"""Who answers the calls of parents, and stops children."""

DISPATCHES = 5
"""How often a child is asked for that is refused for a while."""

FAILING = ("failed", "canceled", "timeout")
"""The ends of a child that end a batch which fails fast."""

_LONGEST_DELAY = 30
# What may pass by itself: the agent, or what it writes to, is in other hands for now.
_PASSING = frozenset({"agent_busy", "head_missing", "internal_error", "output_box_in_use"})

FAILED_FAST = "batch_failed_fast"
TIMED_OUT = "batch_timeout"
CANCELED = "canceled"
EXHAUSTED = "dispatch_retry_exhausted"


def batch_end(counts: Mapping[str, int], *, fail_fast: bool) -> BatchEndStatus | None:
    """How a batch ends whose tasks are in these states; None while it goes on."""
    found = {status for status, count in counts.items() if count}
    if fail_fast and found & set(FAILING):
        return "failed"
    if found & set(TASK_OPEN):
        return None
    if found == {"success"}:
        return "success"
    if "success" in found:
        return "partial"
    ranked: tuple[BatchEndStatus, ...] = ("failed", "timeout", "partial")
    return next((status for status in ranked if status in found), "failed")


def is_passing(error_code: str | None, status: str) -> bool:
    """Whether a dispatch that was refused for this may be accepted later."""
    return status == "busy" or error_code in _PASSING


def retry_delay(attempts: int) -> timedelta:
    """How long to wait after so many refusals, from 1 on: 2, 4, 8, 16, and then always 30 seconds."""
    return timedelta(seconds=min(2.0 ** min(attempts, 10), _LONGEST_DELAY))


class TaskResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a parent reads of a child: no ids of agents or turns."""

    task_index: int
    status: str
    summary: str | None = None
    output_box_id: str | None = None
    error: dict[str, str] | None = None


def result_of(task: BatchTask, summary: str | None) -> TaskResult:
    """What a parent reads of a child that delivered this."""
    return TaskResult(
        task_index=task.task_index,
        status=task.status,
        summary=summary,
        output_box_id=task.output_box_id if task.agent_turn_id else None,
        error=error_of(task),
    )


def error_of(task: BatchTask) -> dict[str, str] | None:
    """Why a child is no success; None of one that is, or that goes on untroubled."""
    if task.status == "success" or (task.is_open and task.error_code is None):
        return None
    code = task.error_code or f"turn_{task.status}"
    return {"code": code, "message": task.error or f"the child ended: {task.status}"}


def joined(batch: Batch, results: Sequence[TaskResult]) -> ToolResultContent:
    """What answers the call of the parent: the results in task order, in the error too where it failed.

    What all summaries quote together is bounded; the boxes have the whole.
    """
    share = JOINED_SIZE.value // max(len(results), 1)
    ordered = sorted(results, key=lambda each: each.task_index)
    told = [msgspec.to_builtins(_shortened(each, share)) for each in ordered]
    result = {"status": batch.status, "results": told}
    if batch.status == "success":
        return ToolResultContent("success", "suspend", result=result)
    detail = {"batch_id": batch.batch_id, "status": batch.status, "results": told}
    message = batch.error or in_words(batch, [each.status for each in results])
    error = {"code": batch.error_code or "batch_failed", "message": message, "detail": detail}
    return ToolResultContent(batch.status, "suspend", result=result, error=error)


def _shortened(result: TaskResult, most: int) -> TaskResult:
    summary = None if result.summary is None else shortened(result.summary, most)
    return msgspec.structs.replace(result, summary=summary)


def in_words(batch: Batch, statuses: Sequence[str]) -> str:
    """How a batch ended, as a sentence."""
    succeeded = sum(status == "success" for status in statuses)
    return f"the batch ended: {batch.status}; {succeeded} of {len(statuses)} children succeeded"


def summary_of(content: StoredContent) -> str:
    """What a deliverable says in short: its field `summary`, else all its text."""
    data: Any = content.data if isinstance(content, JsonContent) else None
    fields = data.get("fields") if isinstance(data, dict) else None
    for field in fields if isinstance(fields, list) else ():
        if isinstance(field, dict) and field.get("name") == "summary" and isinstance(field.get("value"), str):
            return str(field["value"])
    return card_text(content)


# How a batch ends: once, by one compare-and-set, with the edge and the one result that its parent waits for
# in the same transaction.
#
# Whoever ends it holds it, and no head: children that still run are stopped after the commit, by
# `children.py`.


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
