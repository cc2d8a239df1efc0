"""Requests made of the cards of boxes: system prompt, tools, layers and history.

Boxes are long, so each card is examined once. `WholeHistory` holds every card for callers that examine cards.
`PackedHistory` holds only packed messages for sending. The composer collects the texts of layers and orders
the messages. The provider's format decides their form. Pure if the collector has no providers.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import compress
from typing import Any

import msgspec

from cardbox_cli.context.composer import (
    LAYER_KEY,
    WITHOUT_PROVIDERS,
    ContextCollector,
    Layer,
    LayerLeftOut,
    LayerSources,
    compose,
)
from cardbox_cli.context.messages import Message, NoMessage, PackedMessages
from cardbox_cli.context.parts import OtherCalls, dict_at, text_at
from cardbox_cli.context.sources import GROUP, group
from cardbox_cli.model import exact_json
from cardbox_cli.model.boxes import REPLACED, Slot
from cardbox_cli.model.card_types import (
    CHAT_MEMORY,
    CHAT_PERSONA,
    DELIVERABLE,
    INSTRUCTION,
    PARENT_POINTER,
    PROFILE,
    RENDERED_PROMPT,
    RESULT_FIELDS,
    STORED_LAYER,
    SUMMARY,
    TODO_ITEM,
    TOOLS,
)
from cardbox_cli.model.cards import SYSTEM_ROLES, Card, CardDraft, draft_card
from cardbox_cli.model.content import JsonContent, ToolContent, listed_tools
from cardbox_cli.model.ids import derived_id, unique
from cardbox_cli.model.layers import (
    CHECKPOINT,
    SYSTEM_PROMPT,
    LayerRequest,
    Layout,
    ProcessName,
    find_process,
    requested_layers,
)

Encode = Callable[[Card], dict[str, Any] | NoMessage]

# The metadata key that holds the id of the turn that wrote the card.
TURN = "agent_turn_id"
# Replaces the recipe's rule for cards that turns wrote.
OUTPUT = "output"
# The card types of a turn's input. They are never conversation, no matter who added them to a box.
_HANDED_OVER = frozenset({INSTRUCTION, RESULT_FIELDS, DELIVERABLE, PARENT_POINTER})

# The types of system text, no matter who wrote it.
_LAYERS = frozenset({SUMMARY, STORED_LAYER, CHAT_PERSONA, CHAT_MEMORY})


class RequestEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A slot and its box ("" if it is not stored yet). `rule` is the packing rule that added it, if known."""

    slot: Slot
    box_id: str
    rule: str | None = None


class Omitted(msgspec.Struct, frozen=True):
    card_id: str
    box_id: str
    position: int
    reason: str


class BoxContents(msgspec.Struct):
    """The cards of boxes, sorted by their use.

    `held` has the ids of all present cards, `places` the entries that the request keeps, `makers` the cards
    of layers. `todo` has the slots of all todo items, `tools` the tool definitions on cards. `profile` is the
    entry and the data of the first profile. `left_out` has the entries without a readable card.
    """

    held: AbstractSet[str]
    places: dict[str, RequestEntry]
    types: set[str]
    makers: list[Card]
    todo: list[Slot]
    tools: list[dict[str, Any]]
    profile: tuple[RequestEntry, dict[str, Any]] | None
    left_out: list[Omitted]


def read_contents(
    entries: Iterable[RequestEntry], conversation: "WholeHistory | PackedHistory", own: Container[str] = ()
) -> BoxContents:
    """Read each card once, at its first place. `own` has the ids of cards that the turn itself wrote."""
    held: set[str] = set()
    contents = BoxContents(held, {}, set(), [], [], [], None, [])
    for entry in entries:
        slot = entry.slot
        card = slot.card
        if card is not None and card.type == TODO_ITEM:
            contents.todo.append(slot)  # A missing item can still connect two others.
        if card is None or slot.state != "present":
            contents.left_out.append(left_out(entry, f"{slot.state} card"))
        elif slot.card_id in held:
            contents.left_out.append(left_out(entry, "is already at an earlier place"))
        else:
            held.add(slot.card_id)
            contents.types.add(card.type)
            if (kept := conversation.add(entry, card)) is not None:
                contents.places[slot.card_id] = kept
            if card.type in _LAYERS and TURN not in card.metadata:
                # A layer that a turn wrote is not system text.
                contents.makers.append(card)
            elif card.type == PROFILE and contents.profile is None and not _is_by_a_turn(card, own):
                data = profile_in(card)
                contents.profile = None if data is None else (entry, data)
            if TURN not in card.metadata:
                contents.tools += stored_tools(card)
    return contents


def stored_tools(card: Card) -> list[dict[str, Any]]:
    """Return the tools on a card, also if another program has stored them as plain JSON."""
    content = card.content
    if isinstance(content, ToolContent):
        return content.tools
    if card.type == TOOLS and isinstance(content, JsonContent):
        return listed_tools(content.data) or []
    return []


class WholeHistory:
    """A history that holds every card with its entry, and makes the messages when all cards are added."""

    def __init__(self, encode: Encode, own: Container[str] = ()) -> None:
        self._encode = encode
        self._own = own
        self._entries: list[RequestEntry] = []

    def add(self, entry: RequestEntry, card: Card) -> RequestEntry | None:
        """Add a card. Return its entry if the request must keep it, else None."""
        self._entries.append(entry)
        return entry

    def messages(self, left_out_as: str | None) -> tuple[Sequence[Message], list[Omitted]]:
        """Return the messages, and the cards that make none. If `left_out_as` has a reason, the cards of a
        conversation are left out, except those that the turn itself wrote."""
        messages: list[Message] = []
        without: list[Omitted] = []
        calls = OtherCalls()
        for entry in self._entries:
            assert entry.slot.card is not None
            card = calls.answering(entry.slot.card)
            body = self._encode(card)
            if not isinstance(body, dict):
                without.append(left_out(entry, body.reason))
            elif left_out_as is None or card.card_id in self._own or is_packed(entry):
                messages.append(_message(card, body, self._own))
            else:
                without.append(left_out(entry, left_out_as))
        return messages, without


class PackedHistory:
    """A history that holds packed messages, and the entries of cards for which `keep` returns true. It does
    not record why a card makes no message."""

    def __init__(self, encode: Encode, keep: Callable[[Card], bool]) -> None:
        self._encode = encode
        self._keep = keep
        self._calls = OtherCalls()
        self._messages = PackedMessages()
        # One byte for each message: 1 if it is input that was packed for the turn, 0 if it is conversation.
        self._are_packed = bytearray()

    def add(self, entry: RequestEntry, card: Card) -> RequestEntry | None:
        card = self._calls.answering(card)
        body = self._encode(card)
        if isinstance(body, dict):
            self._messages.add(_message(card, body))
            self._are_packed.append(is_packed(entry))
        return entry if self._keep(card) else None

    def messages(self, left_out_as: str | None) -> tuple[Sequence[Message], list[Omitted]]:
        if left_out_as is None:
            return self._messages, []
        packed = PackedMessages()
        for message in compress(self._messages, self._are_packed):
            packed.add(message)
        return packed, []


def _message(card: Card, body: dict[str, Any], own: Container[str] = ()) -> Message:
    """Return the message of a card. System text that a turn wrote gets the role user."""
    if body.get("role") in SYSTEM_ROLES and _is_by_a_turn(card, own):
        body = {**body, "role": "user"}
    return Message(CHECKPOINT, body, card.card_id, group(card) if GROUP in card.metadata else None)


def _is_by_a_turn(card: Card, own: Container[str]) -> bool:
    return TURN in card.metadata or card.card_id in own


def is_packed(entry: RequestEntry) -> bool:
    """Return whether an entry is input instead of conversation: a recipe rule added it, or it has a type of
    input. Cards that turns wrote are conversation for later turns in the same box."""
    if entry.rule is None or entry.rule == REPLACED:
        return entry.slot.card is not None and entry.slot.card.type in _HANDED_OVER
    return entry.rule != OUTPUT


def left_out(entry: RequestEntry, reason: str) -> Omitted:
    return Omitted(entry.slot.card_id, entry.box_id, entry.slot.position, reason)


def profile_in(card: Card) -> dict[str, Any] | None:
    """Return the profile in a card. Returns None for other cards, and for a profile that is not an object."""
    data = card.content.data if card.type == PROFILE and isinstance(card.content, JsonContent) else None
    return data if isinstance(data, dict) else None


# --- the request


class ComposeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a request. The profile decides options that are None. `share` controls layer sharing."""

    model: str | None = None
    process: ProcessName | None = None
    share: bool | None = None
    layout: Layout | None = None
    asked: LayerRequest = LayerRequest()
    query: str | None = None


DEFAULT_OPTIONS = ComposeOptions()


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One LLM request from which a provider makes its body. The messages are in the provider's format.

    `tools` are as stored, `config` is the profile's llm_config. `layers` are composed texts. `places` maps
    card ids to entries. `profile_id` is the card of the profile. `lost_layers` has the SHA-256 of each sent
    layer whose text is not stored; such a layer makes no message. A request from `request_to_send` has few
    `places`, and its `left_out` lacks the cards that make no message.
    """

    messages: Sequence[Message]
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
        """The ids of the cards that made each layer and the system prompt, by layer."""
        of_prompt = [] if self.profile_id is None else [self.profile_id]
        return {SYSTEM_PROMPT: of_prompt} | {layer.name: layer.card_ids for layer in self.layers}


def request_of(
    entries: Iterable[RequestEntry],
    options: ComposeOptions = DEFAULT_OPTIONS,
    *,
    encode: Encode,
    collector: ContextCollector = WITHOUT_PROVIDERS,
    own: Container[str] = (),
    takes_all: bool = False,
) -> Request:
    """Make the request of the cards of boxes, in order. Repeated cards count at their first place only.

    `encode` makes the message of a card. `own` has the ids of cards that the turn itself wrote. A process
    without history gets only the packed input and the cards in `own`, unless `takes_all` is set. A card that
    a turn wrote is never system text.

    Raises InvalidInput if a requested layer is not allowed for the process, and DuplicateQuery if the history
    already ends with the query.
    """
    conversation = WholeHistory(encode, own)
    contents = read_contents(entries, conversation, own)
    return _compose_request(contents, conversation, options, collector, takes_all)


def request_to_send(
    entries: Iterable[RequestEntry],
    options: ComposeOptions = DEFAULT_OPTIONS,
    *,
    encode: Encode,
    collector: ContextCollector = WITHOUT_PROVIDERS,
    keep: Callable[[Card], bool],
) -> Request:
    """Make a request with packed messages of entries that are read one by one. It keeps only the entries of
    cards for which `keep` returns true. Raises the same errors as `request_of`."""
    conversation = PackedHistory(encode, keep)
    contents = read_contents(entries, conversation)
    return _compose_request(contents, conversation, options, collector, takes_all=False)


def _compose_request(
    contents: BoxContents,
    conversation: WholeHistory | PackedHistory,
    options: ComposeOptions,
    collector: ContextCollector,
    takes_all: bool,
) -> Request:
    profile_entry, profile = contents.profile or (None, {})
    process = find_process(options.process or profile.get("process"))
    collected = collector.collect(
        LayerSources(
            todo=contents.todo,
            makers=contents.makers,
            held=contents.held,
            types=contents.types,
            profile_box_id=None if profile_entry is None else profile_entry.box_id,
            here=options.asked,
            by_profile=requested_layers(profile),
            process=process,
            share=options.share,
        )
    )
    reason = None if takes_all or process.takes_history else no_history(process.name)
    history, without_message = conversation.messages(reason)
    layout: Layout = "cache" if (options.layout or profile.get("layout")) == "cache" else "default"
    return Request(
        messages=compose(
            system_prompt=text_at(profile, "system_prompt") or text_at(profile, "system_prompt_template"),
            checkpoint_messages=history,
            contexts=collected.contexts,
            query=options.query,
            layout=layout,
        ),
        tools=contents.tools,
        model=options.model or model_of(profile),
        config=dict_at(profile, "llm_config"),
        process=process.name,
        layout=layout,
        layers=collected.layers,
        layers_left_out=collected.left_out,
        left_out=contents.left_out + without_message,
        places=contents.places,
        profile_id=None if profile_entry is None else profile_entry.slot.card_id,
    )


def no_history(process: ProcessName) -> str:
    """Return the reason why a process without history leaves out a card of a conversation."""
    return f"history, and a {process} takes none"


# --- what the profile holds


def profile_of(cards: Iterable[Card]) -> dict[str, Any]:
    return next((data for data in map(profile_in, cards) if data is not None), {})


def model_of(profile: Mapping[str, Any]) -> str | None:
    return text_at(dict_at(profile, "llm_config"), "model") or None


# --- the StateBuilder: what is stored of a request, and under which ids


def request_cards(project_id: str, request: Request, *, reproducible: Iterable[str] = ()) -> list[CardDraft]:
    """Return cards for the parts of a request other than its history. `reproducible` names the layers to
    store. Equal parts have equal card ids."""
    cards = []
    prompt = request.messages[0] if request.messages else None
    if prompt is not None and prompt.layer == SYSTEM_PROMPT:
        text, profile_id = prompt.body["content"], request.profile_id or ""
        cards.append(
            _request_card(project_id, RENDERED_PROMPT, text, profile_id, text, profile_id=profile_id)
        )
    if request.tools:
        definitions = exact_json.canonical(exact_json.encode(request.tools)).decode()
        cards.append(_request_card(project_id, TOOLS, ToolContent(request.tools), definitions))
    names = set(reproducible)
    cards += [
        _request_card(project_id, STORED_LAYER, layer.text, layer.name, layer.text, **{LAYER_KEY: layer.name})
        for layer in request.layers
        if layer.name in names
    ]
    return cards


def request_box_ids(cards: Iterable[CardDraft], history: Sequence[RequestEntry]) -> list[str]:
    """Return the ids of a request box, each once: `cards`, then the present cards of the history."""
    present = (entry.slot.card_id for entry in history if entry.slot.state == "present")
    return unique([*(card.card_id for card in cards), *present])


def _request_card(
    project_id: str, card_type: str, content: ToolContent | str, *key: str, **metadata: str
) -> CardDraft:
    card_id = derived_id(project_id, card_type, *key).hex
    return draft_card(card_type, content, author_id="system_assembler", card_id=card_id, metadata=metadata)
