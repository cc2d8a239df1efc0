"""Logs of Inspect: a conversation for each sample and epoch. Read only.

A `.eval` file is unpacked to the same JSON before (`archives`).
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from cardbox_cli.context.parts import text_at
from cardbox_cli.context.providers.anthropic.encoding import NAME as ANTHROPIC
from cardbox_cli.conversations.chat_messages import chat_card
from cardbox_cli.conversations.containers.entries import (
    call_block,
    container,
    image_block,
    message_cards,
    parts,
    result_block,
    text_block,
    thinking_block,
)
from cardbox_cli.conversations.conversation import Conversation, FileEntry, Rereadable
from cardbox_cli.conversations.files import is_list
from cardbox_cli.conversations.json_documents import Documents
from cardbox_cli.conversations.json_window import held
from cardbox_cli.errors import InvalidConversation
from cardbox_cli.model.cards import CardDraft

NAME = "inspect"
_ATTACHED = "attachment://"


def _mark(log: dict[str, Any]) -> str | None:
    return (
        "'eval' and 'samples' stand side by side"
        if isinstance(log.get("eval"), dict) and "samples" in log
        else None
    )


def _read(documents: Documents) -> Iterator[Conversation]:
    for place, log in documents:
        if not isinstance(log, dict) or _mark(log) is None:
            raise InvalidConversation(f"{place}: a log of Inspect has 'eval' and 'samples'")
        about = held(log["eval"])
        for index, sample in enumerate(parts(log["samples"] or [])):
            yield _conversation(sample, about, f"{place}: samples[{index}]")


def _conversation(sample: Any, about: dict[str, Any], place: str) -> Conversation:
    if not isinstance(sample, dict) or not is_list(sample.get("messages")):
        raise InvalidConversation(f"{place}: a sample of Inspect's has messages")
    run = text_at(about, "run_id") or text_at(about, "task_id")
    which = f"{sample.get('id')}/{sample.get('epoch', 1)}"
    return Conversation(
        entries=Rereadable(partial(_entries, sample, place)),
        place=place,
        own_id=None if run is None else f"{run}/{about.get('task')}/{which}",
        title=f"{about.get('task') or 'sample'} {which}",
        format=NAME,
        beside={"model": about["model"]} if text_at(about, "model") else {},
    )


def _entries(sample: dict[str, Any], place: str) -> Iterator[FileEntry]:
    """The messages, with what the log keeps apart of them in its place."""
    attached = sample.get("attachments")
    attachments = held(attached) if isinstance(attached, dict) else {}
    for number, message in enumerate(sample["messages"]):
        where = f"{place}: message {number}"
        if text_at(message, "role") not in _CARDS:
            raise InvalidConversation(
                f"{where}: a message of Inspect's has a role, one of {', '.join(_CARDS)}"
            )
        yield FileEntry(str(number), _with_attachments(message, attachments), where)


def _with_attachments(value: Any, attachments: dict[str, Any]) -> Any:
    if isinstance(value, str):
        return attachments.get(value.removeprefix(_ATTACHED), value) if value.startswith(_ATTACHED) else value
    if isinstance(value, list):
        return [_with_attachments(each, attachments) for each in value]
    if isinstance(value, dict):
        return {key: _with_attachments(each, attachments) for key, each in value.items()}
    return value


def _cards(message: dict[str, Any]) -> list[CardDraft]:
    return _CARDS[message["role"]](message)


def _system(message: dict[str, Any]) -> list[CardDraft]:
    return [chat_card({"role": "system", "content": message.get("content")}, NAME, source_message=message)]


def _user(message: dict[str, Any]) -> list[CardDraft]:
    return message_cards("user", _content(message))


def _assistant(message: dict[str, Any]) -> list[CardDraft]:
    content = _content(message)
    calls = [
        call_block(call["id"], call["function"], call.get("arguments"))
        for call in message.get("tool_calls") or []
        if text_at(call, "id") and text_at(call, "function")
    ]
    said = ([text_block(content)] if content else []) if isinstance(content, str) else content
    return message_cards("assistant", [*said, *calls] if calls else content)


def _tool(message: dict[str, Any]) -> list[CardDraft]:
    error = message.get("error")
    content = _content(message) or text_at(error, "message") or ""
    call_id = text_at(message, "tool_call_id")
    if call_id is None:
        return [chat_card({"role": "tool", "content": message.get("content")}, NAME, source_message=message)]
    return message_cards("user", [result_block(call_id, content, is_error=error is not None)])


# How the cards of a message are made, by its role.
_CARDS: dict[str, Callable[[dict[str, Any]], list[CardDraft]]] = {
    "system": _system,
    "user": _user,
    "assistant": _assistant,
    "tool": _tool,
}


def _content(message: dict[str, Any]) -> Any:
    content = message.get("content")
    return [_block(part) for part in content] if isinstance(content, list) else content or ""


def _block(part: Any) -> dict[str, Any]:
    """A part of Inspect's as a block of Anthropic's; what has no counterpart stands as it is."""
    match part:
        case {"type": "text", "text": str(text)}:
            return text_block(text)
        case {"type": "reasoning", "reasoning": str(data), "redacted": True}:
            return {"type": "redacted_thinking", "data": data}
        case {"type": "reasoning", "reasoning": str(text)}:
            return thinking_block(text, text_at(part, "signature"))
        case {"type": "image", "image": str(image)}:
            head, ends, data = image.partition(";base64,")
            if ends and head.startswith("data:"):
                return image_block(data, head.removeprefix("data:"))
            return {"type": "image", "source": {"type": "url", "url": image}}
    return part if isinstance(part, dict) else text_block(str(part))


FORMAT = container(NAME, ANTHROPIC, mark=_mark, read=_read, cards=_cards)
