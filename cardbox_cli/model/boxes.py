"""Boxes: ordered lists of card ids, and what becomes of them when they are read.

A box references cards and never holds them, so reading one can find references that lead nowhere; a
`Slot` says so with its position. Owns the digest of a box.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, Literal, get_args

import msgspec

from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import CIRCUMSTANCES, Card, CardDraft
from cardbox_cli.model.pairing import pair_calls

CardState = Literal["present", "dangling", "deleted", "expired"]


class Box(msgspec.Struct, frozen=True, kw_only=True):
    """A stored box. `title` is None where none was given, or where the database has no place for one."""

    box_id: str
    project_id: str
    title: str | None
    card_ids: list[str]
    parent_ids: list[str]
    updated_at: datetime | None


# What a box is for, as far as its cards, its packing and the turns that name it tell.
BoxKind = Literal["context", "output", "conversation", "profile", "request"]
BOX_KINDS: tuple[BoxKind, ...] = get_args(BoxKind)
# Those that cbx makes by itself, and few people look for.
INTERNAL_KINDS: tuple[BoxKind, ...] = ("profile", "request")


class ListedBox(Box, frozen=True, kw_only=True):
    """A box in a list, with its kind where one is known."""

    kind: BoxKind | None


class Slot(msgspec.Struct, frozen=True, gc=False):
    """One place in a box: its position from 0, the id that stands there, and the card if there is one."""

    position: int
    card_id: str
    card: Card | None
    state: CardState


# What an id stands for; an id that is not there dangles.
Known = Mapping[str, tuple[Card, CardState]]


def slot_of(position: int, card_ids: Sequence[str], known: Known) -> Slot:
    """The place at `position` of these ids, which stand for what is `known` of them."""
    card_id = card_ids[position]
    return Slot(position, card_id, *known.get(card_id, (None, "dangling")))


class BoxTurn(msgspec.Struct, frozen=True):
    """A turn that a box belongs to: its `use` is that of a context or an output box."""

    agent_turn_id: str
    agent_id: str
    use: str


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """A box that holds a card, at these positions from 0; `cards` is how many places it has.

    `turns` are those that read or write the box, newest first, as far as they are known.
    """

    box_id: str
    title: str | None = None
    positions: list[int]
    cards: int
    turns: list[BoxTurn] = []
    updated_at: datetime | None


class ProvenanceRule(msgspec.Struct, frozen=True):
    """A run of neighbouring cards of a packed box that one recipe rule brought."""

    rule: str
    cards: int


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """How a box was packed. `digest` is that of its contents then, if one was made; `rules` cover its ids."""

    recipe: str
    recipe_digest: str
    digest: str | None
    rules: list[ProvenanceRule]

    def rule_of(self, position: int) -> str | None:
        """The rule that brought the card at `position`; None for what was appended later."""
        for run in self.rules:
            if position < run.cards:
                return run.rule
            position -= run.cards
        return None

    def moved(self, before: Sequence[str], after: Sequence[str]) -> "Provenance":
        """The same packing for the ids `after` that replace `before`: each keeps the rule that brought it."""
        rules = {card_id: self.rule_of(position) for position, card_id in enumerate(before)}
        return msgspec.structs.replace(self, rules=runs(rules.get(card_id) or REPLACED for card_id in after))


REPLACED = "box replace"


def runs(rules: Iterable[str]) -> list[ProvenanceRule]:
    """Rules, one for each card in order, as runs."""
    return [ProvenanceRule(rule, len(list(group))) for rule, group in groupby(rules)]


class BoxView(msgspec.Struct, frozen=True, kw_only=True):
    """A box with its cards, as one snapshot. `digest` is over everything that it references."""

    box: Box
    slots: list[Slot]
    digest: str

    @property
    def cards(self) -> list[Card]:
        """The cards that a reader sees, in box order."""
        return [slot.card for slot in self.slots if slot.card is not None and slot.state == "present"]

    @property
    def missing_card_ids(self) -> list[str]:
        """The ids that lead to no card that a reader sees, each once, in box order."""
        return list(dict.fromkeys(slot.card_id for slot in self.slots if slot.state != "present"))


class Digest:
    """SHA-256 of a box's contents: the `digest_line` of each card in order, `null` where there is none."""

    def __init__(self) -> None:
        self._total = hashlib.sha256()

    def add(self, card: Card | CardDraft | None) -> None:
        """The next place of the box."""
        self._total.update((b"null" if card is None else digest_line(card)) + b"\n")

    def hexdigest(self) -> str:
        """The digest of the places so far, in 64 hex digits."""
        return self._total.hexdigest()


def digest(cards: Iterable[Card | CardDraft | None]) -> str:
    """The `Digest` of these cards."""
    total = Digest()
    for card in cards:
        total.add(card)
    return total.hexdigest()


def digest_line(card: Card | CardDraft) -> bytes:
    """What the digest takes of a card: one line of canonical JSON. Equal for a draft and its stored card."""
    metadata = card.metadata
    parts: list[Any] = [
        metadata.get("type"),
        metadata.get("role"),
        metadata.get("author_id"),
        card.content,
        card.tool_calls,
        card.tool_call_id,
        {key: value for key, value in metadata.items() if key not in CIRCUMSTANCES},
    ]
    return exact_json.canonical(exact_json.encode(parts))


def decode_box(row: str) -> Box:
    """The box of a row's JSON; ids of it that are no texts stand as their JSON."""
    try:
        return msgspec.json.decode(row, type=Box)
    except exact_json.ODD:
        # A foreign row whose list holds something that is no string.
        values = exact_json.decode_stored(row)
        for key in ("card_ids", "parent_ids"):
            values[key] = _as_texts(values[key])
        return msgspec.convert(values, Box)


def _as_texts(ids: list[Any]) -> list[str]:
    """Ids of a row; what is no text among them is another program's, and stands as its JSON."""
    return [each if isinstance(each, str) else exact_json.encode(each).decode() for each in ids]


def decode_ids(text: str) -> list[str]:
    """The ids of a row's JSON list; what is no text among them stands as its JSON."""
    try:
        return _decode_texts(text)
    except exact_json.ODD:
        return _as_texts(exact_json.decode_stored(text))


_decode_texts = msgspec.json.Decoder(list[str]).decode


# What can be wrong with a box: references that lead nowhere, torn exchanges, contents that changed.


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
