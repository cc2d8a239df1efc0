"""What becomes of a batch: decided from values alone, without a database.

How a batch ends from the ends of its children, whether a refused dispatch is tried again, and what is told of
it: to the call of its parent, to people and scripts.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from cardbox_cli.limits import JOINED_SIZE
from cardbox_cli.model.cards import card_text
from cardbox_cli.model.content import JsonContent, StoredContent, ToolResultContent
from cardbox_cli.model.execution.batches import TASK_OPEN, Batch, BatchEndStatus, BatchTask
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
