"""Imported cards: how they are drafted, and what each remembers of its original in `source_…` keys.

- `source_format`: the format that the keys below are in.
- `source_message`: a message as it came, whole or with the place of its content left empty.
- `source_blocks`: the content blocks of this card, where its own fields cannot hold them.
- `source_line`: the line of a session's file around its message's content, on its first card.
- `source_entry`: what an entry of a container is, whole, on its first card; it says nothing to a provider.
- `source_failed`: true for the result of a tool that failed, where the original says so beside the text.
- `source_group`: shared by neighbouring cards that are one message of a model or a user.

Owns the keys and the reading of them; what they mean in a message stands in the formats of `providers/`.
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
    """A draft by the importer, as `draft_card` makes them; its id is a placeholder until its conversation is
    known.

    It is made of parts of a value that is known to be storable, and not checked once more.
    """
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
    """`card` with `source_…` keys in its metadata."""
    return msgspec.structs.replace(card, metadata={**card.metadata, FORMAT: source_format, **source})


def mark_failed(card: CardDraft) -> CardDraft:
    """`card` as the result of a tool that failed, where its text alone does not say so."""
    return msgspec.structs.replace(card, metadata={**card.metadata, FAILED: True})


def envelope(card: Card | CardDraft, source_format: str, key: str) -> dict[str, Any] | None:
    """What stood around the content, under `key`, if this card comes from that format and begins it."""
    source = card.metadata.get(key)
    if not isinstance(source, dict):
        return None
    return source if card.metadata.get(FORMAT) == source_format else None


def group(card: Card | CardDraft) -> str | None:
    """The mark of the message that this card is a part of; None for a card that is a whole one."""
    mark = card.metadata.get(GROUP)
    return mark if isinstance(mark, str) else None


def is_named_result(card: Card | CardDraft) -> bool:
    """Whether it is a tool's result that somebody wrote the tool's name to, which cbx itself adds to all."""
    return FUNCTION_NAME in card.metadata and card.metadata.get("author_id") == AUTHOR


def originals(card: Card) -> list[str]:
    """The keys of the metadata that hold the card's original, or vouch for it as a signature does.

    Not the group: that says which cards are one message, whatever they hold. Nor that a tool failed: another
    text of a result leaves it one that failed.
    """
    keys = [FORMAT, MESSAGE, BLOCKS, LINE, ENTRY, *(["signature"] if card.type == REASONING else [])]
    return [key for key in keys if key in card.metadata]


def same_json(one: Any, other: Any) -> bool:
    """Whether two values that can be stored are the same JSON, where Python's `==` takes True for 1."""
    return exact_json.are_equal(one, other)
