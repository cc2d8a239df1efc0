"""Finding the conversations in a file: JSON or JSONL, one or many, the messages under whatever key.

Reads text and gives conversations in the file's order; what a message means is its format's business.
"""

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from cardbox_cli.errors import InvalidConversation
from cardbox_cli.model import exact_json

# Where conversations carry an id or a title of their own.
_ID_KEYS = ("conversation_id", "session_id", "thread_id", "chat_id", "id")
_TITLE_KEYS = ("title", "name", "subject")
# How deep below a conversation's top its messages are looked for.
_DEPTH = 3


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation as it stands in a file. `place` is where, for error messages."""

    messages: list[Any]
    own_id: str | None
    title: str | None
    place: str


def read_conversations(text: str, *, source: str, at: str | None = None) -> Iterator[Conversation]:
    """The conversations in `text`, in order. `at` is the key of the messages, dotted if nested.

    Raises InvalidConversation naming the file and the place.
    """
    documents = _documents(text, source)
    if at is None and all(_is_message(document) for _, document in documents):
        yield _conversation([document for _, document in documents], {}, source)
        return
    for place, document in documents:
        yield from _in_document(document, place, at)


def _documents(text: str, source: str) -> list[tuple[str, Any]]:
    if not text.strip():
        raise InvalidConversation(f"{source} is empty", hint="give a JSON or JSONL file of messages")
    try:
        return [(source, exact_json.read(text))]
    except json.JSONDecodeError as whole:
        lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
        if len(lines) < 2 or whole.lineno != lines[1][0]:
            raise _malformed(source, whole) from whole
        return [(f"{source}:{number}", _line(source, number, line)) for number, line in lines]
    except ValueError as exc:
        raise InvalidConversation(f"{source}: {exc}") from exc


def _line(source: str, number: int, line: str) -> Any:
    try:
        return exact_json.read(line)
    except json.JSONDecodeError as exc:
        raise InvalidConversation(f"{source}:{number}:{exc.colno}: not JSON: {exc.msg}") from exc
    except ValueError as exc:
        raise InvalidConversation(f"{source}:{number}: {exc}") from exc


def _malformed(source: str, exc: json.JSONDecodeError) -> InvalidConversation:
    return InvalidConversation(
        f"{source}:{exc.lineno}:{exc.colno}: not JSON: {exc.msg}", hint="the file must be JSON or JSONL"
    )


def _in_document(document: Any, place: str, at: str | None) -> Iterator[Conversation]:
    if isinstance(document, list) and not (document and _is_message(document[0])):
        for index, item in enumerate(document):
            yield _one(item, f"{place}[{index}]", at)
    else:
        yield _one(document, place, at)


def _one(item: Any, place: str, at: str | None) -> Conversation:
    if at is not None:
        messages = _at(item, at)
        if not isinstance(messages, list):
            raise InvalidConversation(
                f"{place}: there is no list of messages at {at!r}", hint=_keys_hint(item)
            )
        return _conversation(messages, item, place)
    if isinstance(item, list) and all(_is_message(message) for message in item):
        return _conversation(item, {}, place)
    found = _message_lists(item)
    if len(found) == 1:
        return _conversation(next(iter(found.values())), item, place)
    if not found:
        raise InvalidConversation(
            f"{place}: no messages found", hint=f"name their key with --at KEY; {_keys_hint(item)}"
        )
    raise InvalidConversation(
        f"{place}: messages stand at several keys: {', '.join(found)}",
        hint=f"choose one, for example --at {next(iter(found))}",
    )


def _message_lists(item: Any) -> dict[str, list[Any]]:
    """The lists of messages in `item` by dotted key: those of the shallowest level that has any."""
    level = {"": item}
    for _ in range(_DEPTH):
        below = {
            f"{path}.{key}" if path else key: value
            for path, mapping in level.items()
            if isinstance(mapping, dict)
            for key, value in mapping.items()
        }
        found = {path: value for path, value in below.items() if _is_message_list(path, value)}
        if found:
            return found
        level = below
    return {}


def _is_message_list(path: str, value: Any) -> bool:
    if not isinstance(value, list):
        return False
    return all(_is_message(item) for item in value) if value else path.split(".")[-1] == "messages"


def _is_message(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(item.get("role"), str)


def _at(item: Any, path: str) -> Any:
    for key in path.split("."):
        item = item.get(key) if isinstance(item, dict) else None
    return item


def _keys_hint(item: Any) -> str:
    if not isinstance(item, dict):
        return "the conversation is no object"
    keys = ", ".join(repr(key) for key in list(item)[:8])
    return f"its keys are {keys}" if keys else "the object is empty"


def _conversation(messages: list[Any], item: Any, place: str) -> Conversation:
    fields = item if isinstance(item, dict) else {}
    return Conversation(
        messages=messages,
        own_id=next((str(fields[key]) for key in _ID_KEYS if _is_id(fields.get(key))), None),
        title=next((fields[key] for key in _TITLE_KEYS if _is_title(fields.get(key))), None),
        place=place,
    )


def _is_id(value: Any) -> bool:
    return (isinstance(value, str) and value != "") or (
        isinstance(value, int) and not isinstance(value, bool)
    )


def _is_title(value: Any) -> bool:
    return isinstance(value, str) and value.strip() != ""
