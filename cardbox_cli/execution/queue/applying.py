"""Applying reports: the result of a claimed report goes into the output box of its turn, once.

One read of all that decides, which `claims.py` makes, the decision, one write of every row. When none is left
to come the turn resumes, or may end. What happens to a row whose report is not applied is `claims.py`'s.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

import msgspec

from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.tool_calls import ended_by
from cardbox_cli.model.card_types import TOOL_RESULT
from cardbox_cli.model.cards import Card
from cardbox_cli.model.execution.dispatching import ClaimedSituation
from cardbox_cli.model.execution.turns import (
    RUNNING,
    SUSPENDED,
    EndStatus,
    Fence,
    Head,
    InboxRow,
    WaitingTool,
)
from cardbox_cli.model.ids import unique

# When to look again at a report that came before its turn has suspended, or its card can be seen.
TOO_EARLY = timedelta(seconds=1)


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a claimed report.

    `resumed`: the turn goes on at `fence`; `terminate`: it may end now, with `end_status`; `waiting`: for
    other calls; `stale`: nobody waits for it; `early`, and `busy` while its turn has not suspended: to be
    looked at again. The first three apply the card of `card_id` to `call`, and `left` others are to come.
    """

    outcome: Literal["resumed", "terminate", "waiting", "stale", "early", "busy"]
    fence: Fence
    reason: str | None = None
    end_status: EndStatus = "success"
    call: WaitingTool | None = None
    card_id: str = ""
    left: int = 0
    row: InboxRow | None = None


def decide(found: ClaimedSituation) -> Applied:
    """What becomes of a report that does not carry its turn yet; nothing is written for it."""
    row, head, calls = found.row, found.head, found.calls or []
    if head is None or head.active_agent_turn_id != row.turn_id:
        return Applied(outcome="stale", fence=row.fence, reason="its turn is not active any more")
    call = next((each for each in reversed(calls) if each.tool_call_id == row.correlation_id), None)
    if head.status != SUSPENDED:
        if call is not None and not call.is_open:
            why = f"its result was {call.wait_status} before"
            return Applied(outcome="stale", fence=head.fence, reason=why)
        return Applied(outcome="busy", fence=head.fence, reason=f"its turn is {head.status}")
    if call is None or not call.is_open:
        return Applied(outcome="stale", fence=head.fence, reason="its turn does not wait for that call")
    card = result_among(found.results, row)
    if card is None:
        named = row.pointer("tool_result_card_id") or ""
        why = f"its card {named!r} cannot be seen, or is no result of the call"
        return Applied(outcome="early", fence=head.fence, reason=why)
    return _applied(found, head.fence, call, card)


def _applied(found: ClaimedSituation, fence: Fence, call: WaitingTool, card: Card) -> Applied:
    # Nobody else applies a result while the head is held.
    others = [each for each in found.calls or [] if each.tool_call_id != call.tool_call_id]
    left = sum(each.is_open for each in others)
    if left:
        why = f"{left} more to come"
        return Applied(outcome="waiting", fence=fence, reason=why, call=call, card_id=card.card_id, left=left)
    by_id = {each.card_id: each for each in found.results}
    named = [each.tool_result_card_id for each in others if each.step_id == call.step_id]
    ended = ended_by([*(by_id[card_id] for card_id in unique(filter(None, named)) if card_id in by_id), card])
    if ended is not None:
        return Applied(outcome="terminate", fence=fence, end_status=ended, call=call, card_id=card.card_id)
    return Applied(outcome="resumed", fence=fence, call=call, card_id=card.card_id)


def apply_report(runtime: Runtime, found: ClaimedSituation) -> Applied:
    """Apply a claimed report to its turn: decide, and write. The result goes into the output box, once.

    Takes part in the caller's transaction, who holds all that was found. Where the turn resumes or waits the
    claimed row is as it is to be, and else for him to move.
    """
    applied, head = decide(found), found.head
    if applied.call is None or head is None:
        return applied
    ends = applied.outcome == "terminate"
    for is_there in (False, True):
        written = runtime.reports.apply(
            head, found.row, applied.call, applied.card_id, left=applied.left, ends=ends
        )
        if written is not None:
            break
        if is_there or head.output_box_id is None:
            raise runtime.heads.stale(head.fence, runtime.heads.get(head.agent_id))
        runtime.boxes.ensure(head.output_box_id)
    assert written is not None
    if applied.outcome == "resumed":
        runtime.publish_state(head, RUNNING, written.turn_epoch)
    return msgspec.structs.replace(
        applied, fence=head.fence_at(written.turn_epoch), row=written.row or found.row
    )


def reported_card(runtime: Runtime, row: InboxRow) -> Card | None:
    """The card that a report points to, where it is the result of the call: others may point anywhere."""
    return result_among(runtime.cards.get_many([row.pointer("tool_result_card_id") or ""]).cards, row)


def result_among(cards: Sequence[Card], row: InboxRow) -> Card | None:
    """`reported_card`, if it is one of these."""
    named = [card for card in cards if card.card_id == row.pointer("tool_result_card_id")]
    results = (card for card in named if card.type == TOOL_RESULT and card.tool_call_id == row.correlation_id)
    return next(results, None)


def _show(runtime: Runtime, head: Head, card_id: str) -> None:
    """The result goes into the turn's output box, unless it is there."""
    if head.output_box_id is not None:
        runtime.boxes.put(head.output_box_id, card_id)


def keep_results(runtime: Runtime, head: Head, dropped: list[WaitingTool]) -> None:
    """Put results that had come, and that nobody will apply, into the output box. The turn is active."""
    card_ids = [tool.tool_result_card_id for tool in dropped if tool.tool_result_card_id is not None]
    for card in runtime.cards.get_many(card_ids).cards:
        _show(runtime, head, card.card_id)
