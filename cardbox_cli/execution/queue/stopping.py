"""Take a turn away from its worker: end it, requeue it, or let another worker claim it.

Fixes of operators, stop rows in the inbox, expired leases and missed deadlines all use this module. It
increments the epoch of an active turn, so the old worker's writes fail. The caller opens the transaction,
locks the head, and writes the audit.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

from cardbox_cli.errors import Conflict
from cardbox_cli.execution.queue.messages import is_report, is_turn
from cardbox_cli.execution.queue.promotion import end_unpromoted, promote_next
from cardbox_cli.execution.queue.reports import append_received_results
from cardbox_cli.execution.queue.turn_ends import end_held
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.execution.situations import ClaimedSituation
from cardbox_cli.model.execution.turns import (
    APPLIED,
    DISPATCHED,
    QUEUED,
    RUNNING,
    EndStatus,
    Fence,
    Head,
    InboxRow,
    TurnEnd,
    WaitingTool,
)
from cardbox_cli.text.command_lines import quote_argument


def stop_turn(
    runtime: Runtime,
    head: Head | None,
    fence: Fence,
    end_status: EndStatus,
    *,
    error_code: str,
    message: str,
    report: bool = True,
) -> TurnEnd:
    """End an active, queued or orphaned turn. `head` is the locked head of its agent.

    `report` and the epoch of `fence` are ignored for an active turn. If `report` is False, the waiting call
    gets no report. Raises Conflict if another program has just promoted the turn.
    """
    turn_id = fence.agent_turn_id
    if head is not None and head.active_agent_turn_id == turn_id:
        return end_held(runtime, head, end_status, move="stop", error_code=error_code, message=message)
    rows = runtime.inbox.list_by_turn(turn_id)
    queued = [row.inbox_id for row in rows if is_turn(row) and row.status == QUEUED]
    if len(runtime.inbox.move(queued, "skip", error=message)) < len(queued):
        hint = f"run `cbx turn show {quote_argument(turn_id)}` to see its rows"
        raise Conflict(f"turn {turn_id} is no longer queued", hint=hint)
    runtime.inbox.close(turn_id)
    return end_unpromoted(runtime, fence, end_status, error_code=error_code, message=message, report=report)


def cancel_turn(runtime: Runtime, head: Head | None, fence: Fence, *, message: str) -> TurnEnd:
    """End the turn as canceled, with the error code `stopped`. Otherwise the same as `stop_turn`."""
    return stop_turn(runtime, head, fence, "canceled", error_code="stopped", message=message)


def return_to_queue(
    runtime: Runtime, head: Head, row: InboxRow, *, reason: str
) -> tuple[int | None, InboxRow | None]:
    """Put the turn of `row` back into its agent's queue with no tries counted, and promote the oldest turn.

    The turn begins again. Its output box keeps its cards, and gets the results that were received and not
    applied. Return the turn's new epoch (None if it is still queued) and the promoted row, if any.
    """
    epoch = None
    rows = runtime.inbox.list_by_turn(row.turn_id)
    if head.active_agent_turn_id == row.turn_id:
        append_received_results(runtime, head, runtime.turns.drop_waiting(row.turn_id))
        epoch = runtime.heads.free(head.fence, "stop")
        runtime.turns.close_steps(row.turn_id, "failed", reason)
        runtime.publish_state(head, "idle", epoch)
        runtime.inbox.move([each.inbox_id for each in rows if not is_turn(each)], "consume")
    runtime.inbox.drop_leases([each.inbox_id for each in rows])
    runtime.inbox.move(
        [row.inbox_id], "requeue", turn_epoch=0, attempts=-row.retry_count, delay=timedelta(0), error=reason
    )
    promoted = promote_next(runtime, head.agent_id, reason="requeue")
    if epoch is None and promoted is not None and promoted.turn_id == row.turn_id:
        epoch = promoted.turn_epoch
    return epoch, promoted


# --- claimed rows


def carries(row: InboxRow, head: Head, calls: Sequence[WaitingTool]) -> bool:
    """Return whether the row carries the head's turn, as the turn's own row or as the report that resumed it.

    `calls` are the calls that the turn waits for or has waited for. They are needed only for a report.
    """
    if head.fence != row.fence or head.status not in (DISPATCHED, RUNNING):
        return False
    if is_report(row):
        return any(call.tool_call_id == row.correlation_id and call.wait_status == APPLIED for call in calls)
    return is_turn(row)


def carried_head(found: ClaimedSituation) -> Head | None:
    head = found.head
    return head if head is not None and carries(found.row, head, found.calls or ()) else None


def return_row(
    runtime: Runtime,
    row: InboxRow,
    head: Head | None,
    move: Literal["defer", "release"],
    *,
    attempts: int,
    error: str | None,
    delay: timedelta = timedelta(0),
) -> int | None:
    """Make a claimed row due again. `head` is the head of the turn that the row carries, if it carries one.

    Return the new epoch of that turn, or None. A release also notifies the workers. Raises StaleEpoch.
    """
    fence = None if head is None else head.fence
    returned = runtime.inbox.return_to_inbox(row, fence, move, attempts=attempts, delay=delay, error=error)
    if returned is None and head is not None:
        raise runtime.heads.stale_error(head.fence, runtime.heads.get(head.agent_id))
    if returned is not None and move == "release":
        runtime.notify(returned, "released")
    return None if returned is None or head is None else returned.turn_epoch


def kill_row(runtime: Runtime, found: ClaimedSituation, *, error: str, error_code: str) -> None:
    """Make the row a dead letter, and end the turn that it carries as failed."""
    head, row = carried_head(found), found.row
    runtime.inbox.move([row.inbox_id], "kill", attempts=1, error=error)
    runtime.inbox.drop_leases([row.inbox_id])
    if head is not None:
        stop_turn(runtime, head, row.fence, "failed", error_code=error_code, message=error)
