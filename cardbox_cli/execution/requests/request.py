"""What the model of a turn's next step is asked, from the turn's boxes, its profile and the project's tools.

Pure. The history is what the output box held when the turn was promoted, the context box, and what the turn
has written since. Tools come from the project alone, by the profile's leave: snapshots of earlier requests
never count.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from cardbox_cli.context.composer import WITHOUT_PROVIDERS, ContextCollector
from cardbox_cli.context.request import (
    DEFAULT_OPTIONS,
    OUTPUT,
    ComposeOptions,
    Request,
    RequestEntry,
    is_packed,
    profile_of,
    request_of,
)
from cardbox_cli.model.boxes import Provenance, Slot
from cardbox_cli.model.card_types import card_type
from cardbox_cli.model.cards import Card
from cardbox_cli.model.identity import INTERNAL_TOOLS, HandlerTool, Tool, allowed_handlers
from cardbox_cli.model.layers import process_of
from cardbox_cli.providers.formats import encoder_of, sent
from cardbox_cli.providers.registry import DEFAULT

# What the step is called that has not begun.
NEXT = "next"


class Source(msgspec.Struct, frozen=True):
    """A box and its places in order. `provenance` says which rule brought which card, where that is known."""

    box_id: str
    slots: Sequence[Slot]
    provenance: Provenance | None = None

    @property
    def entries(self) -> list[RequestEntry]:
        """All its places."""
        return list(entries_of(self.slots, self.box_id, self.provenance))

    @property
    def seen(self) -> list[RequestEntry]:
        """Its places without snapshots of requests: what a turn sees of it."""
        return [
            entry
            for entry in self.entries
            if entry.slot.card is None or not card_type(entry.slot.card.type).is_snapshot
        ]


def entries_of(slots: Iterable[Slot], box_id: str, provenance: Provenance | None) -> Iterator[RequestEntry]:
    """The places of a box, each with the rule that brought it, as far as that is known."""
    rule_of = provenance.rule_of if provenance is not None else lambda _: None
    return (RequestEntry(slot=slot, box_id=box_id, rule=rule_of(slot.position)) for slot in slots)


class TurnBoxes(msgspec.Struct, frozen=True, kw_only=True):
    """The boxes of a turn. `output_start`: how many cards the output box held when the turn was promoted."""

    profile: Source
    context: Source
    output: Source
    output_start: int

    @property
    def history(self) -> list[RequestEntry]:
        """What the turn sees in order; an id may stand in it twice."""
        output = [msgspec.structs.replace(entry, rule=OUTPUT) for entry in self.output.seen]
        before = [entry for entry in output if entry.slot.position < self.output_start]
        return [*before, *self.context.seen, *output[len(before) :]]

    @property
    def entries(self) -> list[RequestEntry]:
        """All that a request of the turn is made of: the profile's box, then what the turn sees."""
        return [*self.profile.seen, *self.history]

    def at(self, output_cards: int, output_start: int) -> "TurnBoxes":
        """The boxes when the output box held so many cards."""
        output = msgspec.structs.replace(self.output, slots=self.output.slots[:output_cards])
        return msgspec.structs.replace(self, output=output, output_start=output_start)

    @property
    def own(self) -> list[Card]:
        """The cards that the turn has written, in order."""
        return present_cards(self.output.slots[self.output_start :])


class TurnRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request of a step: all that it was made of and what of that is history, as it is composed, and as
    it is sent."""

    entries: list[RequestEntry]
    history: list[RequestEntry]
    request: Request
    body: bytes


def turn_request(
    boxes: TurnBoxes,
    tools: Iterable[Tool],
    options: ComposeOptions = DEFAULT_OPTIONS,
    *,
    format: str = DEFAULT,
    collector: ContextCollector = WITHOUT_PROVIDERS,
) -> TurnRequest:
    """The request for the turn's next step in a format. Raises what `request_of` raises."""
    definitions = tool_definitions(present_cards(boxes.profile.slots), tools)
    return request_with_tools(boxes, definitions, options, format=format, collector=collector)


def request_with_tools(
    boxes: TurnBoxes,
    tools: list[dict[str, Any]],
    options: ComposeOptions,
    *,
    format: str,
    collector: ContextCollector = WITHOUT_PROVIDERS,
) -> TurnRequest:
    """`turn_request` with the definitions of tools, such as those that an earlier request had."""
    own, entries = frozenset(card.card_id for card in boxes.own), boxes.entries
    composed = request_of(entries, options, encode=encoder_of(format), collector=collector, own=own)
    request = msgspec.structs.replace(composed, tools=tools)
    takes_all = process_of(request.process).takes_history
    return TurnRequest(
        entries=entries,
        history=[
            entry for entry in boxes.history if takes_all or entry.slot.card_id in own or is_packed(entry)
        ],
        request=request,
        body=sent(request, format),
    )


def tool_definitions(profile: Iterable[Card], tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """The tools that the cards of a profile's box allow, as they are sent."""
    return [function_tool(tool) for tool in offered_tools(profile_of(profile), tools)]


def offered_tools(profile: Mapping[str, Any], tools: Iterable[Tool]) -> list[Tool]:
    """The tools that a profile allows: none where it says nothing, all registered ones where it says null.

    A handler is offered only where `allowed_internal_tools` names it, and then hides a tool of its name. Rows
    that other programs register for the handlers are no tools.
    """
    known, allowed = list(tools), profile.get("allowed_tools", [])
    internal = allowed_handlers(profile)
    handlers = [tool for tool in known if isinstance(tool, HandlerTool) and tool.tool_name in internal]
    taken = INTERNAL_TOOLS.union(handler.tool_name for handler in handlers)
    registered = [
        tool
        for tool in known
        if not isinstance(tool, HandlerTool)
        and tool.tool_name not in taken
        and (allowed is None or (isinstance(allowed, list) and tool.tool_name in allowed))
    ]
    return [*registered, *handlers]


def function_tool(tool: Tool) -> dict[str, Any]:
    """The definition of a tool, as a function.

    The keys stand in the order of jsonb, shorter ones first, so that what is stored of a request is what was
    sent, to the byte.
    """
    parameters = tool.parameters or {"type": "object", "properties": {}}
    described = {} if tool.description is None else {"description": tool.description}
    return {"type": "function", "function": {"name": tool.tool_name, "parameters": parameters, **described}}


def present_cards(slots: Iterable[Slot]) -> list[Card]:
    """The cards that a reader of these places sees, in order."""
    return [slot.card for slot in slots if slot.card is not None and slot.state == "present"]
