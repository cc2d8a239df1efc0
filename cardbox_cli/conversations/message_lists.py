"""Search for the lists of messages in a file, under any key and in the file's order.

The formats define what a message means, and read files that are not built of such lists.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import msgspec

from cardbox_cli.context.provider import CHAT_SHAPE, MessageShape, has_role
from cardbox_cli.conversations.conversation import Conversation, FileEntry, Rereadable
from cardbox_cli.conversations.json_documents import JsonDocument, JsonDocuments, LazyList, load_lazy_lists
from cardbox_cli.errors import InvalidConversation, NoMessages
from cardbox_cli.providers.registry import providers

# The keys of a conversation's id and title.
ID_KEYS = ("conversation_id", "session_id", "thread_id", "chat_id", "id")
TITLE_KEYS = ("title", "name", "subject")
# The depth below a conversation's top at which messages are searched, and the types that may contain some.
_MAX_DEPTH = 3
_HOLDERS = frozenset((dict, list, LazyList))
# A list of messages, and the object that holds it.
_ListAndHolder = tuple[Iterable[Any], dict[str, Any]]


class MessageList(msgspec.Struct, frozen=True):
    """A list of messages. `siblings` is the object that contains it, `top` the one with its id and title.

    `lack` is the error of a list that is missing; `messages` is empty then.
    """

    messages: Iterable[Any]
    siblings: dict[str, Any]
    top: dict[str, Any]
    place: str
    lack: InvalidConversation | None = None

    def conversation(
        self, source_format: str, entries: Iterable[FileEntry], request: FileEntry | None = None
    ) -> Conversation:
        """Return the conversation of these entries, with its id and title in the file."""
        ids = (self.top.get(key) for key in ID_KEYS)
        titles = (self.top.get(key) for key in TITLE_KEYS)
        return Conversation(
            entries=entries,
            place=self.place,
            own_id=next((str(value) for value in ids if _is_id(value)), None),
            title=next((value for value in titles if isinstance(value, str) and value.strip()), None),
            format=source_format,
            siblings=self.siblings,
            request=request,
        )


def find_messages(
    documents: JsonDocuments, at: str | None = None, shape: MessageShape = CHAT_SHAPE
) -> Iterator[MessageList]:
    """Yield the lists of messages of a shape in a file. `at` is their key, dotted if nested.

    Raises InvalidConversation naming the file and the place.
    """
    if at is None and documents.all(shape.is_message):
        messages = Rereadable(lambda: (load_lazy_lists(value) for _, value in documents))
        yield MessageList(messages, {}, {}, documents.name)
        return
    finder = _Finder(shape, at)
    lists = (
        each
        for place, document in iterate_values(documents, shape.is_message)
        for each in finder.all(document, place)
    )
    yield from require_some_messages(lists)


_Item = TypeVar("_Item", Conversation, MessageList)


def require_some_messages(items: Iterable[_Item]) -> Iterator[_Item]:
    """Yield the items. If all of them lack messages, raises NoMessages with the first error."""
    wrong, has_any = None, False
    for item in items:
        wrong, has_any = wrong or item.lack, has_any or item.lack is None
        yield item
    if wrong is not None and not has_any:
        raise NoMessages(wrong.message, hint=wrong.hint)


def missing_list_error(key: str, holder: Any, problem: str) -> InvalidConversation | None:
    """Return the error of an object that has no list at a key, None if it has one.

    Raises the error if `holder` is not an object, or has something else at the key. Also raises it if an
    object without the key has messages elsewhere, for example under a misspelt key.
    """
    value = holder.get(key) if isinstance(holder, dict) else None
    if is_list(value):
        return None
    wrong = InvalidConversation(problem, hint=_keys_hint(holder))
    is_other = not isinstance(holder, dict) or value is not None
    if is_other or (key not in holder and _holds_messages(holder, CHAT_SHAPE)):
        raise wrong
    return wrong


def _holds_messages(value: Any, shape: MessageShape) -> bool:
    """Return whether a value contains messages of a shape."""
    return any(
        isinstance(holder.get(shape.key), str) or next(iter(messages), None) is not None
        for messages, holder in find_lists(value, (shape,))
    )


def iterate_values(
    documents: JsonDocuments, is_message: Callable[[Any], bool] = has_role
) -> Iterator[JsonDocument]:
    """Yield the values of a file, and the items of its lists one by one.

    A list that begins with a message is yielded whole.
    """
    for document in documents:
        yield from _values_in(document, is_message)


def _values_in(
    document: JsonDocument, is_message: Callable[[Any], bool], depth: int = 0
) -> Iterator[JsonDocument]:
    place, value = document
    first = next(iter(list_items(value)), None) if is_list(value) else None
    if not is_list(value) or depth > _MAX_DEPTH or is_message(first) or (depth and value == []):
        yield document
        return
    for index, item in enumerate(list_items(value)):
        part = JsonDocument(f"{place}[{index}]", item)
        if is_list(item):
            yield from _values_in(part, is_message, depth + 1)
        else:
            yield part


def find_lists(
    value: Any, shapes: Sequence[MessageShape], holder: Any = None, depth: int = 0, key: str = ""
) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield every list of messages of these shapes in a value, with the object that contains it.

    A string that a shape allows instead yields an empty list with its object.
    """
    siblings = holder if isinstance(holder, dict) else {}
    if is_list(value) and any(_is_message_list(key, value, shape) for shape in shapes):
        yield value, siblings
    elif depth <= _MAX_DEPTH and isinstance(value, dict):
        for name, item in value.items():
            if isinstance(item, str):
                if any(shape.takes_text and shape.key == name for shape in shapes):
                    yield [], value
            elif (alone := _single_message(name, item, shapes)) is not None:
                yield alone, value
            elif isinstance(item, dict | list | LazyList):
                yield from find_lists(item, shapes, value, depth + 1, name)
    elif depth <= _MAX_DEPTH and is_list(value):
        for item in list_items(value):
            if _may_hold_lists(item, shapes):
                yield from find_lists(item, shapes, None, depth + 1)


def _single_message(key: str, value: Any, shapes: Sequence[MessageShape]) -> list[Any] | None:
    """Return the single message that a shape allows instead of a list, None for anything else."""
    if type(value) is not dict:
        return None
    return next((messages for shape in shapes if (messages := shape.alone(key, value)) is not None), None)


def _may_hold_lists(item: Any, shapes: Sequence[MessageShape]) -> bool:
    """Return whether an item of a list may contain conversations. A message contains none."""
    if type(item) is not dict:
        return isinstance(item, list | LazyList)
    if type(item.get("role")) is str:
        return False
    return not _HOLDERS.isdisjoint(map(type, item.values())) or any(
        shape.takes_text and shape.key in item for shape in shapes
    )


def is_list(value: Any) -> bool:
    return isinstance(value, list | LazyList)


def list_items(value: Any) -> Any:
    """Return the items of a list that are not messages. Large ones contain `LazyList`s."""
    return value.parts() if isinstance(value, LazyList) else value


class _Finder(NamedTuple):
    """Finds messages by their shape, or all those at the key `at`."""

    shape: MessageShape
    at: str | None

    def all(self, item: Any, place: str) -> Iterator[MessageList]:
        if self.at is None:
            yield self._one(item, place)
        else:
            yield from self._find_at(item, self.at.split("."), MessageList([], {}, {}, place))

    def _one(self, item: Any, place: str) -> MessageList:
        is_message = self.shape.is_message
        if is_list(item) and (is_message(next(iter(item), None)) or _all(item, is_message)):
            return MessageList(item, {}, {}, place)  # a later error names the item that is not a message
        lists = self._find_lists(item)
        if self.shape.is_own:  # prefer lists at the provider's own key
            lists = {path: pair for path, pair in lists.items() if _last_key(path) == self.shape.key} or lists
            lists |= _other_providers_lists(lists)
        if len(lists) == 1:
            [(messages, holder)] = lists.values()
            return MessageList(messages, holder, item, place)
        if not lists:
            path = _path_within(item, self.shape)
            option = f"--at {path}" if path else f"--at KEY; {_keys_hint(item)}"
            raise InvalidConversation(f"{place}: no messages found", hint=f"pass the messages' key: {option}")
        raise InvalidConversation(
            f"{place}: several keys hold messages: {_join_keys(lists)}",
            hint=f"choose one, for example --at {_shorten(next(iter(lists)))}",
        )

    def _find_at(self, item: Any, keys: Sequence[str], base: MessageList) -> Iterator[MessageList]:
        """Yield the lists at a path of keys. Lists on the path are searched item by item.

        `base` describes the holder of `item`. For null, and for an object without the next key and without
        messages elsewhere, yields an empty list with an error.
        """
        if not keys and (alone := self.shape.alone(_last_key(self.at or ""), item)) is not None:
            item = alone
        if is_list(item) and (keys or _begins_with_list(item)):
            for index, part in enumerate(list_items(item)):
                each = msgspec.structs.replace(base, siblings={}, top={}, place=f"{base.place}[{index}]")
                yield from self._find_at(part, keys, each)
        elif is_list(item) and not keys:
            yield msgspec.structs.replace(base, messages=item)
        elif (key := _first_key(item, keys)) is not None:
            top, rest = base.top or item, keys[key.count(".") + 1 :]
            place = base.place if _is_plain(item[key], rest) else f"{base.place}: {key}"
            below = msgspec.structs.replace(base, siblings=item, top=top, place=place)
            yield from self._find_at(item[key], rest, below)
        else:
            wrong = InvalidConversation(
                f"{base.place}: no list of messages at {self.at!r}", hint=_keys_hint(item)
            )
            is_object = bool(keys) and isinstance(item, dict)
            if item is not None and (not is_object or _holds_messages(item, self.shape)):
                raise wrong
            # The object that lacks the messages may have an id and a title; objects above it do not count.
            siblings = {"siblings": item, "top": base.top or item} if item and len(keys) == 1 else {}
            yield msgspec.structs.replace(base, messages=[], lack=wrong, **siblings)

    def _find_lists(self, item: Any) -> dict[str, _ListAndHolder]:
        """Return the lists of messages at the shallowest level, with their holders, by dotted key."""
        level = {"": item}
        for _ in range(_MAX_DEPTH):
            below = {
                f"{path}.{key}" if path else key: (value, mapping)
                for path, mapping in level.items()
                if isinstance(mapping, dict)
                for key, value in mapping.items()
            }
            lists = {
                path: pair for path, pair in below.items() if _is_message_list(path, pair[0], self.shape)
            }
            # A string or a single message may replace a list of messages.
            lists |= {
                path: (alone, holder)
                for path, (value, holder) in below.items()
                if (alone := self.shape.alone(_last_key(path), value)) is not None
            }
            if lists:
                return lists
            level = {path: value for path, (value, _) in below.items()}
        return {}


def _last_key(path: str) -> str:
    return path.split(".")[-1]


def _is_message_list(path: str, value: Any, shape: MessageShape) -> bool:
    if not is_list(value):
        return False
    if _last_key(path) == shape.key:
        return value == [] or not _all(value, lambda item: not shape.is_message(item))
    return value != [] and _all(value, shape.is_message)


def _other_providers_lists(lists: Mapping[str, _ListAndHolder]) -> dict[str, _ListAndHolder]:
    """Return the non-empty lists that are next to `lists`, at keys where other providers put messages."""
    return {
        f"{path[: -len(own)]}{key}": (holder[key], holder)
        for path, (_, holder) in lists.items()
        for own in [_last_key(path)]
        for key, shape in ((each.files.shape.key, each.files.shape) for each in providers())
        if key != own and holder.get(key) and _is_message_list(key, holder[key], shape)
    }


def _all(items: Any, test: Callable[[Any], bool]) -> bool:
    return items.all(test) if isinstance(items, LazyList) else all(map(test, items))


def _first_key(value: Any, keys: Sequence[str]) -> str | None:
    """Return the shortest beginning of a path that is a key of an object, or None. A key may contain dots."""
    if not isinstance(value, dict):
        return None
    starts = (".".join(keys[:count]) for count in range(1, len(keys) + 1))
    return next((start for start in starts if start in value), None)


def _is_plain(value: Any, keys: Sequence[str]) -> bool:
    """Return whether a path of keys leads to one list of messages, which its holder's place identifies."""
    while keys:
        if (key := _first_key(value, keys)) is None:
            return False
        value, keys = value[key], keys[key.count(".") + 1 :]
    return not is_list(value) or not _begins_with_list(value)


def _begins_with_list(items: Any) -> bool:
    """Return whether the items of a list are lists, each a conversation."""
    return is_list(next(iter(list_items(items)), None))


def _path_within(item: Any, shape: MessageShape, depth: int = 0) -> str | None:
    """Return the path of keys to messages within the items of lists, None if there are none."""
    if depth > _MAX_DEPTH:
        return None
    if is_list(item):
        return _path_within(next(iter(list_items(item)), None), shape, depth + 1)
    for key, value in item.items() if isinstance(item, dict) else ():
        if _is_message_list(key, value, shape):
            return str(key)
        below = _path_within(value, shape, depth + 1)
        if below is not None:
            return f"{key}.{below}"
    return None


def _keys_hint(item: Any) -> str:
    if not isinstance(item, dict):
        return "the conversation is not an object"
    return f"its keys are {_join_keys(map(repr, item))}" if item else "the object is empty"


# The number of keys in an error message, and the characters of each. A file may have more and longer ones.
_MAX_KEYS = 8
_MAX_KEY_LENGTH = 80


def _join_keys(keys: Iterable[str]) -> str:
    rest = iter(keys)
    named = [_shorten(key) for key in islice(rest, _MAX_KEYS)]
    others = sum(1 for _ in rest)
    return ", ".join([*named, *([f"and {others} more"] if others else [])])


def _shorten(key: str) -> str:
    return key if len(key) <= _MAX_KEY_LENGTH else f"{key[: _MAX_KEY_LENGTH - 1]}…"


def _is_id(value: Any) -> bool:
    return value != "" and isinstance(value, str | int) and not isinstance(value, bool)
