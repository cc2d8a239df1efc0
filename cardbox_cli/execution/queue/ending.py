"""The end of an active turn: one transaction that every way to end it goes through, and that can happen once.

Makes sure of the deliverable, frees the agent, closes what is open of the turn, reports to the call that
waits for it, and promotes the next. Who may end a turn, and why, is the caller's business; a turn that its
agent is not at ends by `promotion.py`.
"""

from typing import Any

from cardbox_cli.errors import Conflict
from cardbox_cli.execution.dispatch.promotion import end_unpromoted, promote_next
from cardbox_cli.execution.queue.deliverables import ensure_deliverable, fallback
from cardbox_cli.execution.queue.reports import report_end
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.execution.turns import End, EndStatus, Fence, Head, InboxRow, TurnRecord


def end_turn(
    runtime: Runtime,
    fence: Fence,
    end_status: EndStatus,
    *,
    move: str = "end",
    error_code: str | None = None,
    message: str | None = None,
    details: dict[str, Any] | None = None,
) -> End:
    """End the active turn at `fence`, by the head's move `end`, or `stop` which adds to the epoch.

    `message` and `details` go into the fallback deliverable of a turn that has none of its own. A turn that
    has ended before leaves its agent, and nothing else changes.
    Raises StaleEpoch where the turn is not at that epoch any more; nothing is written then.
    """
    with runtime.transaction():
        head = runtime.heads.hold(fence)
        record = _record(runtime, head)
        if record.end_status is not None:
            return _end_again(runtime, head, record, move)
        deliverable = _deliverable(runtime, head, record, end_status, error_code, message, details)
        after = runtime.heads.free(fence, move)
        ended = Fence(fence.agent_id, fence.agent_turn_id, after)
        runtime.turns.end(
            ended,
            end_status=end_status,
            deliverable_card_id=deliverable,
            error_code=error_code,
            error=message,
        )
        runtime.inbox.close(fence.agent_turn_id)
        runtime.turns.drop_waiting(fence.agent_turn_id)
        runtime.turns.close_steps(
            fence.agent_turn_id, "completed" if end_status == "success" else "failed", message
        )
        if head.output_box_id is not None:
            runtime.heads.remember_output(fence.agent_id, head.output_box_id)
        runtime.tell_end(
            head,
            end_status,
            deliverable_card_id=deliverable,
            error=message if error_code else None,
            error_code=error_code,
        )
        runtime.tell_state(head, "idle", after)
        promoted = promote_next(runtime, fence.agent_id)
        if record.report_to is not None:
            report_end(runtime, record, end_status, deliverable, message)
    return End(
        agent_turn_id=fence.agent_turn_id,
        end_status=end_status,
        deliverable_card_id=deliverable,
        promoted_turn_id=promoted.turn_id if promoted else None,
    )


def _end_again(runtime: Runtime, head: Head, record: TurnRecord, move: str) -> End:
    """Free the agent of a turn that another program ran once more: it ended as it ended."""
    turn_id = record.agent_turn_id
    after = runtime.heads.free(head.fence, move)
    runtime.inbox.close(turn_id)
    runtime.turns.drop_waiting(turn_id)
    runtime.turns.close_steps(turn_id, "failed", "its turn had ended before")
    runtime.tell_state(head, "idle", after)
    promoted = promote_next(runtime, head.agent_id)
    return End(
        agent_turn_id=turn_id,
        end_status=record.end_status or "",
        deliverable_card_id=record.deliverable_card_id,
        promoted_turn_id=promoted.turn_id if promoted else None,
        created=False,
    )


def end_queued(runtime: Runtime, row: InboxRow, *, message: str) -> End:
    """End a turn that is still queued, as canceled. The head of its agent is held."""
    with runtime.transaction():
        skipped = runtime.inbox.move([row.inbox_id], "skip", error=message)
        if not skipped:
            raise Conflict(f"turn {row.turn_id} is not queued any more", hint="`cbx turn show` tells more")
        return end_unpromoted(runtime, row, "canceled", error_code="stopped", message=message)


def _record(runtime: Runtime, head: Head) -> TurnRecord:
    runtime.database.require_execution()
    turn_id = head.fence.agent_turn_id
    runtime.turns.keep(turn_id, head.agent_id, output_start=0, report_to=None)
    record = runtime.turns.record(turn_id)
    assert record is not None
    return record


def _deliverable(
    runtime: Runtime,
    head: Head,
    record: TurnRecord,
    end_status: EndStatus,
    error_code: str | None,
    message: str | None,
    details: dict[str, Any] | None,
) -> str:
    draft = fallback(
        agent_id=head.agent_id,
        agent_turn_id=head.fence.agent_turn_id,
        end_status=end_status,
        error_code=error_code,
        message=message or "the turn ended without a deliverable of its own",
        details=details,
    )
    return ensure_deliverable(
        runtime,
        draft,
        output_box_id=head.output_box_id,
        start=record.output_start or 0,
        fence=head.fence,
    )
