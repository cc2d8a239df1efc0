"""Drafts of imported cards, and the `source_…` keys that hold their originals.

- `source_format`: the format of the keys below.
- `source_message`: a message as imported, whole or with its content left out.
- `source_blocks`: the content blocks of this card, if its own fields cannot hold them.
- `source_line`: the line of a session file without its message's content, on its first card.
- `source_entry`: an entry of a container, whole, on its first card; not sent to providers.
- `source_failed`: true for the result of a failed tool, if the original says so outside of the text.
- `source_group`: shared by neighbouring cards that are one message of a model or a user.

Owns the keys and how they are read; the formats of `providers/` define their meaning in a message.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from cardbox_cli.model import exact_json
from cardbox_cli.model.card_types import CARD_TYPES, REASONING
from cardbox_cli.model.cards import IMPORTER, Card, CardDraft
from cardbox_cli.model.content import Content, TextContent

AUTHOR = IMPORTER
FORMAT = "source_format"
MESSAGE = "source_message"
BLOCKS = "source_blocks"
LINE = "source_line"
ENTRY = "source_entry"
FAILED = "source_failed"
GROUP = "source_group"
# The key in the metadata of a tool's result that holds the name of the tool.
FUNCTION_NAME = "function_name"


def imported_card(
    card_type: str,
    content: Content | str,
    *,
    role: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    tool_calls: list[Any] | None = None,
    tool_call_id: str | None = None,
) -> CardDraft:
    """Draft a card by the importer; its id is a placeholder until its conversation is known. Unlike
    `draft_card`, it does not check the content, which comes from a value that is known to be storable."""
    role = role or CARD_TYPES[card_type].role
    named = {"type": card_type, "author_id": AUTHOR}
    if role is not None:
        named["role"] = role
    return CardDraft(
        card_id="?",
        content=TextContent(content) if isinstance(content, str) else content,
        metadata={**metadata, **named} if metadata else named,
        tool_calls=tool_calls,
        tool_call_id=tool_call_id,
    )


def keep(card: CardDraft, source_format: str, **source: Any) -> CardDraft:
    return msgspec.structs.replace(card, metadata={**card.metadata, FORMAT: source_format, **source})


def mark_failed(card: CardDraft) -> CardDraft:
    """Return `card` marked as the result of a failed tool, because its text does not show the failure."""
    return msgspec.structs.replace(card, metadata={**card.metadata, FAILED: True})


def envelope(card: Card | CardDraft, source_format: str, key: str) -> dict[str, Any] | None:
    """Return the original without its content, under `key`, if this card begins it and has this format."""
    source = card.metadata.get(key)
    if not isinstance(source, dict):
        return None
    return source if card.metadata.get(FORMAT) == source_format else None


def group(card: Card | CardDraft) -> str | None:
    """Return the id of the message that this card is a part of, or None if the card is a whole message."""
    mark = card.metadata.get(GROUP)
    return mark if isinstance(mark, str) else None


def is_named_result(card: Card | CardDraft) -> bool:
    """Return whether an imported tool's result has a tool's name; cbx itself adds one to all results."""
    return FUNCTION_NAME in card.metadata and card.metadata.get("author_id") == AUTHOR


def originals(card: Card) -> list[str]:
    """Return the metadata keys that hold the card's original, or vouch for it, as a signature does. The group
    is not one of them, nor is a failure: both hold for a result with another text."""
    keys = [FORMAT, MESSAGE, BLOCKS, LINE, ENTRY, *(["signature"] if card.type == REASONING else [])]
    return [key for key in keys if key in card.metadata]


def same_json(one: Any, other: Any) -> bool:
    """Return whether two storable values are the same JSON. Unlike with `==`, True differs from 1."""
    return exact_json.are_equal(one, other)
