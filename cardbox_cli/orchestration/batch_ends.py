"""The end of a batch: decide it from the ends of the children, write it once, and report it to the parent.

One transaction ends a batch by a compare-and-set, and writes the edge and the result for which the parent
waits. The caller must hold the lock on the batch and no lock on a head. After the commit, `batch_manager.py`
stops children that still run. This module also decides whether a refused dispatch is tried again.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from cardbox_cli.errors import Conflict, NotFound
from cardbox_cli.execution.queue.reports import report_result
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.limits import QUOTED_SIZE
from cardbox_cli.model.cards import card_text
from cardbox_cli.model.content import JsonContent, StoredContent, ToolResultContent
from cardbox_cli.model.execution.batches import TASK_OPEN, Batch, BatchEndStatus, BatchTask
from cardbox_cli.model.execution.turns import WAITING, WATCHDOG, Edge, Fence, new_id
from cardbox_cli.text.escaping import truncate

BATCH_ACTOR = "sys.cbx.batches"
"""The author of results for parents, and of stops of children."""

MAX_DISPATCHES = 5
"""The maximum number of times that a child is dispatched after temporary refusals."""

FAILING = ("failed", "canceled", "timeout")
"""The end statuses of a child at which a batch with `fail_fast` ends."""

_MAX_DELAY_SECONDS = 30
# The error codes of refusals that may be temporary, for example because another process uses the agent.
_PASSING = frozenset({"agent_busy", "head_missing", "internal_error", "output_box_in_use"})

FAILED_FAST = "batch_failed_fast"
TIMED_OUT = "batch_timeout"
CANCELED = "canceled"
EXHAUSTED = "dispatch_retry_exhausted"


def batch_end(counts: Mapping[str, int], *, fail_fast: bool) -> BatchEndStatus | None:
    """Return the end status of a batch, or None while it continues. `counts` has the tasks of each state."""
    present = {status for status, count in counts.items() if count}
    if fail_fast and present & set(FAILING):
        return "failed"
    if present & set(TASK_OPEN):
        return None
    if "success" in present:
        return "success" if present == {"success"} else "partial"
    ranked: tuple[BatchEndStatus, ...] = ("failed", "timeout", "partial")
    return next((status for status in ranked if status in present), "failed")


def is_passing(error_code: str | None, status: str) -> bool:
    """Return whether a dispatch that was refused for this reason may be accepted later."""
    return status == "busy" or error_code in _PASSING


def retry_delay(attempts: int) -> timedelta:
    """Return the wait after the given number of refusals: 2, 4, 8, 16, and then always 30 seconds."""
    return timedelta(seconds=min(2.0 ** min(attempts, 10), _MAX_DELAY_SECONDS))


class TaskResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A child's result for the parent, without ids of agents or turns."""

    task_index: int
    status: str
    summary: str | None = None
    output_box_id: str | None = None
    error: dict[str, str] | None = None


def task_result(task: BatchTask, summary: str | None) -> TaskResult:
    return TaskResult(
        task_index=task.task_index,
        status=task.status,
        summary=summary,
        output_box_id=output_of(task),
        error=error_of(task),
    )


def output_of(task: BatchTask) -> str | None:
    """Return the output box of a task that has run, in this batch or in the one that it retries."""
    return task.output_box_id if task.agent_turn_id or not task.is_open else None


def error_of(task: BatchTask) -> dict[str, str] | None:
    """Return the error of a child, or None if it has succeeded, or runs and has no error yet."""
    if task.status == "success" or (task.is_open and task.error_code is None):
        return None
    code = task.error_code or f"turn_{task.status}"
    return {"code": code, "message": task.error or f"the child ended: {task.status}"}


def joined_result(batch: Batch, results: Sequence[TaskResult]) -> ToolResultContent:
    """Return the tool result for the parent, with the children's results in task order.

    The total length of the summaries is limited, because the boxes have the full texts.
    """
    share = QUOTED_SIZE.value // max(len(results), 1)
    quoted = [msgspec.to_builtins(each) for each in sorted(results, key=lambda each: each.task_index)]
    for each in quoted:
        if "summary" in each:
            each["summary"] = truncate(each["summary"], share)
    result = {"status": batch.status, "results": quoted}
    if batch.status == "success":
        return ToolResultContent("success", "suspend", result=result)
    detail = {"batch_id": batch.batch_id, "status": batch.status, "results": quoted}
    message = batch.error or end_message(batch, [each.status for each in results])
    error = {"code": batch.error_code or "batch_failed", "message": message, "detail": detail}
    return ToolResultContent(batch.status, "suspend", result=result, error=error)


def end_message(batch: Batch, statuses: Sequence[str]) -> str:
    succeeded = sum(status == "success" for status in statuses)
    return f"the batch ended: {batch.status}; {succeeded} of {len(statuses)} children succeeded"


def summary_of(content: StoredContent) -> str:
    """Return the field `summary` of a deliverable, or else its whole text."""
    data: Any = content.data if isinstance(content, JsonContent) else None
    fields = data.get("fields") if isinstance(data, dict) else None
    for field in fields if isinstance(fields, list) else ():
        if isinstance(field, dict) and field.get("name") == "summary" and isinstance(field.get("value"), str):
            return str(field["value"])
    return card_text(content)


JOIN = "join"


def end_if_decided(runtime: Runtime, batch: Batch) -> bool:
    """End a locked batch if the states of its tasks decide its end. Return whether it ended."""
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
    """End a locked batch, and cancel its open tasks. Return False if it had already ended.

    The canceled tasks get `open_code` and `open_error`. `error_code` is None if its children decide the end.
    """
    ended = runtime.batches.end(
        batch.batch_id, status, error_code=error_code, error=error, open_code=open_code, open_error=open_error
    )
    if ended is None:
        return False
    runtime.turns.insert_edge(join_edge(ended, "response"))
    report(runtime, ended)
    return True


def report(runtime: Runtime, batch: Batch) -> None:
    """Report the end of a locked batch to the parent's tool call, if it waits.

    If the parent has not suspended yet, it gets the report at its suspension.
    """
    turn_id, call_id = batch.parent_turn_id, batch.parent_tool_call_id
    if batch.is_running or turn_id is None or call_id is None:
        return
    tasks = runtime.batches.tasks(batch.batch_id)
    summaries = summaries_of(runtime, tasks)
    content = joined_result(batch, [task_result(task, summaries.get(task.task_index)) for task in tasks])
    try:
        with runtime.transaction():
            report_result(runtime, turn_id, call_id, content, source_agent_id=BATCH_ACTOR)
    except (NotFound, Conflict) as exc:
        if isinstance(exc, NotFound) and runtime.turns.head_of(turn_id) is not None:
            return
        if call_id in waiting_call_ids(runtime, turn_id):
            # A call of another turn has the same id, and the one report of this id. `cbx why` explains this.
            return
        row = runtime.inbox.turn_row(turn_id)
        runtime.audit.write_of_turn(
            Fence(batch.source_agent_id if row is None else row.agent_id, turn_id, 0),
            action="report-dropped",
            actor=WATCHDOG,
            reason=exc.message,
            epoch_after=None,
            detail={"batch_id": batch.batch_id, "tool_call_id": call_id},
        )
    runtime.batches.record_report(batch.batch_id)


def waiting_call_ids(runtime: Runtime, agent_turn_id: str) -> set[str]:
    """Return the ids of a turn's calls that wait for a result."""
    tools = runtime.turns.waiting_tools(agent_turn_id)
    return {tool.tool_call_id for tool in tools if tool.wait_status == WAITING}


def summaries_of(runtime: Runtime, tasks: Sequence[BatchTask]) -> dict[int, str]:
    """Return the summaries of the visible deliverables, by task index."""
    task_indexes = {task.deliverable_card_id: task.task_index for task in tasks if task.deliverable_card_id}
    cards = runtime.cards.get_many(list(task_indexes)).cards if task_indexes else []
    return {task_indexes[card.card_id]: summary_of(card.content) for card in cards}


def join_edge(batch: Batch, phase: str, *, retry_of: str | None = None) -> Edge:
    """Return the edge of a batch. Phase `request` records the turn that waits for it, `response` its end.

    `retry_of` is the batch that a new batch retries.
    """
    ends = [(batch.source_agent_id, batch.parent_turn_id, batch.parent_step_id), (BATCH_ACTOR, None, None)]
    source, target = ends if phase == "request" else reversed(ends)
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
            **({} if retry_of is None else {"retry_of": retry_of}),
        },
        created_at=None,
    )
