"""Promotion: assign an idle agent to its oldest queued turn, and make the inbox row of the turn pending.

A promotion reads once, decides, and writes once. The caller must hold the lock on the agent's head.

A row that no worker could run becomes a dead letter, its turn fails, and promotion tries the next row. A
second row of a turn is skipped, because a turn runs once. The module also ends turns that never were active.
"""

from typing import Any

import msgspec

from cardbox_cli.errors import BoxConflict
from cardbox_cli.execution.queue.messages import CONTROL_KEYS, TURN
from cardbox_cli.execution.queue.reports import report_end
from cardbox_cli.execution.runtime import Runtime, TurnEndEvent
from cardbox_cli.model.cards import CardDraft, draft_card
from cardbox_cli.model.content import FALLBACK, JsonContent
from cardbox_cli.model.execution.headers import has_depth
from cardbox_cli.model.execution.situations import PromotionSituation
from cardbox_cli.model.execution.turns import EndStatus, Fence, Head, InboxRow, TurnEnd, TurnRecord
from cardbox_cli.model.ids import canonical_box_id


def fallback_deliverable(
    fence: Fence, end_status: str, error_code: str | None, message: str, details: dict[str, Any] | None = None
) -> CardDraft:
    """Draft the deliverable of a turn that did not write one itself.

    The card has the fields that workers of the card-box protocol v1r4 write. `details` go into its
    `diagnostics` for people to read, for example the last lines of stderr.
    """
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
    """Store `draft`, append it to the output box, and return the card's id. Creates the box if it is missing.

    The card goes into a new box if `output_box_id` is None, or if the id belongs to another project. Pass the
    locked head of an active turn as `head`.
    """
    runtime.cards.add(draft)
    try:
        box_id = runtime.boxes.ensure(output_box_id).box_id if output_box_id is not None else None
    except BoxConflict:
        # The id belongs to a box of another project.
        box_id = None
    if box_id is None:
        runtime.boxes.create([draft.card_id])
    else:
        runtime.boxes.append(box_id, [draft.card_id], held=head)
    return draft.card_id


class SkippedRow(msgspec.Struct, frozen=True):
    """The decision to skip a row, because its turn has ended or has an older row."""


class UnfitRow(msgspec.Struct, frozen=True):
    """The decision to make a row a dead letter, because no worker could run it. `problem` explains why."""

    error_code: str
    problem: str


def decide_promotion(found: PromotionSituation, *, is_taken: bool = False) -> SkippedRow | UnfitRow | None:
    """Return the decision not to promote a row, or None if the row can be promoted.

    `is_taken` is True if promoting this row has just failed, so another project may use its output box id.
    """
    # Other programs may queue a turn for a second time while it runs.
    if found.is_repeated or found.end_status is not None:
        return SkippedRow()
    problem = row_problem(found.row)
    if problem is None and found.output_user is not None:
        turn_id, agent_id = found.output_user
        problem = "output_box_in_use", f"turn {turn_id} of agent {agent_id!r} writes to its output box"
    if problem is None and is_taken and not found.has_output_box:
        problem = "output_box_not_found", f"the box id {found.row.pointer('output_box_id')!r} is taken"
    return None if problem is None else UnfitRow(*problem)


def promote_next(runtime: Runtime, agent_id: str, *, reason: str = "dispatch_next") -> InboxRow | None:
    """Promote the oldest queued turn of an agent. Return None if the agent is busy or its queue is empty."""
    taken_row_id: str | None = None
    while (found := runtime.dispatches.promotion(agent_id)) is not None:
        row = found.row
        match decide_promotion(found, is_taken=row.inbox_id == taken_row_id):
            case SkippedRow():
                runtime.inbox.move([row.inbox_id], "skip", error="its turn has run, or has an older row")
            case UnfitRow(error_code, problem):
                runtime.inbox.move([row.inbox_id], "kill", error=f"{error_code}: {problem}")
                if runtime.database.keeps_turns:
                    message = f"the turn could not be promoted: {problem}"
                    end_unpromoted(runtime, row.fence, "failed", error_code=error_code, message=message)
            case None:
                promoted = runtime.dispatches.promote(found)
                if promoted is not None:
                    runtime.notify_target(promoted, found.worker_target, reason)
                    return promoted
                # Another transaction holds the output box. The next read waits for it, then sees the user.
                taken_row_id = row.inbox_id
    return None


def row_problem(row: InboxRow) -> tuple[str, str] | None:
    """Return an error code and a sentence if no worker can run the row, or None."""
    payload = row.payload
    if not isinstance(payload, dict):
        return "invalid_payload_type", "its payload is not an object"
    if control := sorted(CONTROL_KEYS & payload.keys()):
        return "invalid_payload", f"its payload holds the control key {control[0]!r}"
    for name in TURN.payload:
        if canonical_box_id(row.pointer(name) or "") is None:
            return "missing_required_fields", f"its payload has no {name}"
    if row.lineage.trace_id is None:
        return "invalid_context", "its headers have no valid traceparent"
    if not has_depth(row.context_headers):
        return "invalid_context", "its headers have no recursion depth"
    return None


def end_unpromoted(
    runtime: Runtime,
    fence: Fence,
    end_status: EndStatus,
    *,
    error_code: str,
    message: str,
    report: bool = True,
) -> TurnEnd:
    """End a turn that is not its agent's active turn, and put its deliverable into a new box.

    Another turn may be writing to the output box that this turn names. If `report` is False, the tool call
    that waits for the turn gets no report. If the turn has already ended, returns the recorded end.
    """
    record = runtime.turns.ensure_record(fence.agent_turn_id, fence.agent_id)
    if record.end_status is not None:
        return recorded_end(record)
    draft = fallback_deliverable(fence, end_status, error_code, message)
    card_id = deliver(runtime, draft, output_box_id=None)
    runtime.turns.end(
        fence, end_status=end_status, deliverable_card_id=card_id, error_code=error_code, error=message
    )
    return announce_end(
        runtime,
        fence,
        record if report else None,
        end_status,
        card_id,
        error_code=error_code,
        message=message,
    )


def announce_end(
    runtime: Runtime,
    fence: Fence,
    record: TurnRecord | None,
    end_status: EndStatus,
    card_id: str,
    *,
    error_code: str | None,
    message: str | None,
    promoted: InboxRow | None = None,
) -> TurnEnd:
    """Report a stored end to the tool call that waits for it, and call the followers of turn ends.

    `record` names the waiting call. If it is None, no report is written.
    """
    if record is not None:
        report_end(runtime, record, end_status, card_id, message)
    runtime.follow_end(
        TurnEndEvent(
            agent_turn_id=fence.agent_turn_id,
            agent_id=fence.agent_id,
            end_status=end_status,
            deliverable_card_id=card_id,
            error_code=error_code,
            message=message,
        )
    )
    return TurnEnd(
        agent_turn_id=fence.agent_turn_id,
        end_status=end_status,
        deliverable_card_id=card_id,
        promoted_turn_id=promoted.turn_id if promoted else None,
    )


def recorded_end(record: TurnRecord, promoted: InboxRow | None = None) -> TurnEnd:
    return TurnEnd(
        agent_turn_id=record.agent_turn_id,
        end_status=record.end_status or "",
        deliverable_card_id=record.deliverable_card_id,
        promoted_turn_id=promoted.turn_id if promoted else None,
        created=False,
    )
