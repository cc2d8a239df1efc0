"""Promotion: an idle agent is assigned to its oldest queued turn, whose row is pending from then on.

One read of all that decides, the decision, one write of every row.

A queued row that no worker could run becomes a dead letter, its turn ends as failed, and the next one is
looked at. One that asks again for a turn which has a row already is skipped: a turn runs once. The caller
holds the head.
"""

from typing import Any

import msgspec

from cardbox_cli.errors import BoxConflict
from cardbox_cli.execution.queue.messages import CONTROL_KEYS, TURN
from cardbox_cli.execution.queue.reports import report_end
from cardbox_cli.execution.runtime import Ended, Runtime
from cardbox_cli.model.cards import CardDraft, draft_card
from cardbox_cli.model.content import FALLBACK, JsonContent
from cardbox_cli.model.execution.headers import names_depth
from cardbox_cli.model.execution.situations import PromotionSituation
from cardbox_cli.model.execution.turns import End, EndStatus, Fence, Head, InboxRow, TurnRecord
from cardbox_cli.model.ids import as_box_id

# The deliverable that every turn leaves: its own, or a fallback that says why there is none.
#
# The fallback's fields are those that workers of the card-box protocol v1r4 write.


def fallback(
    fence: Fence, end_status: str, error_code: str | None, message: str, details: dict[str, Any] | None = None
) -> CardDraft:
    """A deliverable for a turn that made none; `details` is shown to people, such as the end of stderr."""
    data = {
        "schema_version": 1,
        "kind": FALLBACK,
        "status": end_status,
        "partial": end_status != "success",
        "message": message,
        "fields": [
            {"name": "summary", "value": message},
            {"name": "output", "value": ""},
            {"name": "reason", "value": error_code or end_status},
        ],
        "diagnostics": details or {},
    }
    return draft_card(
        "task.deliverable",
        JsonContent(data),
        author_id=fence.agent_id,
        metadata={
            "agent_turn_id": fence.agent_turn_id,
            "partial": end_status != "success",
            "terminal_reason": error_code or end_status,
        },
    )


def deliver(
    runtime: Runtime, draft: CardDraft, *, output_box_id: str | None, head: Head | None = None
) -> str:
    """Append `draft`, whose id this is, to the output box, or to a new one. A box that is gone is made again.

    `head` is that of the turn, where it is active; it is held.
    """
    runtime.cards.add(draft)
    try:
        box_id = runtime.boxes.ensure(output_box_id).box_id if output_box_id is not None else None
    except BoxConflict:
        # Its id is that of another project's box.
        box_id = None
    if box_id is None:
        runtime.boxes.create([draft.card_id])
    else:
        runtime.boxes.append(box_id, [draft.card_id], held=head)
    return draft.card_id


class Skipped(msgspec.Struct, frozen=True):
    """The row asks for a turn that has run, or that an older row asks for."""


class Unfit(msgspec.Struct, frozen=True):
    """No worker could run this row: why, as an error code and a sentence."""

    error_code: str
    problem: str


def decide(found: PromotionSituation, *, is_taken: bool = False) -> Skipped | Unfit | None:
    """What is in the way of the promotion of a row; None where nothing is.

    `is_taken`: its output box could not be made.
    """
    # Other programs queue a turn again while it runs.
    if found.is_repeated or found.end_status is not None:
        return Skipped()
    problem = unreadable(found.row)
    if problem is None and found.output_user is not None:
        turn_id, agent_id = found.output_user
        problem = "output_box_in_use", f"turn {turn_id} of agent {agent_id!r} writes to its output box"
    if problem is None and is_taken and not found.has_output_box:
        problem = "output_box_not_found", f"the box id {found.row.pointer('output_box_id')!r} is taken"
    return None if problem is None else Unfit(*problem)


def promote_next(runtime: Runtime, agent_id: str, *, reason: str = "dispatch_next") -> InboxRow | None:
    """Promote the oldest queued turn of an agent; None where it is not idle, or nothing is queued."""
    missed: str | None = None
    while (found := runtime.dispatches.promotion(agent_id)) is not None:
        row = found.row
        match decide(found, is_taken=row.inbox_id == missed):
            case Skipped():
                runtime.inbox.move([row.inbox_id], "skip", error="its turn has run, or has an older row")
            case Unfit(error_code, problem):
                _refuse(runtime, row, error_code, problem)
            case None:
                promoted = runtime.dispatches.promote(found)
                if promoted is not None:
                    runtime.notify_target(promoted, found.worker_target, reason)
                    return promoted
                # Another transaction has the box: whose it is, the next look finds, which has waited for it.
                missed = row.inbox_id
    return None


def unreadable(row: InboxRow) -> tuple[str, str] | None:
    """Why nobody can make a run of what this row says: an error code and a sentence; None where one can."""
    payload = row.payload
    if not isinstance(payload, dict):
        return "invalid_payload_type", "its payload is no object"
    if control := sorted(CONTROL_KEYS & payload.keys()):
        return "invalid_payload", f"its payload holds the control key {control[0]!r}"
    for name in TURN.payload:
        if as_box_id(row.pointer(name) or "") is None:
            return "missing_required_fields", f"its payload has no {name}"
    if row.lineage.trace_id is None:
        return "invalid_context", "its headers have no traceparent that can be read"
    if not names_depth(row.context_headers):
        return "invalid_context", "its headers name no recursion depth"
    return None


def _refuse(runtime: Runtime, row: InboxRow, error_code: str, problem: str) -> None:
    runtime.inbox.move([row.inbox_id], "kill", error=f"{error_code}: {problem}")
    if runtime.database.keeps_turns:
        message = f"the turn could not be promoted: {problem}"
        end_unpromoted(runtime, row.fence, "failed", error_code=error_code, message=message)


def end_unpromoted(
    runtime: Runtime,
    fence: Fence,
    end_status: EndStatus,
    *,
    error_code: str,
    message: str,
    report: bool = True,
) -> End:
    """The end of a turn that its agent is not at. Its deliverable goes into a box of its own.

    Another turn of the agent may be writing to the box that it would have written to. Without `report` the
    call that waits for the end gets none. A turn that has ended before stays as it ended.
    """
    turn_id = fence.agent_turn_id
    record = runtime.turns.begun_record(turn_id, fence.agent_id)
    if record.end_status is not None:
        return ended_before(record)
    draft = fallback(fence, end_status, error_code, message)
    card_id = deliver(runtime, draft, output_box_id=None)
    runtime.turns.end(
        fence, end_status=end_status, deliverable_card_id=card_id, error_code=error_code, error=message
    )
    if report:
        report_end(runtime, record, end_status, card_id, message)
    runtime.follow_end(
        Ended(
            agent_turn_id=turn_id,
            agent_id=fence.agent_id,
            end_status=end_status,
            deliverable_card_id=card_id,
            error_code=error_code,
            message=message,
        )
    )
    return End(agent_turn_id=turn_id, end_status=end_status, deliverable_card_id=card_id)


def ended_before(record: TurnRecord, promoted: InboxRow | None = None) -> End:
    """The end that is recorded already."""
    return End(
        agent_turn_id=record.agent_turn_id,
        end_status=record.end_status or "",
        deliverable_card_id=record.deliverable_card_id,
        promoted_turn_id=promoted.turn_id if promoted else None,
        created=False,
    )
