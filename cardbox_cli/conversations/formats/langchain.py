"""LangChain's messages as JSON: from `messages_to_dict`, from `dumpd`, and as plain fields.

A message becomes the card of the equivalent chat message. If that loses anything, the card also preserves the
original for export. Other cards are exported in the form of `messages_to_dict`.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from typing import Any

from cardbox_cli.context import sources
from cardbox_cli.context.messages import Message, NoMessage, never_a_message
from cardbox_cli.context.parts import (
    arguments_of,
    arguments_text,
    called_function,
    data_url,
    function_call,
    kind,
    list_at,
    list_of,
    text_at,
    text_part,
)
from cardbox_cli.context.provider import MessageShape
from cardbox_cli.context.sources import LINE, keep, mark_failed, same_json
from cardbox_cli.conversations.conversation import FileEntry, Format, format_indented_list
from cardbox_cli.conversations.formats.chat_messages import chat_card, find_evidence, read_lists
from cardbox_cli.errors import InvalidConversation
from cardbox_cli.model.cards import Card, CardDraft
from cardbox_cli.model.layers import CHECKPOINT
from cardbox_cli.providers.openai.cards import join
from cardbox_cli.providers.registry import DEFAULT, provider_named

NAME = "langchain"
_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "function"}
_TYPES = {role: name for name, role in _ROLES.items()} | {"developer": "system"}
# The classes of messages, without the suffix of their names.
_CLASSES = {"AI": "ai"} | {each.title(): each for each in ("human", "system", "tool", "function", "chat")}
_SUFFIXES = ("MessageChunk", "Message")
# The types of messages with a role.
_CHAT = ("chat", "ChatMessageChunk")


def _message_type(name: str | None) -> str | None:
    """Return the type for a name such as `ai` or `AIMessageChunk`, None for any other name."""
    if name in _ROLES or name == "chat":
        return name
    bare = next((name.removesuffix(end) for end in _SUFFIXES if name and name.endswith(end)), "")
    return _CLASSES.get(bare)


def _fields(message: Any) -> tuple[str, dict[str, Any]] | None:
    """Return the type and the fields of a message in any form, None for anything else."""
    if not isinstance(message, dict) or ("role" in message and kind(message) not in _CHAT):
        return None
    data, kwargs = message.get("data"), message.get("kwargs")
    if isinstance(data, dict) and "content" in data:
        sort, fields = _message_type(kind(message)), data
    elif message.get("lc") is not None and isinstance(kwargs, dict) and "content" in kwargs:
        path = message.get("id")
        name = path[-1] if isinstance(path, list) and path and isinstance(path[-1], str) else None
        sort, fields = _message_type(name), kwargs
    elif "content" in message and ("additional_kwargs" in message or kind(message) in ("human", "ai")):
        sort, fields = _message_type(kind(message)), message
    else:
        return None
    return None if sort is None else (sort, fields)


def _is_message(value: Any) -> bool:
    return _fields(value) is not None


def _fits(value: Any) -> bool:
    return _is_message(value) or (kind(value) != "" and isinstance(value.get("data"), dict))


_SHAPE = MessageShape("messages", _is_message, is_own=True)


def _evidence(message: Any) -> str | None:
    typed = _fields(message)
    return None if typed is None else f"a message is of LangChain's type {typed[0]!r}"


# --- messages as cards


def _draft(entry: FileEntry) -> list[CardDraft]:
    typed = _fields(entry.value)
    if typed is None:
        raise InvalidConversation(
            f"{entry.place}: this is not a LangChain message",
            hint="a message has a type and data, or kwargs, or content and additional_kwargs",
        )
    chat = _chat_message(*typed)
    if chat["role"] not in _TYPES:
        raise InvalidConversation(f"{entry.place}: unknown role {chat['role']!r} for format {NAME}")
    card = chat_card(chat, NAME)
    if chat["role"] == "tool" and text_at(typed[1], "status") == "error":
        card = mark_failed(card)
    written = _encode_card(card)
    # If all values are strings, the faster `==` cannot confuse True and 1.
    is_text = isinstance(chat["content"], str) and "tool_calls" not in chat
    is_held = written == entry.value if is_text else same_json(written, entry.value)
    return [card if is_held else keep(card, NAME, source_line=entry.value)]


def _chat_message(sort: str, fields: dict[str, Any]) -> dict[str, Any]:
    role = _ROLES.get(sort) or text_at(fields, "role") or "user"
    content = fields.get("content")
    if isinstance(content, list):
        content = _content(content)
    if role == "assistant" and (calls := _calls(fields)):
        return {"role": role, "content": content or None, "tool_calls": calls}
    answered = {"tool_call_id": text_at(fields, "tool_call_id")} if role == "tool" else {}
    name = {"name": fields["name"]} if text_at(fields, "name") else {}
    return {"role": role, **answered, "content": content, **name}


def _content(parts: list[Any]) -> Any:
    """Convert content parts, and join them to a string if all are text. Leave out calls: they have a key."""
    converted = [part for each in parts if (part := _part(each)) is not None]
    if all(kind(part) == "text" for part in converted):
        return "\n".join(part["text"] for part in converted if isinstance(part.get("text"), str))
    return converted


def _part(part: Any) -> dict[str, Any] | None:
    """Convert a part to a chat content part, None for calls and thoughts."""
    if isinstance(part, str):
        return text_part(part)
    sort = kind(part)
    if sort in ("tool_use", "tool_call", "tool_call_chunk", "input_json_delta", "thinking", "reasoning"):
        return None
    if sort == "image":
        mime, data = text_at(part, "mime_type"), text_at(part, "base64") or text_at(part, "data")
        address = data_url(mime, data) if mime and data else text_at(part, "url")
        if address:
            return {"type": "image_url", "image_url": {"url": address}}
    if sort == "image_url" and isinstance(part.get("image_url"), str):
        return {"type": "image_url", "image_url": {"url": part["image_url"]}}
    return part if isinstance(part, dict) else text_part(str(part))


def _calls(fields: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tool calls of a message, including those that LangChain could not parse."""
    calls = []
    for key in ("tool_calls", "invalid_tool_calls"):
        for call in list_at(fields, key):
            name, call_id = text_at(call, "name") or "", text_at(call, "id") or ""
            calls.append(function_call(call_id, name, arguments_text(call.get("args"))))
    return calls


# --- cards as messages


def _export_messages(cards: Iterable[Card]) -> Iterator[dict[str, Any]]:
    chat = provider_named(DEFAULT)
    sent = (card for card in cards if never_a_message(card) is None)
    for (is_own, is_failure), run in groupby(
        sent, key=lambda card: (bool(_original(card)), chat.is_failed(card))
    ):
        if is_own:
            yield from filter(None, map(_original, run))
        else:
            bodies = ((sources.group(card), chat.chat_message(card)) for card in run)
            messages = (
                Message(layer=CHECKPOINT, body=body, group=group)
                for group, body in bodies
                if not isinstance(body, NoMessage)
            )
            yield from map(partial(_encode_message, is_failure=is_failure), join(messages))


def _original(card: Card | CardDraft) -> dict[str, Any] | None:
    return sources.envelope(card, NAME, LINE)


def _encode_card(card: CardDraft) -> dict[str, Any]:
    chat = provider_named(DEFAULT)
    return _encode_message(chat.chat_body(card), is_failure=chat.is_failed(card))


def _encode_message(body: dict[str, Any], *, is_failure: bool) -> dict[str, Any]:
    """Convert a chat message to the form of `messages_to_dict`. `is_failure` marks a failed tool result."""
    sort = _TYPES.get(body["role"], "chat")
    content = body.get("content")
    data: dict[str, Any] = {
        "content": "" if content is None else content,
        "additional_kwargs": {
            key: body[key] for key in ("function_call", "refusal", "audio") if body.get(key)
        },
        "response_metadata": {},
        "type": sort,
        "name": body.get("name"),
        "id": None,
    }
    if sort == "ai":
        data |= {**_split_calls(body.get("tool_calls")), "usage_metadata": None}
    elif sort == "tool":
        status = "error" if is_failure else "success"
        data |= {"tool_call_id": body.get("tool_call_id") or "", "artifact": None, "status": status}
    elif sort == "chat":
        data["role"] = body["role"]
    return {"type": sort, "data": data}


def _split_calls(calls: Any) -> dict[str, list[dict[str, Any]]]:
    """Separate the calls whose arguments are a JSON object from the others."""
    split: dict[str, list[dict[str, Any]]] = {"tool_calls": [], "invalid_tool_calls": []}
    for call in list_of(calls):
        if (function := called_function(call)) is None:
            continue
        named = {"name": text_at(function, "name") or "", "id": text_at(call, "id") or None}
        arguments = arguments_of(function.get("arguments"))
        if arguments is None:
            wrong = {**named, "args": arguments_text(function.get("arguments")), "error": None}
            split["invalid_tool_calls"].append({**wrong, "type": "invalid_tool_call"})
        else:
            split["tool_calls"].append({**named, "args": arguments, "type": "tool_call"})
    return split


FORMAT = Format(
    name=NAME,
    provider=DEFAULT,
    keyspace=(NAME,),
    marks=partial(find_evidence, _SHAPE, _evidence),
    fits=_fits,
    read=partial(read_lists, NAME, _SHAPE),
    draft=_draft,
    keep_original=lambda new, card: keep(new, NAME, source_line=_original(card) or _encode_card(card)),
    export=lambda cards: format_indented_list(_export_messages(cards)),
)
