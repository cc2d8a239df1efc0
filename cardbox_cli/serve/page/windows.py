"""Cards as rows that unfold: what a row says, and what is inside. Pure."""

from collections.abc import Callable

import msgspec

from cardbox_cli.model.boxes import CardState
from cardbox_cli.model.cards import Card
from cardbox_cli.model.pairing import answers, full_text
from cardbox_cli.store.views.box_views import WindowSlot
from cardbox_cli.text import one_line

# Characters of a row, and of what is inside: more are on the card's own page.
PREVIEW, INSIDE = 160, 4_000


class ShownSlot(msgspec.Struct, frozen=True, kw_only=True):
    """A place of a box as a row."""

    position: int
    card_id: str
    state: CardState
    size: int
    card: Card | None
    type: str
    role: str | None
    preview: str
    text: str
    is_cut: bool
    answers: str
    rule: str | None


def shown(slot: WindowSlot, rule_of: Callable[[int], str | None] = lambda _: None) -> ShownSlot:
    """A row of a box. `rule_of` says which rule of a recipe brought a place."""
    text = slot.beginning if slot.card is None else full_text(slot.card)
    return ShownSlot(
        position=slot.position,
        card_id=slot.card_id,
        state=slot.state,
        size=slot.size,
        card=slot.card,
        type=slot.type,
        role=slot.role,
        preview=one_line(text, PREVIEW),
        text=text[:INSIDE],
        is_cut=slot.card is None or len(text) > INSIDE,
        answers="" if slot.card is None else answers(slot.card),
        rule=rule_of(slot.position),
    )
