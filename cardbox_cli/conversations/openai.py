"""OpenAI chat messages as cards, and back, exactly.

A message that a card's own fields can spell is kept in them alone; any other keeps its original in
`metadata.source_message`, and its text as the card's content, so that search and previews work.
"""

from typing import Any

import msgspec

from cardbox_cli.context.messages import message_body, standard_body
from cardbox_cli.errors import InvalidConversation
from cardbox_cli.model.cards import Card, CardDraft, draft_card
from cardbox_cli.model.content import json_kind

FORMAT = "openai"
AUTHOR = "cbx.import"

_TYPES = {
    "user": "task.instruction",
    "assistant": "agent.thought",
    "tool": "tool.result",
    "function": "tool.result",
    "system": "sys.rendered_prompt",
    "developer": "sys.rendered_prompt",
}


def check_message(message: Any, place: str) -> None:
    """Raise InvalidConversation, naming `place`, for what is no message with a role that OpenAI knows."""
    if not isinstance(message, dict):
        raise InvalidConversation(f"{place}: a message must be an object, not {json_kind(message)}")
    role = message.get("role")
    if not isinstance(role, str) or role not in _TYPES:
        raise InvalidConversation(
            f"{place}: the role {role!r} is none of OpenAI's", hint=f"roles are {', '.join(_TYPES)}"
        )


def card_of_message(message: dict[str, Any], card_id: str) -> CardDraft:
    """The card that holds `message`; `message_of_card` gives the same message back."""
    role = message["role"]
    name = message.get("name")
    draft = draft_card(
        _TYPES[role],
        message_text(message),
        role=role,
        author_id=AUTHOR,
        card_id=card_id,
        metadata={"function_name": name} if _TYPES[role] == "tool.result" and isinstance(name, str) else None,
        tool_calls=_tool_calls(message),
        tool_call_id=_tool_call_id(message),
    )
    return draft if standard_body(draft) == message else keep_source(draft, message)


def keep_source(draft: CardDraft, message: dict[str, Any]) -> CardDraft:
    """`draft`, with `message` as the original that export gives back."""
    original = {"source_format": FORMAT, "source_message": message}
    return msgspec.structs.replace(draft, metadata={**draft.metadata, **original})


def message_of_card(card: Card) -> dict[str, Any] | None:
    """The OpenAI message that `card` is, or None for a card that never is one."""
    return message_body(card)


def message_text(message: dict[str, Any]) -> str:
    """What a message says in words: its text, or that of its parts, a line each."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (part.get("text") for part in content if isinstance(part, dict))
    return "\n".join(text for text in texts if isinstance(text, str))


def _tool_calls(message: dict[str, Any]) -> list[Any] | None:
    calls = message.get("tool_calls")
    return calls if message["role"] == "assistant" and isinstance(calls, list) and calls else None


def _tool_call_id(message: dict[str, Any]) -> str | None:
    call_id = message.get("tool_call_id")
    return call_id if message["role"] == "tool" and isinstance(call_id, str) and call_id else None
