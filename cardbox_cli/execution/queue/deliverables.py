"""The deliverable that every turn leaves: its own, or a fallback that says why there is none.

The fallback's fields are those that workers of the card-box protocol v1r4 write.
"""

from typing import Any

from cardbox_cli.errors import BoxConflict
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.cards import CardDraft, draft_card
from cardbox_cli.model.content import FALLBACK, JsonContent
from cardbox_cli.model.execution.turns import Fence, Head


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
