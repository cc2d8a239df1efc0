"""Requests made of the cards of boxes: system prompt, tools, layers and history.

Boxes are long, so each card is examined once. `WholeHistory` holds every card, for readers of cards;
`PackedHistory` holds only packed messages, to send them. The composer collects the texts of layers and orders
the messages; the provider's format decides their form. Pure if the collector has no providers.
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
from cardbox_cli.model.content import JsonContent, ToolContent
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

# The key in the metadata of a card that names the turn that wrote it.
TURN = "agent_turn_id"
# The rule of cards that turns wrote, instead of a recipe's rule.
OUTPUT = "output"
# The types of input that is handed over. They are never conversation, no matter who put them into a box.
_HANDED_OVER = frozenset({INSTRUCTION, RESULT_FIELDS, DELIVERABLE, PARENT_POINTER})

# The types of system text, no matter who wrote it.
_LAYERS = frozenset({SUMMARY, STORED_LAYER, CHAT_PERSONA, CHAT_MEMORY})


class RequestEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A slot, its box ("" if it is not stored yet), and the packing rule that brought its card, if known."""

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

    `held` has the ids of all present cards, `places` the entries that the history keeps, `makers` the cards
    of layers. `todo` has the slots of all todo items, `tools` the definitions on cards. `profile` is the
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
            contents.todo.append(slot)  # one that is gone still says what it replaced
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
            if type(card.content) is ToolContent and TURN not in card.metadata:
                contents.tools += card.content.tools
    return contents


class WholeHistory:
    """A history that holds every card with its entry, and makes messages at the end."""

    def __init__(self, encode: Encode, own: Container[str] = ()) -> None:
        self._encode = encode
        self._own = own
        self._entries: list[RequestEntry] = []

    def add(self, entry: RequestEntry, card: Card) -> RequestEntry | None:
        """Add a card; return its entry if the request must keep it."""
        self._entries.append(entry)
        return entry

    def messages(self, left_out_as: str | None) -> tuple[Sequence[Message], list[Omitted]]:
        """Return the messages of the cards, and the cards that make none. With a reason `left_out_as`, only
        cards that were packed for the turn, and its own, make messages."""
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
    """A history that holds packed messages, and the entries of the cards for which `keep` is true. It does
    not record why a card makes no message."""

    def __init__(self, encode: Encode, keep: Callable[[Card], bool]) -> None:
        self._encode = encode
        self._keep = keep
        self._calls = OtherCalls()
        self._messages = PackedMessages()
        # A 1 for each message that was packed for the turn, and is not history.
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
    """Return the message of a card. System text that a turn wrote is sent as the user's."""
    if body.get("role") in SYSTEM_ROLES and _is_by_a_turn(card, own):
        body = {**body, "role": "user"}
    return Message(CHECKPOINT, body, card.card_id, group(card) if GROUP in card.metadata else None)


def _is_by_a_turn(card: Card, own: Container[str]) -> bool:
    return TURN in card.metadata or card.card_id in own


def is_packed(entry: RequestEntry) -> bool:
    """Return whether an entry holds input, and not conversation: a recipe brought it, or its type is handed
    over. Cards that turns wrote are conversation for the turns that continue their box."""
    if entry.rule is None or entry.rule == REPLACED:
        return entry.slot.card is not None and entry.slot.card.type in _HANDED_OVER
    return entry.rule != OUTPUT


def left_out(entry: RequestEntry, reason: str) -> Omitted:
    return Omitted(entry.slot.card_id, entry.box_id, entry.slot.position, reason)


def profile_in(card: Card) -> dict[str, Any] | None:
    """Return the profile that a card holds; None for other cards, and for a profile that is not an object."""
    data = card.content.data if card.type == PROFILE and isinstance(card.content, JsonContent) else None
    return data if isinstance(data, dict) else None


# --- the request


class ComposeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a request; the profile decides those that are None. `share` is the switch of sharing."""

    model: str | None = None
    process: ProcessName | None = None
    share: bool | None = None
    layout: Layout | None = None
    asked: LayerRequest = LayerRequest()
    query: str | None = None


DEFAULT_OPTIONS = ComposeOptions()


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One LLM request before the provider's body is made of it; its messages are in the provider's format.

    `tools` are as stored, `config` is the profile's llm_config. `layers` are the composed texts, `places` has
    the entry of each card by its id, `profile_id` is the card of the profile. `lost_layers` maps layers whose
    sent texts are gone to their SHA-256; they make no message. A request from `request_to_send` has few
    `places`, and `left_out` lacks the cards that make no message.
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
        """The ids of the cards that made each layer, and the system prompt."""
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
    """Return the request that the cards of boxes make, in order; a card counts at its first place
    only.

    `encode` makes the message of a card. A process without history gets only what was packed for it and the
    cards of `own`, which the turn itself wrote; `takes_all` sends everything. A card that a turn wrote is
    never system text.

    Raises InvalidInput for requested layers that the process cannot have, DuplicateQuery for a query that
    ends the history.
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
    """Return the request of entries that are read one by one and not held: its messages are packed. It keeps
    the entries of cards for which `keep` is true. Raises as `request_of`."""
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
    """Return why such a process leaves out a card of a conversation."""
    return f"history, and a {process} takes none"


# --- what the profile holds


def profile_of(cards: Iterable[Card]) -> dict[str, Any]:
    return next((data for data in map(profile_in, cards) if data is not None), {})


def model_of(profile: Mapping[str, Any]) -> str | None:
    return text_at(dict_at(profile, "llm_config"), "model") or None


# --- the StateBuilder: what is stored of a request, and under which ids


def request_cards(project_id: str, request: Request, *, reproducible: Iterable[str] = ()) -> list[CardDraft]:
    """Return the cards of a request's parts other than its history; `reproducible` are the layers to store.
    Equal parts have equal card ids."""
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
    """Return the ids of a request box: these cards, then the present cards of the history, each once."""
    present = (entry.slot.card_id for entry in history if entry.slot.state == "present")
    return unique([*(card.card_id for card in cards), *present])


def _request_card(
    project_id: str, card_type: str, content: ToolContent | str, *key: str, **metadata: str
) -> CardDraft:
    card_id = derived_id(project_id, card_type, *key).hex
    return draft_card(card_type, content, author_id="system_assembler", card_id=card_id, metadata=metadata)
