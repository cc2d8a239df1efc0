"""Batches, as values: children that were asked for together, and one result for all of their ends.

Owns the names of the states. How a batch ends is `orchestration/batch_ends.py`'s. Does no I/O.
"""

from datetime import datetime
from typing import Final, Literal

import msgspec

from cardbox_cli.model.execution.turns import END_STATUSES

BatchStatus = Literal["running", "success", "failed", "timeout", "partial"]
BatchEndStatus = Literal["success", "failed", "timeout", "partial"]
IN_PROGRESS: Final = "running"
BATCH_STATUSES: tuple[BatchStatus, ...] = ("running", "success", "failed", "timeout", "partial")

TASK_PENDING, TASK_DISPATCHED = "pending", "dispatched"
TASK_OPEN = (TASK_PENDING, TASK_DISPATCHED)
TASK_STATUSES = (*TASK_OPEN, *END_STATUSES)


def new_batch_id() -> str:
    """`batch_` and a UUIDv7 as 32 hex digits."""
    import uuid6

    return f"batch_{uuid6.uuid7().hex}"


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch. `parent_turn_id` is None where no turn asked for it, but a person or a script.

    `parent_tool_call_id` is the call that its end answers; `report_due`: it does not yet, although the batch
    has ended. `error_code` says why it ended before its children did.
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
        """Whether it has not ended."""
        return self.status == IN_PROGRESS


class BatchTask(msgspec.Struct, frozen=True, kw_only=True):
    """One child of a batch. `agent_turn_id` is None before it was dispatched.

    `attempts` counts dispatches that were refused for a while; the next is due at `next_try_at`. `stop_due`:
    the batch has ended, and the child's turn is still to be stopped.
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
        """Whether its end is still to come."""
        return self.status in TASK_OPEN

    @property
    def correlation_id(self) -> str:
        """What its dispatch is known by: a second one answers with the first one's turn."""
        return f"{self.batch_id}.{self.task_index}"
