"""From the cards of boxes to one LLM request: system prompt, tools, layers and history.

Sorts every card into the part of the request that it belongs to, and keeps account of those that belong to
none. Which texts the layers get is the collector's business, which order the parts take the composer's, which
form messages have that of `providers/`. Pure as long as the collector has no providers.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from cardbox_cli.context import sources
from cardbox_cli.context.collector import WITHOUT_PROVIDERS, Collecting, ContextCollector, Layer, LayerLeftOut
from cardbox_cli.context.composer import compose
from cardbox_cli.context.messages import Message, NoMessage
from cardbox_cli.context.parts import text_at
from cardbox_cli.model.boxes import REPLACED, Slot
from cardbox_cli.model.card_types import (
    CHAT_MEMORY,
    CHAT_PERSONA,
    DELIVERABLE,
    INSTRUCTION,
    PARENT_POINTER,
    PROFILE,
    RESULT_FIELDS,
    STORED_LAYER,
    SUMMARY,
)
from cardbox_cli.model.cards import SYSTEM_ROLES, Card
from cardbox_cli.model.content import JsonContent, ToolContent
from cardbox_cli.model.layers import (
    CHECKPOINT,
    SYSTEM_PROMPT,
    Asked,
    Layout,
    Process,
    ProcessName,
    asked_by,
    process_of,
)

Encode = Callable[[Card], dict[str, Any] | NoMessage]

# The key in the metadata of a card that names the turn that wrote it.
TURN = "agent_turn_id"
# What stands in the place of a recipe's rule for cards that turns wrote.
OUTPUT = "output"
# What is asked and handed over, whoever put it into a box: no conversation.
_HANDED_OVER = frozenset({INSTRUCTION, RESULT_FIELDS, DELIVERABLE, PARENT_POINTER})

# What is system text by its type, and whoever wrote it.
_LAYERS = frozenset({SUMMARY, STORED_LAYER, CHAT_PERSONA, CHAT_MEMORY})


class RequestEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A place of a box as rendering takes it in: its slot, its box, and the rule that brought it if known.

    `box_id` is empty where the box does not exist (yet).
    """

    slot: Slot
    box_id: str
    rule: str | None = None


class ComposeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a request shall be composed, as far as somebody asks for it; the profile is asked for the rest.

    `share` is the switch of sharing, as the caller or else the project sets it.
    """

    model: str | None = None
    process: ProcessName | None = None
    share: bool | None = None
    layout: Layout | None = None
    asked: Asked = Asked()
    query: str | None = None


DEFAULT_OPTIONS = ComposeOptions()


class Omitted(msgspec.Struct, frozen=True):
    """A card that is no message, and why."""

    card_id: str
    box_id: str
    position: int
    reason: str


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One LLM request before a provider's body is made of it: its messages are in a format, no more.

    `tools` are as they are stored, `config` is the profile's llm_config. `layers` are the texts that were
    composed, `places` has the place of each card that was taken in, `profile_id` names that of the profile.
    `lost_layers` are texts that were sent and cannot be had, by their layers: their SHA-256. No message is
    made of them.
    """

    messages: list[Message]
    tools: list[dict[str, Any]]
    model: str | None
    config: dict[str, Any]
    process: ProcessName
    layout: Layout
    layers: list[Layer]
    layers_left_out: list[LayerLeftOut]
    left_out: list[Omitted]
    places: dict[str, RequestEntry]
    profile_id: str | None
    lost_layers: dict[str, str] = {}

    @property
    def makers(self) -> dict[str, list[str]]:
        """The cards that each layer, and the system prompt, was made of."""
        of_prompt = [] if self.profile_id is None else [self.profile_id]
        return {SYSTEM_PROMPT: of_prompt} | {layer.name: layer.card_ids for layer in self.layers}


def request_of(
    entries: Sequence[RequestEntry],
    options: ComposeOptions = DEFAULT_OPTIONS,
    *,
    encode: Encode,
    collector: ContextCollector = WITHOUT_PROVIDERS,
    own: Container[str] = (),
    takes_all: bool = False,
) -> Request:
    """The request that the cards of boxes make, in their order; a card counts once, at its first place.

    `encode` makes a card a message in some format. A process that takes no history gets what was packed for
    it, and the cards of `own`: what the turn has done itself; `takes_all` gives it all there is. System texts
    come from the profile, the layers and what was put into the boxes: a card that a turn wrote is the user's
    where it would be one.

    Raises InvalidInput for layers that are asked for and cannot be had, DuplicateQuery for a query that the
    history ends with.
    """
    taken = _take_in(entries)
    places, cards = taken.places, taken.cards
    given = (card for card in cards if not _is_by_a_turn(card, own)) if PROFILE in taken.types else ()
    profile_id, profile = next(_profiles(given), (None, {}))
    process = process_of(options.process or profile.get("process"))
    collected = collector.collect(
        Collecting(
            slots=[entry.slot for entry in entries],
            cards=_makers(taken),
            types=taken.types,
            profile_box_id=None if profile_id is None else places[profile_id].box_id,
            here=options.asked,
            by_profile=asked_by(profile),
            process=process,
            share=options.share,
        )
    )
    history, without_message = _history(taken, process, encode, own, takes_all or process.takes_history)
    layout: Layout = "cache" if (options.layout or profile.get("layout")) == "cache" else "default"
    return Request(
        messages=compose(
            system_prompt=text_at(profile, "system_prompt") or text_at(profile, "system_prompt_template"),
            checkpoint_messages=history,
            contexts=collected.contexts,
            query=options.query,
            layout=layout,
        ),
        tools=taken.tools,
        model=options.model or model_of(profile),
        config=_config(profile),
        process=process.name,
        layout=layout,
        layers=collected.layers,
        layers_left_out=collected.left_out,
        left_out=taken.left_out + without_message,
        places=places,
        profile_id=profile_id,
    )


class _TakenIn(msgspec.Struct, frozen=True):
    """The places whose cards are taken in, by card; the cards, their types, the tools that they bring; and
    why other places are not."""

    places: dict[str, RequestEntry]
    cards: list[Card]
    types: set[str]
    tools: list[dict[str, Any]]
    left_out: list[Omitted]


def _take_in(entries: Sequence[RequestEntry]) -> _TakenIn:
    """What these places bring, asked of each card once: boxes are long."""
    places: dict[str, RequestEntry] = {}
    cards: list[Card] = []
    types: set[str] = set()
    tools: list[dict[str, Any]] = []
    left_out: list[Omitted] = []
    for entry in entries:
        slot = entry.slot
        card = slot.card
        if card is None or slot.state != "present":
            left_out.append(_left_out(entry, f"{slot.state} card"))
        elif slot.card_id in places:
            left_out.append(_left_out(entry, "stands at an earlier place already"))
        else:
            places[slot.card_id] = entry
            cards.append(card)
            types.add(card.type)
            if type(card.content) is ToolContent and TURN not in card.metadata:
                tools += card.content.tools
    return _TakenIn(places, cards, types, tools, left_out)


def _history(
    taken: _TakenIn, process: Process, encode: Encode, own: Container[str], takes_all: bool
) -> tuple[list[Message], list[Omitted]]:
    """The messages that the cards make, in order, and why some make none."""
    messages: list[Message] = []
    left_out: list[Omitted] = []
    for card in taken.cards:
        body = encode(card)
        if not isinstance(body, dict):
            left_out.append(_left_out(taken.places[card.card_id], body.reason))
        elif takes_all or card.card_id in own or is_packed(taken.places[card.card_id]):
            group = sources.group(card) if sources.GROUP in card.metadata else None
            if body.get("role") in SYSTEM_ROLES and _is_by_a_turn(card, own):
                body = {**body, "role": "user"}
            messages.append(Message(CHECKPOINT, body, card.card_id, group))
        else:
            left_out.append(_left_out(taken.places[card.card_id], no_history(process.name)))
    return messages, left_out


def _makers(taken: _TakenIn) -> list[Card]:
    """The cards that layers are made of: what a turn wrote is no system text in the shape of a layer."""
    if taken.types.isdisjoint(_LAYERS):
        return taken.cards
    return [card for card in taken.cards if card.type not in _LAYERS or TURN not in card.metadata]


def _is_by_a_turn(card: Card, own: Container[str]) -> bool:
    """Whether a turn wrote the card: `own` has those of this turn. Such a card instructs no model."""
    return TURN in card.metadata or card.card_id in own


def is_packed(entry: RequestEntry) -> bool:
    """Whether the place holds input and no conversation: a recipe brought it, or it is what is asked or
    handed over. What turns wrote is conversation to those that go on with their box.
    """
    if entry.rule is None or entry.rule == REPLACED:
        return entry.slot.card is not None and entry.slot.card.type in _HANDED_OVER
    return entry.rule != OUTPUT


def no_history(process: ProcessName) -> str:
    """Why a card of a conversation is left out of the request of such a process."""
    return f"history, and a {process} takes none"


def _left_out(entry: RequestEntry, reason: str) -> Omitted:
    return Omitted(entry.slot.card_id, entry.box_id, entry.slot.position, reason)


# --- what the profile holds


def profile_of(cards: Iterable[Card]) -> dict[str, Any]:
    """The first profile among these cards; {} where there is none."""
    return next((profile for _, profile in _profiles(cards)), {})


def _profiles(cards: Iterable[Card]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The cards that hold a profile, by their ids; other programs may have left no object in one."""
    for card in cards:
        data = card.content.data if card.type == PROFILE and isinstance(card.content, JsonContent) else None
        if isinstance(data, dict):
            yield card.card_id, data


def model_of(profile: Mapping[str, Any]) -> str | None:
    """The model that a profile names."""
    return text_at(_config(profile), "model") or None


def _config(profile: Mapping[str, Any]) -> dict[str, Any]:
    config = profile.get("llm_config")
    return config if isinstance(config, dict) else {}
