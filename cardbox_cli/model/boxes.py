"""Boxes: ordered lists of card ids, their contents when they are read, and the findings of a check.

A box references cards and never contains them, so a referenced card may be missing. A `Slot` has the state of
a reference. This module also computes the digest of a box.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, Literal, get_args

import msgspec

from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import IGNORED_METADATA, Card, CardDraft
from cardbox_cli.model.pairing import pair_calls

CardState = Literal["present", "dangling", "deleted", "expired"]


class Box(msgspec.Struct, frozen=True, kw_only=True):
    """A stored box. `title` is None if the box has no title, or if the database does not store titles."""

    box_id: str
    project_id: str
    title: str | None
    card_ids: list[str]
    parent_ids: list[str]
    updated_at: datetime | None


# The use of a box. cbx derives it from the cards of the box, its packing and its turns.
BoxKind = Literal["context", "output", "conversation", "profile", "request"]
BOX_KINDS: tuple[BoxKind, ...] = get_args(BoxKind)
# The kinds of boxes that cbx creates automatically. People rarely look for them.
INTERNAL_KINDS: tuple[BoxKind, ...] = ("profile", "request")


class ListedBox(Box, frozen=True, kw_only=True):
    kind: BoxKind | None


class InheritableBox(msgspec.Struct, frozen=True):
    """The id list of a box to inherit. `kind` is one of `INTERNAL_KINDS` if only cbx reads the box."""

    card_ids: list[str]
    kind: BoxKind | None


class Slot(msgspec.Struct, frozen=True, gc=False):
    """A position of a box, counted from 0, with the card id at this position, and the card if it exists."""

    position: int
    card_id: str
    card: Card | None
    state: CardState


# Maps a card id to the card and its state. An id that is not in the map is dangling.
KnownCards = Mapping[str, tuple[Card, CardState]]


def slot_of(position: int, card_ids: Sequence[str], known: KnownCards) -> Slot:
    card_id = card_ids[position]
    return Slot(position, card_id, *known.get(card_id, (None, "dangling")))


class BoxTurn(msgspec.Struct, frozen=True):
    """A turn that uses a box. `use` shows whether the box is its context or its output box."""

    agent_turn_id: str
    agent_id: str
    use: str


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """A box that contains a card at `positions`, from 0. `cards` is the length of the box.

    `turns` are the known turns that read or write the box, newest first.
    """

    box_id: str
    title: str | None = None
    positions: list[int]
    cards: int
    turns: list[BoxTurn] = []
    updated_at: datetime | None


class ProvenanceRule(msgspec.Struct, frozen=True):
    """A run of adjacent cards of a packed box that one recipe rule added."""

    rule: str
    cards: int


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """The record of how a box was packed. `digest` is the digest of its packed contents, or None."""

    recipe: str
    recipe_digest: str
    digest: str | None
    rules: list[ProvenanceRule]

    def rule_of(self, position: int) -> str | None:
        """Return the rule that added the card at `position`, or None for a card that was appended later."""
        for run in self.rules:
            if position < run.cards:
                return run.rule
            position -= run.cards
        return None

    def reorder(self, before: Sequence[str], after: Sequence[str]) -> "Provenance":
        """Return the provenance after the ids `after` have replaced `before`. Each id keeps its rule."""
        rules = {card_id: self.rule_of(position) for position, card_id in enumerate(before)}
        runs = rule_runs(rules.get(card_id) or REPLACED for card_id in after)
        return msgspec.structs.replace(self, rules=runs)


REPLACED = "box replace"


def rule_runs(rules: Iterable[str]) -> list[ProvenanceRule]:
    """Return the runs of adjacent cards with the same rule. `rules` has the rule of each card in order."""
    return [ProvenanceRule(rule, len(list(group))) for rule, group in groupby(rules)]


class BoxView(msgspec.Struct, frozen=True, kw_only=True):
    """A box with its cards, read in one snapshot. `digest` covers all cards that it references."""

    box: Box
    slots: list[Slot]
    digest: str

    @property
    def cards(self) -> list[Card]:
        """Return the visible cards, in box order."""
        return [slot.card for slot in self.slots if slot.card is not None and slot.state == "present"]

    @property
    def missing_card_ids(self) -> list[str]:
        """Return the ids that have no visible card, in box order and without duplicates."""
        return list(dict.fromkeys(slot.card_id for slot in self.slots if slot.state != "present"))


class Digest:
    """The SHA-256 of a box's contents: the `digest_line` of each card in order, `null` for a missing card."""

    def __init__(self) -> None:
        self._total = hashlib.sha256()

    def add(self, card: Card | CardDraft | None) -> None:
        self._total.update((b"null" if card is None else digest_line(card)) + b"\n")

    def hexdigest(self) -> str:
        return self._total.hexdigest()


def digest(cards: Iterable[Card | CardDraft | None]) -> str:
    total = Digest()
    for card in cards:
        total.add(card)
    return total.hexdigest()


def digest_line(card: Card | CardDraft) -> bytes:
    """Return a card's line of canonical JSON for the digest. A draft and its stored card have equal lines."""
    metadata = card.metadata
    parts: list[Any] = [
        metadata.get("type"),
        metadata.get("role"),
        metadata.get("author_id"),
        card.content,
        card.tool_calls,
        card.tool_call_id,
        {key: value for key, value in metadata.items() if key not in IGNORED_METADATA},
    ]
    return exact_json.canonical(exact_json.encode(parts))


def decode_box(row: str) -> Box:
    """Decode the JSON of a row. Card ids that are not strings become their JSON text."""
    try:
        return msgspec.json.decode(row, type=Box)
    except exact_json.DECODE_ERRORS:
        # Another program wrote a row whose list contains a value that is not a string.
        values = exact_json.decode_stored(row)
        for key in ("card_ids", "parent_ids"):
            values[key] = _convert_to_strings(values[key])
        return msgspec.convert(values, Box)


def _convert_to_strings(ids: list[Any]) -> list[str]:
    return [each if isinstance(each, str) else exact_json.encode(each).decode() for each in ids]


def decode_ids(text: str) -> list[str]:
    """Decode the JSON list of ids in a row. Ids that are not strings become their JSON text."""
    try:
        return _decode_strings(text)
    except exact_json.DECODE_ERRORS:
        return _convert_to_strings(exact_json.decode_stored(text))


_decode_strings = msgspec.json.Decoder(list[str]).decode


Kind = Literal[
    "dangling", "deleted", "expired", "call-without-result", "result-without-call", "digest-differs"
]

LOSSES = {"dangling": "no such card", "deleted": "the card was deleted", "expired": "the card has expired"}


class BoxFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A problem of a box. Its position is counted from 0, and is None if it concerns the whole box."""

    position: int | None
    card_id: str | None
    kind: Kind
    message: str


def verify(view: BoxView, provenance: Provenance | None) -> list[BoxFinding]:
    """Return all problems of the box in the order of their positions."""
    findings = _check_references(view) + _check_exchanges(view)
    findings.sort(key=lambda finding: finding.position or 0)
    if provenance is not None and provenance.digest not in (None, view.digest):
        message = f"packed as {provenance.digest}, now {view.digest}"
        findings.append(BoxFinding(position=None, card_id=None, kind="digest-differs", message=message))
    return findings


def _check_references(view: BoxView) -> list[BoxFinding]:
    return [
        _finding_at(slot, slot.state, f"{slot.card_id}: {LOSSES[slot.state]}")
        for slot in view.slots
        if slot.state != "present"
    ]


def _check_exchanges(view: BoxView) -> list[BoxFinding]:
    cards = [slot.card if slot.state == "present" else None for slot in view.slots]
    pairing = pair_calls(cards)
    findings = []
    for position, call_id in pairing.unanswered:
        message = f"the tool call {call_id!r} has no result"
        findings.append(_finding_at(view.slots[position], "call-without-result", message))
    for position in pairing.orphans:
        if (card := cards[position]) is not None:
            message = f"no earlier call {card.tool_call_id!r} waits for this result"
            findings.append(_finding_at(view.slots[position], "result-without-call", message))
    return findings


def _finding_at(slot: Slot, kind: Kind, message: str) -> BoxFinding:
    return BoxFinding(position=slot.position, card_id=slot.card_id, kind=kind, message=message)
