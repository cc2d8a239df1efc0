"""The end of an active turn: one transaction that every way to end it goes through, and that can happen once.

Makes sure of the deliverable, frees the agent, closes what is open of the turn, promotes the next, reports to
the call that waits for it, and tells the followers. A turn that is ended from outside its run ends by
`stopping.py`.
"""

from typing import Any

from cardbox_cli.execution.queue.deliverables import deliver, fallback
from cardbox_cli.execution.queue.promotion import ended_before, promote_next
from cardbox_cli.execution.queue.reports import report_end
from cardbox_cli.execution.runtime import Ended, Runtime
from cardbox_cli.model.execution.ending import EndMove, decide_end
from cardbox_cli.model.execution.turns import End, EndStatus, Fence, Head


def end_turn(
    runtime: Runtime,
    fence: Fence,
    end_status: EndStatus,
    *,
    move: EndMove = "end",
    error_code: str | None = None,
    message: str | None = None,
    details: dict[str, Any] | None = None,
) -> End:
    """End the active turn at `fence`, by the head's move `end`, or `stop` which adds to the epoch.

    `message` and `details` go into the fallback deliverable of a turn that has none of its own. A turn that
    has ended before, and that another program ran once more, leaves its agent, and its end stays as it was.
    Raises StaleEpoch where the turn is not at that epoch any more; nothing is written then.
    """
    with runtime.transaction(savepoint=False):
        head = runtime.heads.hold(fence)
        return end_held(
            runtime, head, end_status, move=move, error_code=error_code, message=message, details=details
        )


def end_held(
    runtime: Runtime,
    head: Head,
    end_status: EndStatus,
    *,
    move: EndMove = "end",
    error_code: str | None = None,
    message: str | None = None,
    details: dict[str, Any] | None = None,
) -> End:
    """`end_turn` for a head that the caller holds, in his transaction: read, decide, write."""
    runtime.database.require_execution()
    fence = head.fence
    found = runtime.ends.situation(fence)
    plan = decide_end(
        found,
        end_status,
        move=move,
        output_box_id=head.output_box_id,
        error_code=error_code,
        message=message,
    )
    deliverable = found.deliverable
    if plan.needs_deliverable:
        words = message or "the turn ended without a deliverable of its own"
        draft = fallback(fence, end_status, error_code, words, details)
        deliverable = deliver(runtime, draft, output_box_id=head.output_box_id, head=head)
    after = runtime.ends.write(fence, plan, deliverable, found.now)
    if after is None:
        raise runtime.heads.stale(fence, runtime.heads.get(fence.agent_id))
    if plan.is_repeated:
        runtime.publish_state(head, "idle", after)
        assert found.record is not None
        return ended_before(found.record, promote_next(runtime, fence.agent_id))
    assert deliverable is not None
    error = message if error_code else None
    runtime.publish_end(head, end_status, deliverable, error=error, error_code=error_code)
    runtime.publish_state(head, "idle", after)
    promoted = promote_next(runtime, fence.agent_id)
    if found.record is not None:
        report_end(runtime, found.record, end_status, deliverable, message)
    runtime.follow_end(
        Ended(
            agent_turn_id=fence.agent_turn_id,
            agent_id=fence.agent_id,
            end_status=end_status,
            deliverable_card_id=deliverable,
            error_code=error_code,
            message=message,
        )
    )
    return End(
        agent_turn_id=fence.agent_turn_id,
        end_status=end_status,
        deliverable_card_id=deliverable,
        promoted_turn_id=promoted.turn_id if promoted else None,
    )
