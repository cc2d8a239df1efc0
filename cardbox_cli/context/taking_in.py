"""What the cards of boxes bring to a request, asked of each once: boxes are long.

The conversation among them is held in one of two ways: every card, for those who look into cards, or the
messages alone, packed, for those who send them.
"""

from collections.abc import Callable, Container, Iterable, Sequence
from collections.abc import Set as AbstractSet
from itertools import compress
from typing import Any, Protocol

import msgspec

from cardbox_cli.context.messages import Message, NoMessage
from cardbox_cli.context.other_calls import OtherCalls
from cardbox_cli.context.packed_messages import PackedMessages
from cardbox_cli.context.sources import GROUP, group
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
    TODO_ITEM,
)
from cardbox_cli.model.cards import SYSTEM_ROLES, Card
from cardbox_cli.model.content import JsonContent, ToolContent
from cardbox_cli.model.layers import CHECKPOINT

Encode = Callable[[Card], dict[str, Any] | NoMessage]

# The key in the metadata of a card that names the turn that wrote it.
TURN = "agent_turn_id"
# What stands in the place of a recipe's rule for cards that turns wrote.
OUTPUT = "output"
# What is asked and handed over, whoever put it into a box: no conversation.
_HANDED_OVER = frozenset({INSTRUCTION, RESULT_FIELDS, DELIVERABLE, PARENT_POINTER})

# What is system text by its type, and whoever wrote it.
_LAYERS = frozenset({SUMMARY, STORED_LAYER, CHAT_PERSONA, CHAT_MEMORY})
# The types of cards that are looked into for more than a message.
_LOOKED_INTO = _LAYERS | {PROFILE, TODO_ITEM}


class RequestEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A place of a box as rendering takes it in: its slot, its box, and the rule that brought it if known.

    `box_id` is empty where the box does not exist (yet).
    """

    slot: Slot
    box_id: str
    rule: str | None = None


class Omitted(msgspec.Struct, frozen=True):
    """A card that is no message, and why."""

    card_id: str
    box_id: str
    position: int
    reason: str


class Conversation(Protocol):
    """The cards that may be messages, in order."""

    def add(self, entry: RequestEntry, card: Card) -> RequestEntry | None:
        """Take a card in; its place, if that shall be kept."""

    def messages(self, left_out_as: str | None) -> tuple[Sequence[Message], list[Omitted]]:
        """The messages that the cards make, and why others make none.

        Where there is a reason `left_out_as` only what was packed for the turn, and its own, is taken.
        """


class TakenIn(msgspec.Struct):
    """What was taken in: `held` are the ids of its cards, `places` where they stand, as far as that is kept.

    `makers` are the cards that layers are made of, `todo` the places of all items of todo lists, `tools` the
    definitions that cards bring; the place of the first profile, and this; and why other places are not.
    """

    held: AbstractSet[str]
    places: dict[str, RequestEntry]
    types: set[str]
    makers: list[Card]
    todo: list[Slot]
    tools: list[dict[str, Any]]
    profile: tuple[RequestEntry, dict[str, Any]] | None
    left_out: list[Omitted]


def take_in(entries: Iterable[RequestEntry], conversation: Conversation, own: Container[str] = ()) -> TakenIn:
    """What these places bring; a card counts once, at its first place. `own` are cards of the turn itself."""
    held: set[str] = set()
    taken = TakenIn(held, {}, set(), [], [], [], None, [])
    for entry in entries:
        slot = entry.slot
        card = slot.card
        if card is not None and card.type == TODO_ITEM:
            taken.todo.append(slot)  # one that is gone still says what it replaced
        if card is None or slot.state != "present":
            taken.left_out.append(left_out(entry, f"{slot.state} card"))
        elif slot.card_id in held:
            taken.left_out.append(left_out(entry, "stands at an earlier place already"))
        else:
            held.add(slot.card_id)
            taken.types.add(card.type)
            if (kept := conversation.add(entry, card)) is not None:
                taken.places[slot.card_id] = kept
            if card.type in _LOOKED_INTO:
                _look_into(entry, card, taken, own)
            if type(card.content) is ToolContent and TURN not in card.metadata:
                taken.tools += card.content.tools
    return taken


def _look_into(entry: RequestEntry, card: Card, taken: TakenIn, own: Container[str]) -> None:
    if card.type in _LAYERS:
        # What a turn wrote is no system text in the shape of a layer.
        if TURN not in card.metadata:
            taken.makers.append(card)
    elif card.type == PROFILE and taken.profile is None and not _is_by_a_turn(card, own):
        data = profile_in(card)
        taken.profile = None if data is None else (entry, data)


class EveryCard:
    """Every card and its place are held, for whoever looks into them; messages are made of them."""

    def __init__(self, encode: Encode, own: Container[str] = ()) -> None:
        self._encode = encode
        self._own = own
        self._entries: list[RequestEntry] = []

    def add(self, entry: RequestEntry, card: Card) -> RequestEntry | None:
        """Take a card in; its place."""
        self._entries.append(entry)
        return entry

    def messages(self, left_out_as: str | None) -> tuple[Sequence[Message], list[Omitted]]:
        """The messages that the cards make, and why others make none."""
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


class OnlyMessages:
    """Of the cards their messages alone are held, packed, and the places of those that `keep` tells.

    Why a card makes no message is not.
    """

    def __init__(self, encode: Encode, keep: Callable[[Card], bool]) -> None:
        self._encode = encode
        self._keep = keep
        self._calls = OtherCalls()
        self._messages = PackedMessages()
        # A 1 for each message that was packed for the turn, and is no history.
        self._are_packed = bytearray()

    def add(self, entry: RequestEntry, card: Card) -> RequestEntry | None:
        """Take a card in; its place, if that shall be kept."""
        card = self._calls.answering(card)
        body = self._encode(card)
        if isinstance(body, dict):
            self._messages.add(_message(card, body))
            self._are_packed.append(is_packed(entry))
        return entry if self._keep(card) else None

    def messages(self, left_out_as: str | None) -> tuple[Sequence[Message], list[Omitted]]:
        """The messages that the cards make."""
        if left_out_as is None:
            return self._messages, []
        packed = PackedMessages()
        for message in compress(self._messages, self._are_packed):
            packed.add(message)
        return packed, []


def _message(card: Card, body: dict[str, Any], own: Container[str] = ()) -> Message:
    """The message of the history that a card is; what a turn wrote instructs no model."""
    if body.get("role") in SYSTEM_ROLES and _is_by_a_turn(card, own):
        body = {**body, "role": "user"}
    return Message(CHECKPOINT, body, card.card_id, group(card) if GROUP in card.metadata else None)


def _is_by_a_turn(card: Card, own: Container[str]) -> bool:
    """Whether a turn wrote the card: `own` has those of this turn."""
    return TURN in card.metadata or card.card_id in own


def is_packed(entry: RequestEntry) -> bool:
    """Whether the place holds input and no conversation: a recipe brought it, or it is what is asked or
    handed over. What turns wrote is conversation to those that go on with their box.
    """
    if entry.rule is None or entry.rule == REPLACED:
        return entry.slot.card is not None and entry.slot.card.type in _HANDED_OVER
    return entry.rule != OUTPUT


def left_out(entry: RequestEntry, reason: str) -> Omitted:
    """The place of a card that is no message."""
    return Omitted(entry.slot.card_id, entry.box_id, entry.slot.position, reason)


def profile_in(card: Card) -> dict[str, Any] | None:
    """The profile that a card holds; other programs may have left no object in one."""
    data = card.content.data if card.type == PROFILE and isinstance(card.content, JsonContent) else None
    return data if isinstance(data, dict) else None
