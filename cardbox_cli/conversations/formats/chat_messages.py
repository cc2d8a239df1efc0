"""What the formats of files share that say in other words what chat messages say: reading, finding, titles.

A format of them gives the chat message that one of its own is; the card is that of the chat message.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from cardbox_cli.context.provider import MessageShape
from cardbox_cli.context.sources import MESSAGE, keep
from cardbox_cli.conversations.conversation import Conversation, FileEntry, Rereadable
from cardbox_cli.conversations.json_documents import Documents
from cardbox_cli.conversations.message_lists import MessageList, find_messages, lists_within
from cardbox_cli.model.cards import CardDraft
from cardbox_cli.providers.openai.cards import card_of_message


def read_lists(
    name: str, shape: MessageShape, documents: Documents, *, at: str | None = None
) -> Iterator[Conversation]:
    """The conversations in a file whose messages are of a shape."""
    for found in find_messages(documents, at, shape):
        yield found.conversation(name, Rereadable(partial(entries_of, found)))


def entries_of(found: MessageList) -> Iterator[FileEntry]:
    """The messages of a list, by their numbers."""
    for number, message in enumerate(found.messages):
        yield FileEntry(str(number), message, f"{found.place}: message {number}")


def marks_of(shape: MessageShape, said: Callable[[Any], str | None], value: Any) -> str | None:
    """By what a value holds messages of a shape that no other format has.

    `said` says it of a message, and gives None for what is none.
    """
    if (mark := said(value)) is not None:
        return mark
    found = next((messages for messages, _ in lists_within(value, (shape,)) if messages), ())
    return said(next(iter(found), None))


def chat_card(message: Mapping[str, Any], name: str) -> CardDraft:
    """The card of a chat message that a file of this format holds."""
    card = card_of_message(dict(message))
    return keep(card, name) if MESSAGE in card.metadata else card


def no_original(changed: CardDraft, _: CardDraft) -> CardDraft:
    """The card as it is: formats that are only read have nothing to give back."""
    return changed
