"""OpenAI's messages as cards, and back, exactly.

A message that a card's own fields can hold is kept in them alone; any other keeps its original in
`metadata.source_message`, and its text as the card's content, so that search and previews work.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from cardbox_cli.context import sources
from cardbox_cli.context.messages import Message, NoMessage, standard_body
from cardbox_cli.context.parts import kind, text_at, texts_in
from cardbox_cli.context.providers.chat import chat_body, chat_message
from cardbox_cli.context.providers.openai.body import NAME, joined
from cardbox_cli.context.providers.provider import Body, MessageFiles
from cardbox_cli.context.sources import imported_card, keep
from cardbox_cli.model.card_types import INSTRUCTION, RENDERED_PROMPT, THOUGHT, TOOL_RESULT
from cardbox_cli.model.cards import Card, CardDraft
from cardbox_cli.model.layers import CHECKPOINT

# The formats of files whose messages are kept in the chat form.
_FORMATS = (NAME, "langchain", "sharegpt", "otel")
_TYPES = {
    "user": INSTRUCTION,
    "assistant": THOUGHT,
    "tool": TOOL_RESULT,
    "function": TOOL_RESULT,
    "system": RENDERED_PROMPT,
    "developer": RENDERED_PROMPT,
}
# The roles that may say a text and nothing else, which a card's own fields hold.
_PLAIN_ROLES = ("user", "assistant", "system", "developer")
_OWN_ROLES = ("tool", "function", "developer")
_OWN_KEYS = ("tool_calls", "function_call")
_OWN_PARTS = ("image_url", "input_audio", "file", "refusal")


def original(card: Card | CardDraft) -> Body | None:
    """The message as it came that cards cannot hold, if this card keeps one."""
    source = card.metadata.get(sources.MESSAGE)
    if not isinstance(source, dict) or card.metadata.get(sources.FORMAT, NAME) not in _FORMATS:
        return None
    return dict(source) if isinstance(source.get("role"), str) else None


def card_of_message(message: Body) -> CardDraft:
    """The card that holds a message; `chat_body` gives the same message back."""
    role = message["role"]
    if role in _PLAIN_ROLES and len(message) == 2 and type(text := message.get("content")) is str:
        return imported_card(_TYPES[role], text, role=role)
    name = message.get("name")
    names_function = _TYPES[role] == TOOL_RESULT and isinstance(name, str)
    calls = message.get("tool_calls") if role == "assistant" else None
    call_id = text_at(message, "tool_call_id") if role == "tool" else None
    card = imported_card(
        _TYPES[role],
        texts_in(message.get("content")),
        role=role,
        metadata={"function_name": name} if names_function else None,
        tool_calls=(calls or None) if isinstance(calls, list) else None,
        tool_call_id=call_id or None,
    )
    return card if standard_body(card) == message else keep(card, NAME, source_message=message)


def _mark(message: Any) -> str | None:
    """By which role, key or content part a message is OpenAI's and no other's."""
    if not isinstance(message, dict):
        return None
    if message.get("role") in _OWN_ROLES:
        return f"a message has the role {message['role']!r}"
    for key in _OWN_KEYS:
        if key in message:
            return f"a message has {key!r}"
    parts = message.get("content")
    if not isinstance(parts, list):
        return None
    found = next((name for name in map(kind, parts) if name in _OWN_PARTS), None)
    return None if found is None else f"a part is of type {found!r}"


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
    marks_message=_mark,
    draft=lambda message: [card_of_message(message)],
    keep_original=lambda changed, original: keep(changed, NAME, source_message=chat_body(original)),
    export=_export,
    endpoints=("/chat/completions",),
    parameters=(
        *("max_tokens", "max_completion_tokens", "temperature", "top_p", "tool_choice"),
        *("response_format", "reasoning_effort"),
    ),
)
