"""What the model of a turn's next step is asked, from the turn's boxes, its profile and the project's tools.

Pure. The history is what the output box held when the turn was leased, the context box, and what the turn has
written since. Tools come from the project alone, by the profile's leave: snapshots of earlier requests never
count.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from cardbox_cli.context.collector import WITHOUT_PROVIDERS, ContextCollector
from cardbox_cli.context.formats import DIALECTS, text
from cardbox_cli.context.request import NO_WISHES, Entry, Request, Wishes, profile_of, request_of
from cardbox_cli.context.state import SNAPSHOTS
from cardbox_cli.model import exact_json
from cardbox_cli.model.boxes import Provenance, Slot
from cardbox_cli.model.cards import Card
from cardbox_cli.model.identity import Tool

# A text for tools that take no JSON is made of what OpenAI would get.
TEXT = "text"
FORMATS = (*DIALECTS, TEXT)


class Source(msgspec.Struct, frozen=True):
    """A box and its places in order. `provenance` says which rule brought which card, where that is known."""

    box_id: str
    slots: Sequence[Slot]
    provenance: Provenance | None = None


class TurnBoxes(msgspec.Struct, frozen=True, kw_only=True):
    """The boxes of a turn. `output_start` is how many cards the output box held when the turn was leased."""

    profile: Source
    context: Source
    output: Source
    output_start: int

    @property
    def history(self) -> list[Entry]:
        """What the turn sees in order, without snapshots of requests; an id may stand in it twice."""
        before, since = self.output.slots[: self.output_start], self.output.slots[self.output_start :]
        parts = ((self.output, before), (self.context, self.context.slots), (self.output, since))
        return [entry for source, slots in parts for entry in _entries(source, slots)]

    @property
    def entries(self) -> list[Entry]:
        """All that the request of a step is made of: the profile's box, then what the turn sees."""
        return [*_entries(self.profile, self.profile.slots), *self.history]

    @property
    def own(self) -> list[Card]:
        """The cards that the turn has written, in order."""
        return present_cards(self.output.slots[self.output_start :])

    @property
    def exchange(self) -> frozenset[str]:
        """The newest instruction of the context box, and the cards that the turn has written."""
        given = [card for card in present_cards(self.context.slots) if card.type == "task.instruction"]
        return frozenset(card.card_id for card in (*given[-1:], *self.own))


class TurnRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request of a step: as it is composed, and as it is sent."""

    request: Request
    body: bytes


def turn_request(
    boxes: TurnBoxes,
    tools: Iterable[Tool],
    wishes: Wishes = NO_WISHES,
    *,
    format: str = "openai",
    collector: ContextCollector = WITHOUT_PROVIDERS,
) -> TurnRequest:
    """The request for the turn's next step in one of FORMATS. Raises what `request_of` raises."""
    dialect = DIALECTS["openai" if format == TEXT else format]
    composed = request_of(boxes.entries, wishes, spell=dialect.spell, collector=collector, own=boxes.exchange)
    offered = offered_tools(profile_of(present_cards(boxes.profile.slots)), tools)
    request = msgspec.structs.replace(composed, tools=[function_tool(tool) for tool in offered])
    if format == TEXT:
        return TurnRequest(request=request, body=text.text(request).encode())
    return TurnRequest(request=request, body=exact_json.encode(dialect.body(request)) + b"\n")


def offered_tools(profile: Mapping[str, Any], tools: Iterable[Tool]) -> list[Tool]:
    """The tools that a profile allows: none where it says nothing, all where it says null."""
    allowed = profile.get("allowed_tools", [])
    if allowed is None:
        return list(tools)
    return [tool for tool in tools if isinstance(allowed, list) and tool.tool_name in allowed]


def function_tool(tool: Tool) -> dict[str, Any]:
    """A tool as OpenAI defines functions."""
    described = {} if tool.description is None else {"description": tool.description}
    parameters = tool.parameters or {"type": "object", "properties": {}}
    return {
        "type": "function",
        "function": {"name": tool.tool_name, **described, "parameters": parameters},
    }


def present_cards(slots: Iterable[Slot]) -> list[Card]:
    """The cards that a reader of these places sees, in order."""
    return [slot.card for slot in slots if slot.card is not None and slot.fate == "present"]


def _entries(source: Source, slots: Iterable[Slot]) -> list[Entry]:
    rule_of = source.provenance.rule_of if source.provenance is not None else lambda _: None
    return [
        Entry(slot=slot, box_id=source.box_id, rule=rule_of(slot.position))
        for slot in slots
        if slot.card is None or slot.card.type not in SNAPSHOTS
    ]
