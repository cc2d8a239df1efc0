"""Todo lists: what the `todo.item` cards of boxes come to. Does no I/O."""

from collections.abc import Iterable

import msgspec

from cardbox_cli.model.boxes import Slot
from cardbox_cli.model.cards import Card, card_text
from cardbox_cli.model.content import JsonContent

TODO = "todo.item"


class TodoItem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to do. `number` is its place in the whole list, from 1."""

    number: int
    text: str
    done: bool
    card_id: str
    first_card_id: str


def todo_items(slots: Iterable[Slot]) -> list[TodoItem]:
    """The items of these places, in order."""
    cards = [slot.card for slot in slots if slot.card is not None and slot.fate == "present"]
    items = (card for card in cards if card.type == TODO)
    return [_item(number, card) for number, card in enumerate(items, 1)]


def _item(number: int, card: Card) -> TodoItem:
    said = card.content.data if isinstance(card.content, JsonContent) else None
    text = said.get("text") if isinstance(said, dict) else None
    return TodoItem(
        number=number,
        text=text if isinstance(text, str) else card_text(card.content),
        done=isinstance(said, dict) and said.get("done") is True,
        card_id=card.card_id,
        first_card_id=card.card_id,
    )
