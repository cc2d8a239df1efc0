"""Lines of cards that a command prints, where the worker was told that it prints cards.

Pure. Owns what such a card may be: one of the agent's own types, with a text, data or a call to make. Who
speaks, who wrote it, which id it has and what it belongs to is never the line's to say.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from cardbox_cli.context.parts import MalformedAnswer, normalized_calls
from cardbox_cli.errors import InvalidCard
from cardbox_cli.execution.tool_calls import Author, Held, calls_of, own_ids
from cardbox_cli.model import exact_json
from cardbox_cli.model.card_types import DELIVERABLE, PLAN, THOUGHT
from cardbox_cli.model.cards import CIRCUMSTANCES, CardDraft, draft_card, draft_from_mapping
from cardbox_cli.model.content import (
    FALLBACK,
    ToolCallContent,
    ToolContent,
    ToolResultContent,
    is_fallback,
)
from cardbox_cli.model.ids import new_card_id

OWN_TYPES = (THOUGHT, PLAN, DELIVERABLE)

# Metadata that says whose a card is, what it is a message or a layer of, which cards it stands for, or how a
# turn ended.
_NOT_ITS_OWN = CIRCUMSTANCES | {
    *("tool_call_id", "function_name", "layer", "signature", "semantic_type"),
    *("edited_from", "covers", "partial", "stop_reason", "terminal_reason"),
}
_OF_IMPORTS = "source_"


class RefusedCard(ValueError):
    """Which line is no card that a command may print, and why."""


def looks_like_a_card(value: Any) -> bool:
    """Whether somebody may mean it as a card."""
    return isinstance(value, dict) and isinstance(value.get("type"), str) and "content" in value


def read_cards(text: str, author: Author) -> list[CardDraft]:
    """The cards of a text's lines, the ids of their calls as they came. Raises RefusedCard."""
    lines = [line for line in text.split("\n") if line.strip()]
    return [_card(line, author, number) for number, line in enumerate(lines, 1)]


def _card(line: str, author: Author, number: int) -> CardDraft:
    try:
        value = exact_json.read(line.strip())
        if not looks_like_a_card(value):
            raise RefusedCard("it is no object with a type and a content")
        _refuse_others(value)
        return _by(author, draft_from_mapping(value))
    except (InvalidCard, ValueError) as exc:
        raise RefusedCard(f"card {number} of the output: {exc}") from exc


def _refuse_others(value: dict[str, Any]) -> None:
    """Raise RefusedCard for what is not the agent's to write."""
    if value["type"] not in OWN_TYPES:
        own = ", ".join(OWN_TYPES)
        raise RefusedCard(f"a command may not write the type {value['type'][:80]!r}; its own are {own}")
    if value.get("tool_call_id") is not None:
        raise RefusedCard("a command writes no results, so that no card of its has a tool_call_id")
    if value.get("tool_calls") and value["type"] != THOUGHT:
        raise RefusedCard(f"only a card of type {THOUGHT} calls tools")


def _by(author: Author, given: CardDraft) -> CardDraft:
    """The card as the agent's own: a new id, its role, its author, its turn and its step."""
    if isinstance(given.content, ToolContent | ToolCallContent | ToolResultContent):
        raise RefusedCard(f"a card of type {given.type} cannot hold a {type(given.content).__name__}")
    if is_fallback(given.content):
        raise RefusedCard(f"only a worker writes that a turn has no deliverable ({FALLBACK!r})")
    kept = {
        key: value
        for key, value in given.metadata.items()
        if key not in _NOT_ITS_OWN and not key.startswith(_OF_IMPORTS)
    }
    try:
        calls = None if given.tool_calls is None else normalized_calls(given.tool_calls)
    except MalformedAnswer as exc:
        raise RefusedCard(str(exc)) from exc
    return draft_card(
        given.type,
        given.content,
        role="assistant",
        author_id=author.agent_id,
        card_id=new_card_id(),
        metadata={**kept, **author.metadata},
        tool_calls=calls,
    )


def with_own_ids(drafts: Sequence[CardDraft], held: Held) -> list[CardDraft]:
    """The cards with own ids for their calls."""
    ids = iter(own_ids([call.tool_call_id for draft in drafts for call in calls_of(draft)], held))
    return [
        msgspec.structs.replace(draft, tool_calls=[{**call, "id": next(ids)} for call in draft.tool_calls])
        if draft.tool_calls
        else draft
        for draft in drafts
    ]
