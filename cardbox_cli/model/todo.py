"""Todo lists: the current items of the `todo.item` cards in boxes.

Boxes only grow and cards never change. A changed item is a new card that names the old card in
`metadata.edited_from`. Any content of another program's card becomes the text of an item.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from cardbox_cli.errors import AmbiguousId, InvalidInput, NotFound
from cardbox_cli.model.boxes import Slot
from cardbox_cli.model.card_types import TODO_ITEM
from cardbox_cli.model.cards import IGNORED_METADATA, Card, CardDraft, card_text, draft_card
from cardbox_cli.model.content import JsonContent
from cardbox_cli.model.ids import matches_short_id
from cardbox_cli.text.command_lines import quote_argument
from cardbox_cli.text.error_messages import ambiguous_message

_REPLACED = "edited_from"
_NUMBER = re.compile(r"[0-9]{1,9}")


class TodoItem(msgspec.Struct, frozen=True, kw_only=True):
    """An item. `number` is its position in the list, from 1. `card_id` is the card with its present state."""

    number: int
    text: str
    done: bool
    card_id: str
    first_card_id: str


def todo_items(slots: Iterable[Slot]) -> list[TodoItem]:
    """Return the items of these slots in the order of their first cards, each with its newest state.

    If two cards replace the same card, the later one counts. A deleted or expired card has no state, but it
    still connects the card that it replaces with the card that replaces it.
    """
    written = {slot.card_id: slot for slot in slots if slot.card is not None and slot.card.type == TODO_ITEM}
    replaced: set[str] = set()
    chains: dict[str, list[Card]] = {}
    for card_id, slot in written.items():
        older = list(_older(card_id, written))
        chain = chains.setdefault(older[-1] if older else card_id, [])
        if slot.card is not None and slot.state == "present":
            chain.append(slot.card)
            replaced.update(older)
    newest = {first: _newest(chain, replaced) for first, chain in chains.items() if chain}
    return [
        TodoItem(
            number=number,
            text=_text(card),
            done=_data(card).get("done") is True,
            card_id=card.card_id,
            first_card_id=first,
        )
        for number, (first, card) in enumerate(newest.items(), 1)
    ]


def find_item(items: Sequence[TodoItem], wanted: str, box_id: str) -> TodoItem:
    """Return the item with this number, card id, or part of a card id. Raises NotFound, AmbiguousId."""
    if _NUMBER.fullmatch(wanted) and 1 <= int(wanted) <= len(items):
        return items[int(wanted) - 1]
    whole = [item for item in items if wanted in _ids(item)]
    fitting = whole or [item for item in items if any(matches_short_id(wanted, each) for each in _ids(item))]
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        hint = f"`cbx todo list {quote_argument(box_id)}` shows the numbers and ids"
        raise NotFound(f"no todo item {wanted!r} in box {box_id}", hint=hint)
    candidates = [item.card_id for item in fitting[:5]]
    raise AmbiguousId(
        ambiguous_message(wanted, "todo item", candidates, more=len(fitting) > len(candidates)),
        hint="type more characters of the id, or the item's number",
        details={"candidates": candidates},
    )


def new_item(text: str, *, author_id: str, agent_turn_id: str | None = None) -> CardDraft:
    """Return the card of a new, open item. Raises InvalidInput for a blank text."""
    if not text.strip():
        raise InvalidInput(f"the todo item {text!r} is blank", hint="describe the task in a few words")
    content = JsonContent({"text": text.strip(), "done": False})
    return draft_card(TODO_ITEM, content, author_id=author_id, metadata=_turn_metadata(agent_turn_id))


def replacement_card(
    card: Card, *, done: bool, author_id: str, agent_turn_id: str | None = None
) -> CardDraft:
    """Draft the card that replaces the newest card of an item, and marks the item as done or open."""
    metadata = {key: value for key, value in card.metadata.items() if key not in IGNORED_METADATA}
    return draft_card(
        TODO_ITEM,
        JsonContent({**_data(card), "text": _text(card), "done": done}),
        author_id=author_id,
        metadata={**metadata, _REPLACED: card.card_id, **_turn_metadata(agent_turn_id)},
        ttl_seconds=card.ttl_seconds,
    )


def _turn_metadata(agent_turn_id: str | None) -> dict[str, str]:
    return {} if agent_turn_id is None else {"agent_turn_id": agent_turn_id}


def _older(card_id: str, written: Mapping[str, Slot]) -> Iterator[str]:
    """Yield the cards in `written` that a card replaces, directly or not, newest first."""
    seen = {card_id}
    while True:
        card = written[card_id].card
        replaced = None if card is None else card.metadata.get(_REPLACED)
        # Cards of other programs may replace each other in a cycle.
        if not isinstance(replaced, str) or replaced not in written or replaced in seen:
            return
        seen.add(replaced)
        card_id = replaced
        yield card_id


def _newest(chain: Sequence[Card], replaced: set[str]) -> Card:
    return next((card for card in reversed(chain) if card.card_id not in replaced), chain[-1])


def _text(card: Card) -> str:
    text = _data(card).get("text")
    text = text if isinstance(text, str) else card_text(card.content)
    return text.strip() or "(no text)"


def _data(card: Card) -> dict[str, Any]:
    """Return the object in a card, or {}. The content of another program's card may have no class."""
    content = card.content
    if isinstance(content, dict):
        return {key: value for key, value in content.items() if key != "__type__"}
    return content.data if isinstance(content, JsonContent) and isinstance(content.data, dict) else {}


def _ids(item: TodoItem) -> tuple[str, str]:
    return item.first_card_id, item.card_id
