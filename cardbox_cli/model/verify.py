"""What can be wrong with a box: references that lead nowhere, torn exchanges, contents that changed."""

from typing import Literal

import msgspec

from cardbox_cli.model.boxes import BoxView, Provenance, Slot
from cardbox_cli.model.pairing import pair_calls

Kind = Literal[
    "dangling", "deleted", "expired", "call-without-result", "result-without-call", "digest-differs"
]

_LEADS_NOWHERE = {
    "dangling": "no such card",
    "deleted": "the card was deleted",
    "expired": "the card has expired",
}


class BoxFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing found, at a position of the box from 0; None where it is about the whole box."""

    position: int | None
    card_id: str | None
    kind: Kind
    message: str


def verify(view: BoxView, provenance: Provenance | None) -> list[BoxFinding]:
    """Everything found in the box, by position; [] for a sound one."""
    findings = _references(view) + _exchanges(view)
    findings.sort(key=lambda finding: finding.position or 0)
    if provenance is not None and provenance.digest not in (None, view.digest):
        message = f"packed as {provenance.digest}, now {view.digest}"
        findings.append(BoxFinding(position=None, card_id=None, kind="digest-differs", message=message))
    return findings


def _references(view: BoxView) -> list[BoxFinding]:
    return [
        _at(slot, slot.state, f"{slot.card_id}: {_LEADS_NOWHERE[slot.state]}")
        for slot in view.slots
        if slot.state != "present"
    ]


def _exchanges(view: BoxView) -> list[BoxFinding]:
    cards = [slot.card if slot.state == "present" else None for slot in view.slots]
    pairing = pair_calls(cards)
    unanswered = [
        _at(view.slots[position], "call-without-result", f"the tool call {call_id!r} has no result")
        for position, call_id in pairing.unanswered
    ]
    calls = [(position, card.tool_call_id) for position in pairing.orphans if (card := cards[position])]
    return unanswered + [
        _at(view.slots[position], "result-without-call", f"no earlier call {call_id!r} waits for this result")
        for position, call_id in calls
    ]


def _at(slot: Slot, kind: Kind, message: str) -> BoxFinding:
    return BoxFinding(position=slot.position, card_id=slot.card_id, kind=kind, message=message)
