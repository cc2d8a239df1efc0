"""OpenAI's messages as cards, and back, exactly.

A message that a card's own fields can hold is kept in them alone; any other keeps its original in
`metadata.source_message`, and its text as the card's content, so that search and previews work.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from cardbox_cli.context import sources
from cardbox_cli.context.messages import Message, NoMessage, standard_body
from cardbox_cli.context.parts import kind, texts_in
from cardbox_cli.context.providers.chat import chat_body, chat_message
from cardbox_cli.context.providers.openai.body import joined
from cardbox_cli.context.providers.provider import Body, MessageFiles
from cardbox_cli.context.sources import imported_card, keep
from cardbox_cli.model.card_types import INSTRUCTION, RENDERED_PROMPT, THOUGHT, TOOL_RESULT
from cardbox_cli.model.cards import Card, CardDraft
from cardbox_cli.model.layers import CHECKPOINT

NAME = "openai"
_TYPES = {
    "user": INSTRUCTION,
    "assistant": THOUGHT,
    "tool": TOOL_RESULT,
    "function": TOOL_RESULT,
    "system": RENDERED_PROMPT,
    "developer": RENDERED_PROMPT,
}
_OWN_ROLES = ("tool", "function", "developer")
_OWN_PARTS = ("image_url", "input_audio", "file", "refusal")


def original(card: Card | CardDraft) -> Body | None:
    """The message as it came that cards cannot hold, if this card keeps one."""
    source = card.metadata.get(sources.MESSAGE)
    if not isinstance(source, dict) or card.metadata.get(sources.FORMAT, NAME) != NAME:
        return None
    return dict(source) if isinstance(source.get("role"), str) else None


def card_of_message(message: Body) -> CardDraft:
    """The card that holds a message; `chat_body` gives the same message back."""
    role = message["role"]
    name = message.get("name")
    names_function = _TYPES[role] == TOOL_RESULT and isinstance(name, str)
    card = imported_card(
        _TYPES[role],
        texts_in(message.get("content")),
        role=role,
        metadata={"function_name": name} if names_function else None,
        tool_calls=_tool_calls(message),
        tool_call_id=_tool_call_id(message),
    )
    return card if standard_body(card) == message else keep(card, NAME, source_message=message)


def _tool_calls(message: Body) -> list[Any] | None:
    calls = message.get("tool_calls")
    return calls if message["role"] == "assistant" and isinstance(calls, list) and calls else None


def _tool_call_id(message: Body) -> str | None:
    call_id = message.get("tool_call_id")
    return call_id if message["role"] == "tool" and isinstance(call_id, str) and call_id else None


def _has_mark(message: Any) -> bool:
    """Whether a message has a role, a key or a content part that only OpenAI's have."""
    if not isinstance(message, dict):
        return False
    parts = message.get("content")
    return (
        message.get("role") in _OWN_ROLES
        or "tool_calls" in message
        or "function_call" in message
        or (isinstance(parts, list) and any(kind(part) in _OWN_PARTS for part in parts))
    )


def _export(cards: Iterable[Card]) -> tuple[Body, Iterator[Body]]:
    bodies = ((sources.group(card), chat_message(card)) for card in cards)
    return {}, joined(
        Message(layer=CHECKPOINT, body=body, group=group)
        for group, body in bodies
        if not isinstance(body, NoMessage)
    )


FILES = MessageFiles(
    keyspace=(),
    roles=tuple(_TYPES),
    marks_message=_has_mark,
    draft=lambda message: [card_of_message(message)],
    keep_original=lambda changed, original: keep(changed, NAME, source_message=chat_body(original)),
    export=_export,
    parameters=(
        *("max_tokens", "max_completion_tokens", "temperature", "top_p", "tool_choice"),
        *("response_format", "reasoning_effort"),
    ),
)
