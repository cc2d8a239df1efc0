"""The end of a turn that has done its work: in success, or as partial where its profile asks for more.

Whoever ends a turn in success does it here: a worker, a report whose result ends the turn, a script. What may
end a turn is for them to know.
"""

from collections.abc import Sequence
from typing import Any

from cardbox_cli.context.request import TURN, profile_of
from cardbox_cli.execution.queue.ending import end_held
from cardbox_cli.execution.queue.must_end_with import EndRule, end_rule
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.card_types import DELIVERABLE, PROFILE, RESULT_FIELDS
from cardbox_cli.model.cards import Card
from cardbox_cli.model.execution.result_fields import MISSING, REQUIRED, asked_fields, lacking, missing_fields
from cardbox_cli.model.execution.turns import End, Fence, Head
from cardbox_cli.store.box_cards import cards_of_type

BY_RESULT = "a tool's result ended the turn"


def finish(
    runtime: Runtime, fence: Fence, *, profile: dict[str, Any] | None = None, message: str | None = None
) -> End:
    """End the active turn at `fence`, which has done its work, as `end_turn` does. `profile`: if at hand.

    What it handed in by the call that a profile's must_end_with names is its deliverable, unless it has
    written another. Where the profile requires result fields, a deliverable that lacks one makes the end
    partial. Raises StaleEpoch.
    """
    with runtime.transaction(savepoint=False):
        return finish_held(runtime, runtime.heads.hold(fence), profile=profile, message=message)


def finish_held(
    runtime: Runtime, head: Head, *, profile: dict[str, Any] | None = None, message: str | None = None
) -> End:
    """`finish` for a head that the caller holds, in his transaction."""
    if profile is None:
        profile = profile_of(cards_of_type(runtime.boxes, head.profile_box_id, PROFILE))
    rule = end_rule(profile)
    if rule.named:
        _hand_in(runtime, head, rule)
    missing = _missing(runtime, head) if profile.get(REQUIRED) is True else []
    if not missing:
        return end_held(runtime, head, "success", message=message)
    return end_held(runtime, head, "partial", error_code=MISSING, message=lacking(missing))


def _hand_in(runtime: Runtime, head: Head, rule: EndRule) -> None:
    """Store what the turn handed in, where it has delivered nothing else."""
    own = _own_cards(runtime, head)
    draft = rule.handed_in(runtime.project_id, head.fence, own)
    if draft is None or head.output_box_id is None or delivered(head, own):
        return
    runtime.cards.add(draft)
    runtime.boxes.append(head.output_box_id, [draft.card_id], held=head)


def _missing(runtime: Runtime, head: Head) -> list[str]:
    """The fields that the turn was asked for, and that its deliverable lacks."""
    asked = asked_fields(cards_of_type(runtime.boxes, head.context_box_id, RESULT_FIELDS))
    results = delivered(head, _own_cards(runtime, head)) if asked else []
    return missing_fields(asked, results[-1].content if results else None)


def delivered(head: Head, own: Sequence[Card]) -> list[Card]:
    """The deliverables among its own cards that are no other turn's."""
    turn_id = head.fence.agent_turn_id
    return [card for card in own if card.type == DELIVERABLE and card.metadata.get(TURN, turn_id) == turn_id]


def _own_cards(runtime: Runtime, head: Head) -> list[Card]:
    """What the turn has written, in order."""
    record = runtime.turns.record(head.fence.agent_turn_id)
    start = 0 if record is None else record.output_start or 0
    slots = [] if head.output_box_id is None else runtime.boxes.slots(head.output_box_id)
    return [slot.card for slot in slots[start:] if slot.card is not None and slot.state == "present"]
