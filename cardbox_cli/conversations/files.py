"""Finding the conversations in a file: one or many, the messages under whatever key.

Finds in documents the conversations that are lists of messages, in the file's order. What a message means,
and files of another build, are the formats' business.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from cardbox_cli.conversations.conversation import Conversation, FileEntry, Rereadable
from cardbox_cli.conversations.json_documents import Documents
from cardbox_cli.conversations.json_window import LazyList, held
from cardbox_cli.errors import InvalidConversation

# Where conversations carry an id or a title of their own.
_ID_KEYS = ("conversation_id", "session_id", "thread_id", "chat_id", "id")
_TITLE_KEYS = ("title", "name", "subject")
# How deep below a conversation's top its messages are looked for.
_DEPTH = 3


class MessageList(msgspec.Struct, frozen=True):
    """A list of messages. `beside` is the object that holds it, `top` the one that may name it."""

    messages: Iterable[Any]
    beside: dict[str, Any]
    top: dict[str, Any]
    place: str

    def conversation(self, source_format: str, entries: Iterable[FileEntry]) -> Conversation:
        """The conversation of these entries, with the id and the title that the file gives it."""
        ids = (self.top.get(key) for key in _ID_KEYS)
        titles = (self.top.get(key) for key in _TITLE_KEYS)
        return Conversation(
            entries=entries,
            place=self.place,
            own_id=next((str(value) for value in ids if _is_id(value)), None),
            title=next((value for value in titles if isinstance(value, str) and value.strip()), None),
            format=source_format,
            beside=self.beside,
        )


def find_messages(documents: Documents, at: str | None = None) -> Iterator[MessageList]:
    """The lists of messages in a file. `at` is their key, dotted if nested.

    Raises InvalidConversation naming the file and the place.
    """
    if at is None and documents.all(_is_message):
        yield _of_documents(documents)
        return
    for place, document in documents:
        if is_list(document) and not _begins_with_message(document):
            yield from (_one(item, f"{place}[{index}]", at) for index, item in enumerate(_parts(document)))
        else:
            yield _one(document, place, at)


def all_messages(documents: Documents) -> Iterator[MessageList]:
    """Every list of messages in a file, however many and wherever: what formats are known by."""
    if documents.all(_is_message):
        yield _of_documents(documents)
        return
    for place, document in documents:
        yield from _lists_within(document, {}, place, 0)


def is_list(value: Any) -> bool:
    """Whether it is a JSON array, in memory or not."""
    return isinstance(value, list | LazyList)


def _of_documents(documents: Documents) -> MessageList:
    return MessageList(Rereadable(lambda: (held(value) for _, value in documents)), {}, {}, documents.name)


def _lists_within(value: Any, holder: dict[str, Any], place: str, depth: int) -> Iterator[MessageList]:
    if _is_message_list("", value):
        yield MessageList(value, holder, holder, place)
    elif depth <= _DEPTH and isinstance(value, dict):
        for item in value.values():
            yield from _lists_within(item, value, place, depth + 1)
    elif depth <= _DEPTH and is_list(value):
        for item in _parts(value):
            yield from _lists_within(item, {}, place, depth + 1)


def _parts(value: Any) -> Iterable[Any]:
    """The items of a list that are no messages, and may hold large lists of them."""
    return value.parts() if isinstance(value, LazyList) else value


def _begins_with_message(items: Iterable[Any]) -> bool:
    return _is_message(next(iter(items), None))


def _one(item: Any, place: str, at: str | None) -> MessageList:
    if at is not None:
        messages = _at(item, at)
        if not is_list(messages):
            raise InvalidConversation(
                f"{place}: there is no list of messages at {at!r}", hint=_keys_hint(item)
            )
        above = at.rpartition(".")[0]
        return MessageList(messages, _at(item, above) if above else item, item, place)
    if is_list(item) and (_begins_with_message(item) or _all(item, _is_message)):
        return MessageList(item, {}, {}, place)  # what is none among them is named by its place
    found = _message_lists(item)
    if len(found) == 1:
        [(messages, holder)] = found.values()
        return MessageList(messages, holder, item, place)
    if not found:
        raise InvalidConversation(
            f"{place}: no messages found", hint=f"name their key with --at KEY; {_keys_hint(item)}"
        )
    raise InvalidConversation(
        f"{place}: messages stand at several keys: {', '.join(found)}",
        hint=f"choose one, for example --at {next(iter(found))}",
    )


def _message_lists(item: Any) -> dict[str, tuple[Iterable[Any], dict[str, Any]]]:
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
    if not is_list(value):
        return False
    if path.split(".")[-1] == "messages":
        return value == [] or not _all(value, lambda item: not _is_message(item))
    return value != [] and _all(value, _is_message)


def _all(items: Any, test: Callable[[Any], bool]) -> bool:
    return items.all(test) if isinstance(items, LazyList) else all(map(test, items))


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


def _is_id(value: Any) -> bool:
    return value != "" and isinstance(value, str | int) and not isinstance(value, bool)
