"""Taking a turn away from whoever has it, from outside its run: it is ended, put back into its agent's queue,
or made to wait for another claim.

Every such path goes through here: an operator's, a stop in the inbox, a lease or a deadline that is over.
Each adds to the epoch of an active turn, so that the old worker's writes fail. The caller has opened the
transaction and holds the head; who decided so, and why, is for the caller to audit.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

from cardbox_cli.errors import Conflict
from cardbox_cli.execution.queue.messages import is_report, is_turn
from cardbox_cli.execution.queue.promotion import end_unpromoted, promote_next
from cardbox_cli.execution.queue.reports import keep_results
from cardbox_cli.execution.queue.turn_ends import end_held
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.execution.situations import ClaimedSituation
from cardbox_cli.model.execution.turns import (
    APPLIED,
    DISPATCHED,
    QUEUED,
    RUNNING,
    End,
    EndStatus,
    Fence,
    Head,
    InboxRow,
    WaitingTool,
)


def stop_turn(
    runtime: Runtime,
    head: Head | None,
    fence: Fence,
    end_status: EndStatus,
    *,
    error_code: str,
    message: str,
    report: bool = True,
) -> End:
    """End the turn of `fence`, whether its agent, whose head is held, is at it, or it is queued, or orphaned.

    The epoch of `fence` counts only where the agent is not at the turn. Without `report` the call that waits
    for the end of such a turn gets none. Raises Conflict where another program promotes it meanwhile.
    """
    turn_id = fence.agent_turn_id
    if head is not None and head.active_agent_turn_id == turn_id:
        return end_held(runtime, head, end_status, move="stop", error_code=error_code, message=message)
    rows = runtime.inbox.of_turn(turn_id)
    queued = [row.inbox_id for row in rows if is_turn(row) and row.status == QUEUED]
    if len(runtime.inbox.move(queued, "skip", error=message)) < len(queued):
        raise Conflict(f"turn {turn_id} is not queued any more", hint="`cbx turn show` shows its rows")
    runtime.inbox.close(turn_id)
    return end_unpromoted(runtime, fence, end_status, error_code=error_code, message=message, report=report)


def cancel_turn(runtime: Runtime, head: Head | None, fence: Fence, *, message: str) -> End:
    """`stop_turn` because somebody asked for that, by a command or by a stop in the inbox."""
    return stop_turn(runtime, head, fence, "canceled", error_code="stopped", message=message)


def put_back(
    runtime: Runtime, head: Head, row: InboxRow, *, reason: str
) -> tuple[int | None, InboxRow | None]:
    """Put the turn of `row` back into its agent's queue, to begin anew, with as many tries as a new one.

    What it wrote stays in its output box, where results go that had come and were not applied yet. The epoch
    after it, None where the agent was at another turn, and the row that was promoted then.
    """
    epoch = None
    rows = runtime.inbox.of_turn(row.turn_id)
    if head.active_agent_turn_id == row.turn_id:
        keep_results(runtime, head, runtime.turns.drop_waiting(row.turn_id))
        epoch = _leave_agent(runtime, head, reason)
        runtime.inbox.move([each.inbox_id for each in rows if not is_turn(each)], "consume")
    runtime.inbox.drop_leases([each.inbox_id for each in rows])
    runtime.inbox.move(
        [row.inbox_id], "requeue", turn_epoch=0, attempts=-row.retry_count, delay=timedelta(0), error=reason
    )
    promoted = promote_next(runtime, head.agent_id, reason="requeue")
    if epoch is None and promoted is not None and promoted.turn_id == row.turn_id:
        epoch = promoted.turn_epoch
    return epoch, promoted


def _leave_agent(runtime: Runtime, head: Head, reason: str) -> int:
    """Free the agent of its turn, which has no open step then; the epoch after it."""
    after = runtime.heads.free(head.fence, "stop")
    runtime.turns.close_steps(head.fence.agent_turn_id, "failed", reason)
    runtime.publish_state(head, "idle", after)
    return after


# --- claimed rows


def carries(row: InboxRow, head: Head, calls: Sequence[WaitingTool]) -> bool:
    """Whether the turn of the head goes on by this row: its own row, or the report that resumed it.

    `calls` are those that the turn waits or waited for; a row that is no report is carried without them.
    """
    if head.fence != row.fence or head.status not in (DISPATCHED, RUNNING):
        return False
    if is_report(row):
        return any(call.tool_call_id == row.correlation_id and call.wait_status == APPLIED for call in calls)
    return is_turn(row)


def carried(found: ClaimedSituation) -> Head | None:
    """The head whose turn the claimed row carries; None where it carries none."""
    head = found.head
    return head if head is not None and carries(found.row, head, found.calls or ()) else None


def give_back(
    runtime: Runtime,
    row: InboxRow,
    head: Head | None,
    move: Literal["defer", "release"],
    *,
    attempts: int,
    error: str | None,
    delay: timedelta = timedelta(0),
) -> int | None:
    """Give a claimed row back to be claimed anew, and the turn of the head that it carries, None for none.

    The new epoch of that turn. Who may claim what is released is notified. Raises StaleEpoch.
    """
    fence = None if head is None else head.fence
    given = runtime.inbox.give_back(row, fence, move, attempts=attempts, delay=delay, error=error)
    if given is None and head is not None:
        raise runtime.heads.stale(head.fence, runtime.heads.get(head.agent_id))
    if given is not None and move == "release":
        runtime.notify(given, "released")
    return None if given is None or head is None else given.turn_epoch


def kill(runtime: Runtime, found: ClaimedSituation, *, error: str, error_code: str) -> None:
    """Make the row a dead letter, and a turn that it carries failed, whoever has it."""
    head, row = carried(found), found.row
    runtime.inbox.move([row.inbox_id], "kill", attempts=1, error=error)
    runtime.inbox.drop_leases([row.inbox_id])
    if head is not None:
        stop_turn(runtime, head, row.fence, "failed", error_code=error_code, message=error)
