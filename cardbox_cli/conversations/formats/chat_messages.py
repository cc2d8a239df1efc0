"""Functions that formats share if they convert the messages of a file to OpenAI's chat messages."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from cardbox_cli.context.provider import MessageShape
from cardbox_cli.context.sources import MESSAGE, keep
from cardbox_cli.conversations.conversation import Conversation, FileEntry, Rereadable
from cardbox_cli.conversations.json_documents import JsonDocuments
from cardbox_cli.conversations.message_lists import MessageList, find_lists, find_messages
from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import CardDraft
from cardbox_cli.providers.openai.cards import card_of_message


def read_lists(
    name: str, shape: MessageShape, documents: JsonDocuments, *, at: str | None = None
) -> Iterator[Conversation]:
    """Yield the conversations in a file: its lists of messages of this shape. `name` is the format's name."""
    for message_list in find_messages(documents, at, shape):
        yield message_list.conversation(name, Rereadable(partial(list_entries, message_list)))


def list_entries(message_list: MessageList) -> Iterator[FileEntry]:
    """Yield an entry for each message of a list. Its position is the index of the message, from 0."""
    for number, message in enumerate(message_list.messages):
        yield FileEntry(str(number), message, f"{message_list.place}: message {number}")


def find_evidence(shape: MessageShape, mark: Callable[[Any], str | None], value: Any) -> str | None:
    """Return the evidence that a value is, or contains, messages of one format. None without evidence.

    `mark` returns the evidence in a message, or None. In a list, only the first message is examined.
    """
    if (evidence := mark(value)) is not None:
        return evidence
    messages = next((messages for messages, _ in find_lists(value, (shape,)) if messages), ())
    return mark(next(iter(messages), None))


def chat_card(message: Mapping[str, Any], name: str) -> CardDraft:
    """Make the card of a chat message. If it preserves the original message, it also names the format."""
    card = card_of_message(dict(message))
    return keep(card, name) if MESSAGE in card.metadata else card


def parse_text(value: Any) -> Any:
    """Parse a value if it is a string. Returns other values unchanged, and None for invalid JSON."""
    with suppress(ValueError):
        return exact_json.read(value) if isinstance(value, str) else value
    return None
