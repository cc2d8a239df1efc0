"""Where a turn's own cards begin in a box that replaces its output box, and whether that box keeps its calls.

Reads, and refuses what the turn could not go on with; the replacing is `fixes.py`'s.
"""

from collections.abc import Collection, Sequence

from cardbox_cli.errors import Conflict
from cardbox_cli.execution.requests.request import present_cards
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.tool_calls import pending_calls
from cardbox_cli.model.boxes import Slot
from cardbox_cli.model.execution.turns import Head


def own_start(runtime: Runtime, head: Head, output_box_id: str) -> int:
    """At which place of the box the cards of the turn that `head` is at begin: at the first of them.

    Behind all that it holds, where none of them is in it. Raises Conflict where the box lacks an open call of
    the turn, or the answer to one that is answered.
    """
    turn_id = head.fence.agent_turn_id
    own = _own(runtime, head)
    slots = runtime.boxes.slots(output_box_id)
    known = {slot.card_id for slot in own or ()}
    start = next((slot.position for slot in slots if _is_own(slot, turn_id, known)), len(slots))
    _refuse_loss(runtime, turn_id, own, slots[start:], output_box_id)
    return start


def _own(runtime: Runtime, head: Head) -> list[Slot] | None:
    """The places that the turn has written in its present output box; None where that is gone."""
    if head.output_box_id is None or not runtime.boxes.existing([head.output_box_id]):
        return None
    slots = runtime.boxes.slots(head.output_box_id)
    record = runtime.turns.record(head.fence.agent_turn_id)
    if record is not None and record.output_start is not None:
        return slots[record.output_start :]
    start = (slot.position for slot in slots if _is_own(slot, head.fence.agent_turn_id, ()))
    return slots[next(start, len(slots)) :]


def _is_own(slot: Slot, turn_id: str, known: Collection[str]) -> bool:
    wrote = slot.card is not None and slot.card.metadata.get("agent_turn_id") == turn_id
    return wrote or slot.card_id in known


def _refuse_loss(
    runtime: Runtime, turn_id: str, own: Sequence[Slot] | None, new: Sequence[Slot], box_id: str
) -> None:
    waits = [tool.tool_call_id for tool in runtime.turns.waiting_tools(turn_id) if tool.is_open]
    before = [*waits, *_pending(own or ())]
    after = _pending(new)
    lost = [call_id for call_id in before if call_id not in after]
    reopened = [call_id for call_id in after if own is not None and call_id not in before]
    if not lost and not reopened:
        return
    what = (
        f"does not hold the open call {lost[0]!r}"
        if lost
        else f"lacks the result of the call {reopened[0]!r}"
    )
    raise Conflict(
        f"box {box_id} {what} of turn {turn_id}, behind the turn's first card",
        hint="a copy of the turn's output box holds its calls: `cbx box fork`; change that, and name it",
        details={"lost_tool_call_ids": lost, "reopened_tool_call_ids": reopened},
    )


def _pending(slots: Sequence[Slot]) -> list[str]:
    return [call.tool_call_id for call in pending_calls(present_cards(slots))]
