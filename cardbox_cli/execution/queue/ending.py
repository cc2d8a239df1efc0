"""The end of an active turn: one transaction that every way to end it goes through, and that can happen once.

Makes sure of the deliverable, frees the agent, closes what is open of the turn, promotes the next, reports to
the call that waits for it, and tells the followers. A turn that is ended from outside its run ends by
`stopping.py`.
"""

from typing import Any, Literal

from cardbox_cli.execution.following import Ended
from cardbox_cli.execution.queue.deliverables import ensure_deliverable, fallback
from cardbox_cli.execution.queue.promotion import ended_before, promote_next
from cardbox_cli.execution.queue.reports import report_end
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.execution.turns import End, EndStatus, Fence, Head


def end_turn(
    runtime: Runtime,
    fence: Fence,
    end_status: EndStatus,
    *,
    move: Literal["end", "stop"] = "end",
    error_code: str | None = None,
    message: str | None = None,
    details: dict[str, Any] | None = None,
) -> End:
    """End the active turn at `fence`, by the head's move `end`, or `stop` which adds to the epoch.

    `message` and `details` go into the fallback deliverable of a turn that has none of its own. A turn that
    has ended before, and that another program ran once more, leaves its agent, and its end stays as it was.
    Raises StaleEpoch where the turn is not at that epoch any more; nothing is written then.
    """
    with runtime.transaction():
        head = runtime.heads.hold(fence)
        runtime.database.require_execution()
        turn_id = fence.agent_turn_id
        record = runtime.turns.begun_record(turn_id, fence.agent_id, output_start=0)
        if record.end_status is not None:
            leave_agent(runtime, head, move, "failed", "its turn had ended before")
            runtime.inbox.close(turn_id)
            return ended_before(record, promote_next(runtime, fence.agent_id))
        words = message or "the turn ended without a deliverable of its own"
        draft = fallback(fence, end_status, error_code, words, details)
        deliverable = ensure_deliverable(
            runtime, draft, output_box_id=head.output_box_id, start=record.output_start or 0, fence=fence
        )
        error = message if error_code else None
        runtime.publish_end(head, end_status, deliverable, error=error, error_code=error_code)
        step_status = "completed" if end_status == "success" else "failed"
        after = leave_agent(runtime, head, move, step_status, message)
        runtime.turns.end(
            head.fence_at(after),
            end_status=end_status,
            deliverable_card_id=deliverable,
            error_code=error_code,
            error=message,
        )
        runtime.inbox.close(turn_id)
        if head.output_box_id is not None:
            runtime.heads.remember_output(fence.agent_id, head.output_box_id)
        promoted = promote_next(runtime, fence.agent_id)
        report_end(runtime, record, end_status, deliverable, message)
        runtime.follow_end(
            Ended(
                agent_turn_id=turn_id,
                agent_id=fence.agent_id,
                end_status=end_status,
                deliverable_card_id=deliverable,
                error_code=error_code,
                message=message,
            )
        )
    return End(
        agent_turn_id=turn_id,
        end_status=end_status,
        deliverable_card_id=deliverable,
        promoted_turn_id=promoted.turn_id if promoted else None,
    )


def leave_agent(
    runtime: Runtime, head: Head, move: Literal["end", "stop"], step_status: str, error: str | None
) -> int:
    """Free the agent of its turn, which then waits for nothing and has no open step; the epoch after it."""
    turn_id = head.fence.agent_turn_id
    after = runtime.heads.free(head.fence, move)
    runtime.turns.drop_waiting(turn_id)
    runtime.turns.close_steps(turn_id, step_status, error)
    runtime.publish_state(head, "idle", after)
    return after
