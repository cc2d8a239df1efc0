"""OpenAI's messages as cards, and back without loss.

If a card's own fields cannot hold a message, the card stores it in `metadata.source_message`. The card's
content is then the text of the message, for search and previews.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from cardbox_cli.context import sources
from cardbox_cli.context.messages import Message, NoMessage, neighbours, standard_body
from cardbox_cli.context.parts import kind, text_at, texts_in
from cardbox_cli.context.provider import Body, MessageFiles
from cardbox_cli.context.sources import imported_card, keep
from cardbox_cli.model.card_types import INSTRUCTION, RENDERED_PROMPT, THOUGHT, TOOL_RESULT
from cardbox_cli.model.cards import Card, CardDraft
from cardbox_cli.model.layers import CHECKPOINT

NAME = "openai"
MAX_STOPS = 4
# The formats of files whose messages cards store in the chat form.
FORMATS = (NAME, "langchain", "sharegpt", "otel")
_TYPES = {
    "user": INSTRUCTION,
    "assistant": THOUGHT,
    "tool": TOOL_RESULT,
    "function": TOOL_RESULT,
    "system": RENDERED_PROMPT,
    "developer": RENDERED_PROMPT,
}
# A card's own fields can hold a message of these roles if it has only text.
_PLAIN_ROLES = ("user", "assistant", "system", "developer")
_OWN_ROLES = ("tool", "function", "developer")
_OWN_KEYS = ("tool_calls", "function_call")
_OWN_PARTS = ("image_url", "input_audio", "file", "refusal")


def card_of_message(message: Body) -> CardDraft:
    """Return the card of a message. `chat_body` restores the same message from it."""
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


class OpenAIFiles(MessageFiles):
    roles = tuple(_TYPES)
    endpoints = ("/chat/completions",)
    parameters = (
        *("max_tokens", "max_completion_tokens", "temperature", "top_p", "tool_choice"),
        *("response_format", "reasoning_effort"),
    )

    @property
    def keyspace(self) -> tuple[str, ...]:
        """Empty, because the keys of conversations in this format do not begin with a format."""
        return ()

    def marks_message(self, message: Any) -> str | None:
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
        own_part = next((name for name in map(kind, parts) if name in _OWN_PARTS), None)
        return None if own_part is None else f"a part is of type {own_part!r}"

    def draft(self, message: Any) -> list[CardDraft]:
        return [card_of_message(message)]

    def keep_original(self, changed: CardDraft, original: CardDraft) -> CardDraft:
        return keep(changed, NAME, source_message=self.provider.chat_body(original))

    def export(self, cards: Iterable[Card]) -> tuple[Body, Iterator[Body]]:
        bodies = ((sources.group(card), self.provider.chat_message(card)) for card in cards)
        return {}, join(
            Message(layer=CHECKPOINT, body=body, group=group)
            for group, body in bodies
            if not isinstance(body, NoMessage)
        )


def join(messages: Iterable[Message]) -> Iterator[Body]:
    """Yield the messages. Joins adjacent parts of one assistant message, because OpenAI requires that."""
    return (run[0].body if len(run) == 1 else _join_run(run) for run in runs(messages))


def runs(messages: Iterable[Message]) -> Iterator[list[Message]]:
    return neighbours(messages, are_one)


def are_one(one: Message, other: Message) -> bool:
    """Return whether two adjacent messages are parts of one assistant message."""
    return one.group is not None and one.group == other.group and _is_plain(one) and _is_plain(other)


def _is_plain(message: Message) -> bool:
    content = message.body.get("content")
    return message.body["role"] == "assistant" and (content is None or isinstance(content, str))


def _join_run(run: list[Message]) -> dict[str, Any]:
    texts = [part.body["content"] for part in run if part.body.get("content")]
    calls = [call for part in run for call in part.body.get("tool_calls") or []]
    content = "\n".join(texts) or (None if calls else "")
    return {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}
