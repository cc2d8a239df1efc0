"""What mending does to the list of a box: the values that repairs, fits and compressions answer with."""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from cardbox_cli.context.request import RequestEntry
from cardbox_cli.model.boxes import Slot
from cardbox_cli.model.cards import Card, CardDraft, card_of

ChangeKind = Literal["dropped", "added", "rewritten", "moved"]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a box's list. `position` is that of `card_id` in the old box, from 0.

    An added card has no position, and `card_id` is its own; a rewritten one stands in its place as
    `new_card_id`. `rule` is what the lint found, or the strategy; `reason` says it in words.
    """

    kind: ChangeKind
    position: int | None
    card_id: str
    new_card_id: str | None = None
    rule: str
    reason: str


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A place of a list that is being mended: its position in the old box, None for an added card; the slot;
    the draft of a card that is new; the rule that brought it, where the box was packed."""

    origin: int | None
    slot: Slot
    draft: CardDraft | None = None
    rule: str | None = None

    @property
    def card(self) -> Card | None:
        """The card that a reader sees."""
        return self.slot.card if self.slot.state == "present" else None


def places_of(entries: Iterable[RequestEntry]) -> list[Place]:
    """The places of a box as it is."""
    return [Place(origin=entry.slot.position, slot=entry.slot, rule=entry.rule) for entry in entries]


def new_place(draft: CardDraft, project_id: str, *, origin: int | None, rule: str | None) -> Place:
    """The place of a card that is to be written; `origin` is that of the card that it stands for."""
    card = card_of(draft, project_id)
    return Place(origin=origin, slot=Slot(0, draft.card_id, card, "present"), draft=draft, rule=rule)


def entries_of(places: Sequence[Place], box_id: str) -> list[RequestEntry]:
    """The places as a request is made of them, numbered as they stand."""
    return [
        RequestEntry(
            slot=Slot(number, place.slot.card_id, place.slot.card, place.slot.state),
            box_id=box_id,
            rule=place.rule,
        )
        for number, place in enumerate(places)
    ]


def card_ids_of(places: Iterable[Place]) -> list[str]:
    """The ids of the list."""
    return [place.slot.card_id for place in places]


def drafts_of(places: Iterable[Place]) -> list[CardDraft]:
    """The cards of the list that are to be written."""
    return [place.draft for place in places if place.draft is not None]
