"""Finding the conversations in a file: JSON or JSONL, one or many, the messages under whatever key.

Reads text into documents, and finds in them the conversations that are lists of messages, in the file's
order. What a message means, and files of another build, are the formats' business.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from cardbox_cli.conversations.conversation import Conversation, Entry
from cardbox_cli.errors import InvalidConversation
from cardbox_cli.model.json_files import read_json_values

# Where conversations carry an id or a title of their own.
_ID_KEYS = ("conversation_id", "session_id", "thread_id", "chat_id", "id")
_TITLE_KEYS = ("title", "name", "subject")
# How deep below a conversation's top its messages are looked for.
_DEPTH = 3


# A JSON value and the place where it stands.
Document = tuple[str, Any]


class MessageList(msgspec.Struct, frozen=True, kw_only=True):
    """A list of messages. `beside` is the object that holds it, `top` the one that may name it."""

    messages: list[Any]
    beside: dict[str, Any]
    top: dict[str, Any]
    place: str

    def conversation(self, source_format: str, entries: list[Entry]) -> Conversation:
        """The conversation of these entries, with the id and the title that the file gives it."""
        ids = (self.top.get(key) for key in _ID_KEYS)
        titles = (self.top.get(key) for key in _TITLE_KEYS)
        return Conversation(
            entries=entries,
            own_id=next((str(value) for value in ids if _is_id(value)), None),
            title=next((value for value in titles if _is_title(value)), None),
            format=source_format,
        )


def find_messages(documents: Sequence[Document], *, source: str, at: str | None) -> Iterator[MessageList]:
    """The lists of messages in the documents of a file. `at` is their key, dotted if nested.

    Raises InvalidConversation naming the file and the place.
    """
    if at is None and all(_is_message(document) for _, document in documents):
        yield _found([document for _, document in documents], {}, {}, source)
        return
    for place, document in documents:
        yield from _in_document(document, place, at)


def message_entries(found: MessageList) -> list[Entry]:
    """An entry for each message, at its number."""
    return [
        Entry(str(number), message, f"{found.place}: message {number}")
        for number, message in enumerate(found.messages)
    ]


def all_messages(documents: Sequence[Document]) -> list[MessageList]:
    """Every list of messages in the documents, however many and wherever: what formats are told by."""
    if all(_is_message(document) for _, document in documents):
        return [_found([document for _, document in documents], {}, {}, "")]
    return [found for place, document in documents for found in _lists_within(document, {}, place, 0)]


def _lists_within(value: Any, holder: dict[str, Any], place: str, depth: int) -> Iterator[MessageList]:
    if isinstance(value, list) and value and all(_is_message(item) for item in value):
        yield _found(value, holder, holder, place)
    elif depth <= _DEPTH and isinstance(value, dict):
        for item in value.values():
            yield from _lists_within(item, value, place, depth + 1)
    elif depth <= _DEPTH and isinstance(value, list):
        for item in value:
            yield from _lists_within(item, {}, place, depth + 1)


def read_documents(text: str, source: str) -> list[Document]:
    """The JSON values in `text`, each with its place: a whole file, or line by line.

    Raises InvalidConversation naming the file and the line.
    """
    return read_json_values(
        text, source, refuse_with=InvalidConversation, hint="give a JSON or JSONL file of messages"
    )


def _in_document(document: Any, place: str, at: str | None) -> Iterator[MessageList]:
    if isinstance(document, list) and not (document and _is_message(document[0])):
        for index, item in enumerate(document):
            yield _one(item, f"{place}[{index}]", at)
    else:
        yield _one(document, place, at)


def _one(item: Any, place: str, at: str | None) -> MessageList:
    if at is not None:
        messages = _at(item, at)
        if not isinstance(messages, list):
            raise InvalidConversation(
                f"{place}: there is no list of messages at {at!r}", hint=_keys_hint(item)
            )
        return _found(messages, _holder(item, at), item, place)
    if isinstance(item, list) and all(_is_message(message) for message in item):
        return _found(item, {}, {}, place)
    found = _message_lists(item)
    if len(found) == 1:
        [(messages, holder)] = found.values()
        return _found(messages, holder, item, place)
    if not found:
        raise InvalidConversation(
            f"{place}: no messages found", hint=f"name their key with --at KEY; {_keys_hint(item)}"
        )
    raise InvalidConversation(
        f"{place}: messages stand at several keys: {', '.join(found)}",
        hint=f"choose one, for example --at {next(iter(found))}",
    )


def _found(messages: list[Any], beside: Any, top: Any, place: str) -> MessageList:
    return MessageList(messages=messages, beside=beside, top=top, place=place)


def _message_lists(item: Any) -> dict[str, tuple[list[Any], dict[str, Any]]]:
    """The lists of messages in `item` with their holders, by dotted key: those of the shallowest level."""
    level = {"": item}
    for _ in range(_DEPTH):
        below = {
            f"{path}.{key}" if path else key: (value, mapping)
            for path, mapping in level.items()
            if isinstance(mapping, dict)
            for key, value in mapping.items()
        }
        found = {path: pair for path, pair in below.items() if _is_message_list(path, pair[0])}
        if found:
            return found
        level = {path: value for path, (value, _) in below.items()}
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


def _holder(item: Any, path: str) -> Any:
    """The object that holds what stands at `path`."""
    above = path.rpartition(".")[0]
    return _at(item, above) if above else item


def _keys_hint(item: Any) -> str:
    if not isinstance(item, dict):
        return "the conversation is no object"
    keys = ", ".join(repr(key) for key in list(item)[:8])
    return f"its keys are {keys}" if keys else "the object is empty"


def _is_id(value: Any) -> bool:
    return (isinstance(value, str) and value != "") or (
        isinstance(value, int) and not isinstance(value, bool)
    )


def _is_title(value: Any) -> bool:
    return isinstance(value, str) and value.strip() != ""
