"""Applying reports: the result of a claimed report goes into the output box of its turn, once.

When none is left to come the turn resumes, or may end. What happens to the claimed row then is `claims.py`'s.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

import msgspec

from cardbox_cli.execution.queue.messages import is_report
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.tool_calls import ended_by
from cardbox_cli.model.card_types import TOOL_RESULT
from cardbox_cli.model.cards import Card
from cardbox_cli.model.execution.turns import EndStatus, Fence, Head, InboxRow, WaitingTool

# When to look again at a report that came before its turn has suspended, or its card can be seen.
TOO_EARLY = timedelta(seconds=1)


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a claimed report.

    `resumed`: the turn goes on at `fence`; `terminate`: it may end now, with `end_status`; `waiting`: for
    other calls; `stale`: nobody waits for it; `early`, and `busy` while its turn has not suspended: to be
    looked at again.
    """

    outcome: Literal["resumed", "terminate", "waiting", "stale", "early", "busy"]
    fence: Fence
    reason: str | None = None
    end_status: EndStatus = "success"


def apply_report(runtime: Runtime, row: InboxRow, head: Head | None) -> Applied:
    """Apply a claimed report to its turn: the result goes into the output box, once.

    Takes part in the caller's transaction, who holds the head of the row's agent and has claimed the row,
    which does not carry the turn yet, and then does with it what the outcome says.
    """
    assert is_report(row)
    if head is None or head.active_agent_turn_id != row.turn_id:
        return Applied(outcome="stale", fence=row.fence, reason="its turn is not active any more")
    tools = runtime.turns.waiting_tools(row.turn_id)
    tool = next((each for each in reversed(tools) if each.tool_call_id == row.correlation_id), None)
    if head.status != "suspended":
        if tool is not None and not tool.is_open:
            why = f"its result was {tool.wait_status} before"
            return Applied(outcome="stale", fence=head.fence, reason=why)
        return Applied(outcome="busy", fence=head.fence, reason=f"its turn is {head.status}")
    if tool is None or not tool.is_open:
        return Applied(outcome="stale", fence=head.fence, reason="its turn does not wait for that call")
    found = reported_card(runtime, row)
    if found is None:
        named = row.pointer("tool_result_card_id") or ""
        why = f"its card {named!r} cannot be seen, or is no result of the call"
        return Applied(outcome="early", fence=head.fence, reason=why)
    return _apply(runtime, head, tools, tool, found.card_id)


def reported_card(runtime: Runtime, row: InboxRow) -> Card | None:
    """The card that a report points to, where it is the result of the call: others may point anywhere."""
    found = runtime.cards.get_many([row.pointer("tool_result_card_id") or ""]).cards
    results = (card for card in found if card.type == TOOL_RESULT and card.tool_call_id == row.correlation_id)
    return next(results, None)


def _apply(
    runtime: Runtime, head: Head, tools: Sequence[WaitingTool], tool: WaitingTool, card_id: str
) -> Applied:
    _show(runtime, head, card_id)
    runtime.turns.apply(tool.agent_turn_id, tool.tool_call_id, card_id)
    # Nobody else applies a result while the head is held.
    others = [each for each in tools if each.tool_call_id != tool.tool_call_id]
    left = [each for each in others if each.is_open]
    if left:
        runtime.heads.set_waiting(head.fence, len(left))
        return Applied(outcome="waiting", fence=head.fence, reason=f"{len(left)} more to come")
    ids = [each.tool_result_card_id for each in others if each.step_id == tool.step_id]
    ended = ended_by(runtime.cards.get_many([*filter(None, ids), card_id]).cards)
    if ended is not None:
        return Applied(outcome="terminate", fence=head.fence, end_status=ended)
    epoch = runtime.heads.move(head.fence, "resume")
    fence = Fence(head.agent_id, head.fence.agent_turn_id, epoch)
    runtime.publish_state(head, "running", epoch)
    return Applied(outcome="resumed", fence=fence)


def _show(runtime: Runtime, head: Head, card_id: str) -> None:
    """The result goes into the turn's output box, unless it is there."""
    if head.output_box_id is not None:
        runtime.boxes.put(head.output_box_id, card_id)


def keep_results(runtime: Runtime, head: Head, dropped: list[WaitingTool]) -> None:
    """Put results that had come, and that nobody will apply, into the output box. The turn is active."""
    card_ids = [tool.tool_result_card_id for tool in dropped if tool.tool_result_card_id is not None]
    for card in runtime.cards.get_many(card_ids).cards:
        _show(runtime, head, card.card_id)
