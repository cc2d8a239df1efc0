"""Logs of Inspect: a conversation for each sample and epoch. Read only.

`packed_files` first unpacks a `.eval` file to the same JSON.
"""

from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from cardbox_cli.context.parts import dict_at, media_of, text_at
from cardbox_cli.conversations.containers.container_entries import (
    call_block,
    container_format,
    image_block,
    may_be_claude,
    message_cards,
    result_block,
    store_entry,
    text_block,
    thinking_block,
)
from cardbox_cli.conversations.conversation import Conversation, FileEntry, Rereadable
from cardbox_cli.conversations.json_documents import JsonDocuments, load_lazy_lists
from cardbox_cli.conversations.message_lists import list_items, missing_list_error
from cardbox_cli.errors import InvalidConversation
from cardbox_cli.model.cards import CardDraft
from cardbox_cli.providers.anthropic.blocks import NAME as ANTHROPIC
from cardbox_cli.providers.openai.cards import card_of_message

NAME = "inspect"
_ATTACHED = "attachment://"


def _mark(log: dict[str, Any]) -> str | None:
    is_log = isinstance(log.get("eval"), dict) and "samples" in log
    return "an object has 'eval' and 'samples'" if is_log else None


def _read(documents: JsonDocuments) -> Iterator[Conversation]:
    for place, log in documents:
        if not isinstance(log, dict) or _mark(log) is None:
            raise InvalidConversation(f"{place}: an Inspect log must have 'eval' and 'samples'")
        about = load_lazy_lists(log["eval"])
        for index, sample in enumerate(list_items(log["samples"] or [])):
            where = f"{place}: samples[{index}]"
            lack = missing_list_error("messages", sample, f"{where}: an Inspect sample must have messages")
            yield _conversation(sample, about, where, lack)


def _conversation(
    sample: dict[str, Any], about: dict[str, Any], place: str, lack: InvalidConversation | None
) -> Conversation:
    run = text_at(about, "run_id") or text_at(about, "task_id")
    which = f"{sample.get('id')}/{sample.get('epoch', 1)}"
    return Conversation(
        entries=Rereadable(partial(_entries, sample, place)),
        place=place,
        own_id=None if run is None else f"{run}/{about.get('task')}/{which}",
        title=f"{about.get('task') or 'sample'} {which}",
        format=NAME,
        siblings={"model": about["model"]} if text_at(about, "model") else {},
        lack=lack,
    )


def _entries(sample: dict[str, Any], place: str) -> Iterator[FileEntry]:
    """Yield the messages, with the log's attachments inserted."""
    attachments = load_lazy_lists(dict_at(sample, "attachments"))
    for number, message in enumerate(sample.get("messages") or ()):
        where = f"{place}: message {number}"
        if text_at(message, "role") not in _CARDS:
            problem = f"the role of an Inspect message must be one of {', '.join(_CARDS)}"
            raise InvalidConversation(f"{where}: {problem}")
        yield FileEntry(str(number), _insert_attachments(message, attachments), where)


def _insert_attachments(value: Any, attachments: dict[str, Any]) -> Any:
    if isinstance(value, str):
        return attachments.get(value.removeprefix(_ATTACHED), value) if value.startswith(_ATTACHED) else value
    if isinstance(value, list):
        return [_insert_attachments(each, attachments) for each in value]
    if isinstance(value, dict):
        return {key: _insert_attachments(each, attachments) for key, each in value.items()}
    return value


def _cards(message: dict[str, Any]) -> list[CardDraft]:
    return _CARDS[message["role"]](message)


def _system(message: dict[str, Any]) -> list[CardDraft]:
    return store_entry([card_of_message({"role": "system", "content": message.get("content")})], message)


def _assistant(message: dict[str, Any]) -> list[CardDraft]:
    content = _content(message)
    calls = [
        call_block(call["id"], call["function"], call.get("arguments"))
        for call in message.get("tool_calls") or []
        if text_at(call, "id") and text_at(call, "function")
    ]
    blocks = ([text_block(content)] if content else []) if isinstance(content, str) else content
    if not may_be_claude(text_at(message, "model")):
        blocks = content = [_unsigned(block) for block in blocks]
    return message_cards("assistant", [*blocks, *calls] if calls else content)


def _tool(message: dict[str, Any]) -> list[CardDraft]:
    error = message.get("error")
    content = _content(message) or text_at(error, "message") or ""
    call_id = text_at(message, "tool_call_id")
    if call_id is None:
        return store_entry([card_of_message({"role": "tool", "content": message.get("content")})], message)
    return message_cards("user", [result_block(call_id, content, is_error=error is not None)])


# The functions that make the cards of a message, by its role.
_CARDS: dict[str, Callable[[dict[str, Any]], list[CardDraft]]] = {
    "system": _system,
    "user": lambda message: message_cards("user", _content(message)),
    "assistant": _assistant,
    "tool": _tool,
}


def _content(message: dict[str, Any]) -> Any:
    content = message.get("content")
    return [_block(part) for part in content] if isinstance(content, list) else content or ""


def _block(part: Any) -> dict[str, Any]:
    """Convert a part of Inspect's to a block of Anthropic's. A part without an equivalent is unchanged.

    Source: the content classes of the package `inspect-ai`.
    """
    match part:
        case {"type": "text", "text": str(text)}:
            return text_block(text)
        case {"type": "reasoning", "reasoning": str(data), "redacted": True}:
            return {"type": "redacted_thinking", "data": data}
        case {"type": "reasoning", "reasoning": str(text)}:
            return thinking_block(text or text_at(part, "summary") or "", text_at(part, "signature"))
        case {"type": "image", "image": str(image)}:
            if (media := media_of(image)) is not None:
                return image_block(data=media[1], media_type=media[0])
            return {"type": "image", "source": {"type": "url", "url": image}}
        case {"type": "document", "document": str(document)}:
            return _document(part, document)
        case {"type": "tool_use", "name": str(name)}:  # a tool that the provider ran
            result = text_at(part, "error") or text_at(part, "result") or ""
            return text_block(f"[{name}({text_at(part, 'arguments') or ''})]\n{result}".rstrip())
    return part if isinstance(part, dict) else text_block(str(part))


def _document(part: dict[str, Any], document: str) -> dict[str, Any]:
    named = {"title": part["filename"]} if text_at(part, "filename") else {}
    source = {"type": "url", "url": document}
    if (media := media_of(document)) is not None:
        source = {"type": "base64", "media_type": media[0], "data": media[1]}
        if media[0] == "text/plain":
            with suppress(ValueError):  # data that is not text stays in base64
                source |= {"type": "text", "data": b64decode(media[1], validate=True).decode()}
    return {"type": "document", "source": source, **named}


def _unsigned(block: dict[str, Any]) -> dict[str, Any]:
    """Remove the signature of another model's thought, which Anthropic would refuse."""
    if block.get("type") == "redacted_thinking":
        return thinking_block("", None)
    return {key: value for key, value in block.items() if key != "signature"}


FORMAT = container_format(NAME, ANTHROPIC, mark=_mark, read=_read, cards=_cards)
