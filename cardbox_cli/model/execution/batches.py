"""Values that describe batches and their children, and the names of their states. This module is pure.

`orchestration/batch_ends.py` decides how a batch ends.
"""

from datetime import datetime
from typing import Final, Literal

import msgspec

BatchStatus = Literal["running", "success", "failed", "timeout", "partial"]
BatchEndStatus = Literal["success", "failed", "timeout", "partial"]
IN_PROGRESS: Final = "running"
BATCH_STATUSES: tuple[BatchStatus, ...] = ("running", "success", "failed", "timeout", "partial")

TASK_PENDING, TASK_DISPATCHED = "pending", "dispatched"
TASK_OPEN = (TASK_PENDING, TASK_DISPATCHED)


def new_batch_id() -> str:
    """Return a new id: `batch_` and a UUIDv7 as 32 hex digits."""
    import uuid6

    return f"batch_{uuid6.uuid7().hex}"


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch. `parent_turn_id` is None if a person or a script created it.

    The end of the batch answers the call `parent_tool_call_id`. `report_due` is True if the batch has ended
    and that answer is not written yet. `error_code` is set if the batch ended before its children.
    """

    batch_id: str
    status: BatchStatus = IN_PROGRESS
    error_code: str | None = None
    error: str | None = None
    fail_fast: bool
    task_count: int
    request_sha256: str
    source_agent_id: str
    parent_turn_id: str | None
    parent_step_id: str | None
    parent_tool_call_id: str | None
    channel_id: str
    recursion_depth: int
    trace_id: str
    deadline_at: datetime
    report_due: bool = False
    join_box_id: str | None = None
    created_at: datetime
    ended_at: datetime | None = None

    @property
    def is_running(self) -> bool:
        return self.status == IN_PROGRESS


class BatchTask(msgspec.Struct, frozen=True, kw_only=True):
    """One child of a batch. `agent_turn_id` is None before its dispatch.

    `attempts` counts the dispatches that were refused temporarily. The next try is due at `next_try_at`.
    `stop_due` is True if the batch has ended and the child's turn must still be stopped.
    """

    batch_id: str
    task_index: int
    status: str = TASK_PENDING
    target_strategy: str
    target_ref: str
    agent_id: str
    context_box_id: str
    output_box_id: str | None
    agent_turn_id: str | None = None
    deliverable_card_id: str | None = None
    error_code: str | None = None
    error: str | None = None
    attempts: int = 0
    next_try_at: datetime
    stop_due: bool = False
    dispatched_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def is_open(self) -> bool:
        return self.status in TASK_OPEN

    @property
    def correlation_id(self) -> str:
        """Return the correlation id of the child's dispatch. It makes a second dispatch a replay."""
        return f"{self.batch_id}.{self.task_index}"
