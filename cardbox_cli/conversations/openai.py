"""OpenAI chat messages as cards, and back, exactly.

A message that a card's own fields can spell is kept in them alone; any other keeps its original in
`metadata.source_message`, and its text as the card's content, so that search and previews work.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from cardbox_cli.context import sources
from cardbox_cli.context.drafting import OPENAI_TYPES, card_of_message, keep_message
from cardbox_cli.context.formats.openai import welded
from cardbox_cli.context.messages import Message, Silence, message_body, spoken_body
from cardbox_cli.conversations.conversation import (
    Conversation,
    Entry,
    Rereadable,
    checked_message,
    file_pieces,
)
from cardbox_cli.conversations.files import all_messages, find_messages, message_entries
from cardbox_cli.conversations.json_documents import Documents
from cardbox_cli.model.cards import Card, CardDraft
from cardbox_cli.model.layers import CHECKPOINT

NAME = sources.OPENAI
KEYSPACE: tuple[str, ...] = ()

_OWN_ROLES = ("tool", "function", "developer")
_OWN_PARTS = ("image_url", "input_audio", "file", "refusal")


def recognises(documents: Documents) -> bool:
    """Whether a message has a role, a key or a content part that only OpenAI's have."""
    return any(_has_mark(message) for found in all_messages(documents) for message in found.messages)


def _has_mark(message: Any) -> bool:
    if not isinstance(message, dict):
        return False
    parts = message.get("content")
    return (
        message.get("role") in _OWN_ROLES
        or "tool_calls" in message
        or "function_call" in message
        or (
            isinstance(parts, list)
            and any(isinstance(part, dict) and part.get("type") in _OWN_PARTS for part in parts)
        )
    )


def read(documents: Documents, *, at: str | None = None) -> Iterator[Conversation]:
    """The conversations in a file: lists of messages, under whatever key."""
    for found in find_messages(documents, at):
        yield found.conversation(NAME, Rereadable(partial(message_entries, found)))


def draft(entry: Entry) -> list[CardDraft]:
    """The one card that holds a message."""
    return [card_of_message(checked_message(entry, OPENAI_TYPES, "OpenAI"))]


def keep_original(changed: CardDraft, original: CardDraft) -> CardDraft:
    """`changed`, with the message of `original` as its own."""
    return keep_message(changed, spoken_body(original))


def export(cards: Iterable[Card]) -> Iterator[str]:
    """`{"messages": […]}`. Cards that never are messages are not in it."""
    spelled = ((sources.group(card), message_body(card)) for card in cards)
    messages = (
        Message(layer=CHECKPOINT, body=body, group=group)
        for group, body in spelled
        if not isinstance(body, Silence)
    )
    return file_pieces(welded(messages))
