"""The texts that every request of a chat contains: the project's personas and the chat's memory.

Each text is a card, and a change is a new card. One box holds all versions; the last one of a name is
current, and a blank one removes the text.
"""

import msgspec

from cardbox_cli.execution.requests.turn_requests import present_cards
from cardbox_cli.model.card_types import CHAT_MEMORY, CHAT_PERSONA
from cardbox_cli.model.cards import OPERATOR, Card, CardDraft, card_text, draft_card
from cardbox_cli.model.chats import CHAT, check_key, texts_box
from cardbox_cli.model.ids import check_new_id
from cardbox_cli.store.chats import ChatStores

# The name of the persona that precedes all others.
PRIMARY = "Primary"


class StoredText(msgspec.Struct, frozen=True, kw_only=True):
    """The current text of a persona, or the memory of a chat, which has no name."""

    name: str | None
    text: str
    card_id: str


def list_personas(stores: ChatStores) -> list[StoredText]:
    """Return the project's personas, the primary one first, the others by name."""
    latest: dict[str, Card] = {}
    for card in _cards(stores, texts_box(stores.project_id, None)):
        name = card.metadata.get("name")
        latest[name if isinstance(name, str) else PRIMARY] = card
    named = [
        StoredText(name=name, text=card_text(card.content), card_id=card.card_id)
        for name, card in latest.items()
    ]
    return sorted(
        (each for each in named if each.text.strip()),
        key=lambda each: (not _is_same(each.name, PRIMARY), each.name or ""),
    )


def find_memory(stores: ChatStores, chat_key: str) -> StoredText | None:
    """Return the memory of a chat, None if it is empty."""
    last = _cards(stores, texts_box(stores.project_id, chat_key))[-1:]
    texts = [StoredText(name=None, text=card_text(card.content), card_id=card.card_id) for card in last]
    return next((each for each in texts if each.text.strip()), None)


def set_persona(stores: ChatStores, name: str, text: str) -> str:
    """Set the text of a persona. The case of its name does not matter. Returns the card's id."""
    check_new_id(name, "the persona's name", f"for example {PRIMARY}")
    own_name = next((each.name for each in list_personas(stores) if _is_same(each.name, name)), name)
    draft = draft_card(CHAT_PERSONA, text, author_id=OPERATOR, metadata={"name": own_name})
    return _append(stores, texts_box(stores.project_id, None), "personas", draft)


def set_memory(stores: ChatStores, chat_key: str, text: str) -> str:
    """Replace the memory of a chat. Returns the card's id."""
    check_key(chat_key)
    draft = draft_card(CHAT_MEMORY, text, author_id=OPERATOR, metadata={CHAT: {"key": chat_key}})
    with stores.transaction():
        stores.chats.lock_or_create(chat_key)
        return _append(stores, texts_box(stores.project_id, chat_key), f"memory of {chat_key}", draft)


def _append(stores: ChatStores, box_id: str, title: str, draft: CardDraft) -> str:
    with stores.transaction():
        stores.cards.add(draft)
        if stores.boxes.filter_existing([box_id]):
            stores.boxes.append(box_id, [draft.card_id])
        else:
            stores.boxes.create([draft.card_id], box_id=box_id, title=title)
    return draft.card_id


def _cards(stores: ChatStores, box_id: str) -> list[Card]:
    return present_cards(stores.boxes.slots(box_id))


def _is_same(name: str | None, other: str) -> bool:
    return (name or "").casefold() == other.casefold()
