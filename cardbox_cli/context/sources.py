"""What an imported card remembers of its original: the `source_…` keys of its metadata.

- `source_format`: the format that the keys below are in.
- `source_message`: in OpenAI's format the whole message; in Anthropic's the message around its content,
  which is `""` or `[]` there and is filled with what its cards say.
- `source_blocks`: the content blocks of this card, where its own fields cannot spell them.
- `source_line`: the line of a Claude Code session around its message's content, on its first card.
- `source_group`: shared by neighbouring cards that are one message of a model or a user.

Owns the names and the reading of them; what they mean in a message is the formats' business.
"""

from typing import Any

import msgspec

from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import Card, CardDraft

OPENAI = "openai"
ANTHROPIC = "anthropic"
CLAUDE_CODE = "claude-code"

GROUP = "source_group"


def openai_message(card: Card | CardDraft) -> dict[str, Any] | None:
    """The original of an imported OpenAI message that cards cannot express, if this card keeps one."""
    source = card.metadata.get("source_message")
    is_openai = card.metadata.get("source_format", OPENAI) == OPENAI
    is_message = isinstance(source, dict) and isinstance(source.get("role"), str)
    return source if is_openai and is_message else None


def anthropic_blocks(card: Card | CardDraft) -> Any:
    """What stood as content in an Anthropic message, if this card keeps it; else `UNSET`."""
    is_anthropic = card.metadata.get("source_format") in (ANTHROPIC, CLAUDE_CODE)
    return card.metadata.get("source_blocks", msgspec.UNSET) if is_anthropic else msgspec.UNSET


def envelope(card: Card | CardDraft, source_format: str, key: str) -> dict[str, Any] | None:
    """What stood around the content, under `key`, if this card comes from that format and begins it."""
    source = card.metadata.get(key)
    is_its_own = card.metadata.get("source_format") == source_format
    return source if is_its_own and isinstance(source, dict) else None


def group(card: Card | CardDraft) -> str | None:
    """The mark of the message that this card is a part of; None for a card that is a whole one."""
    mark = card.metadata.get(GROUP)
    return mark if isinstance(mark, str) else None


def originals(card: Card) -> list[str]:
    """The keys of the metadata that hold the card's original, or vouch for it as a signature does.

    Not the group: that says which cards are one message, whatever they say.
    """
    keys = ["source_format", "source_message", "source_blocks", "source_line"]
    keys += ["signature"] if card.type == "agent.reasoning" else []
    return [key for key in keys if key in card.metadata]


def same_json(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON, where Python's `==` takes True for 1."""
    return exact_json.canonical(exact_json.encode(one)) == exact_json.canonical(exact_json.encode(other))
