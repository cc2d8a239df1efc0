"""Finding the conversations in a file: one or many, the messages under whatever key.

Finds in documents the conversations that are lists of messages, in the file's order. What a message means,
and files of another build, are the formats' business.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import msgspec

from cardbox_cli.context.provider import CHAT_SHAPE, MessageShape, has_role
from cardbox_cli.conversations.conversation import Conversation, FileEntry, Rereadable
from cardbox_cli.conversations.json_documents import Document, Documents, LazyList, held
from cardbox_cli.errors import InvalidConversation, NoMessages
from cardbox_cli.providers.registry import providers

# Where conversations carry an id or a title of their own.
ID_KEYS = ("conversation_id", "session_id", "thread_id", "chat_id", "id")
TITLE_KEYS = ("title", "name", "subject")
# How deep below a conversation's top its messages are looked for, and what may hold some.
_DEPTH = 3
_HOLDERS = frozenset((dict, list, LazyList))
# A list of messages, and the object that holds it.
_Held = tuple[Iterable[Any], dict[str, Any]]


class MessageList(msgspec.Struct, frozen=True):
    """A list of messages. `beside` is the object that holds it, `top` the one that may name it.

    `lack` is what is wrong where one should stand and none does; it is empty then.
    """

    messages: Iterable[Any]
    beside: dict[str, Any]
    top: dict[str, Any]
    place: str
    lack: InvalidConversation | None = None

    def conversation(
        self, source_format: str, entries: Iterable[FileEntry], request: FileEntry | None = None
    ) -> Conversation:
        """The conversation of these entries, with the id and the title that the file gives it."""
        ids = (self.top.get(key) for key in ID_KEYS)
        titles = (self.top.get(key) for key in TITLE_KEYS)
        return Conversation(
            entries=entries,
            place=self.place,
            own_id=next((str(value) for value in ids if _is_id(value)), None),
            title=next((value for value in titles if isinstance(value, str) and value.strip()), None),
            format=source_format,
            beside=self.beside,
            request=request,
        )


def find_messages(
    documents: Documents, at: str | None = None, shape: MessageShape = CHAT_SHAPE
) -> Iterator[MessageList]:
    """The lists of messages of a shape in a file. `at` is their key, dotted if nested.

    Raises InvalidConversation naming the file and the place.
    """
    if at is None and documents.all(shape.is_message):
        yield _of_documents(documents)
        return
    finder = _Finder(shape, at)
    found = (
        each
        for place, document in values_in(documents, shape.is_message)
        for each in finder.all(document, place)
    )
    yield from where_any_has_messages((each, each.lack) for each in found)


_One = TypeVar("_One")


def where_any_has_messages(found: Iterable[tuple[_One, InvalidConversation | None]]) -> Iterator[_One]:
    """What holds messages, each of which comes with what is wrong where it lacks them: as long as another has
    some it says nothing, and that is all. Raises NoMessages with the first thing that is wrong where all lack
    them.
    """
    wrong, has_any = None, False
    for one, lack in found:
        wrong, has_any = wrong or lack, has_any or lack is None
        yield one
    if wrong is not None and not has_any:
        raise NoMessages(wrong.message, hint=wrong.hint)


def lack_of(key: str, holder: Any, problem: str) -> InvalidConversation | None:
    """What is wrong with an object that has no list at a key; None for one that has it.

    Raises it for one that has something else there, for one without the key that holds messages all the same,
    as where it is misspelt, and for what is no object.
    """
    value = holder.get(key) if isinstance(holder, dict) else None
    if is_list(value):
        return None
    wrong = InvalidConversation(problem, hint=_keys_hint(holder))
    if not isinstance(holder, dict) or value is not None:
        raise wrong
    if key not in holder and _holds_messages(holder, CHAT_SHAPE):
        raise wrong
    return wrong


def _holds_messages(value: Any, shape: MessageShape) -> bool:
    """Whether there are messages of a shape anywhere in a value."""
    return any(
        isinstance(holder.get(shape.key), str) or next(iter(messages), None) is not None
        for messages, holder in lists_within(value, (shape,))
    )


def values_in(documents: Documents, is_message: Callable[[Any], bool] = has_role) -> Iterator[Document]:
    """The values of a file with those of its lists apart, as if each stood in a line of its own.

    A list that begins with a message stays whole.
    """
    for document in documents:
        yield from _values_in(document, is_message)


def _values_in(document: Document, is_message: Callable[[Any], bool], depth: int = 0) -> Iterator[Document]:
    place, value = document
    first = next(iter(_parts(value)), None) if is_list(value) else None
    if not is_list(value) or depth > _DEPTH or is_message(first) or (depth and value == []):
        yield document
        return
    for index, item in enumerate(_parts(value)):
        part = Document(f"{place}[{index}]", item)
        if is_list(item):
            yield from _values_in(part, is_message, depth + 1)
        else:
            yield part


def lists_within(
    value: Any, shapes: Sequence[MessageShape], holder: Any = None, depth: int = 0, key: str = ""
) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Every list in a value that messages of one of these shapes stand in, with the object that holds it.

    What may be one text instead is given with its object, too.
    """
    beside = holder if isinstance(holder, dict) else {}
    if is_list(value) and any(_is_message_list(key, value, shape) for shape in shapes):
        yield value, beside
    elif depth <= _DEPTH and isinstance(value, dict):
        for name, item in value.items():
            if isinstance(item, str):
                if any(shape.takes_text and shape.key == name for shape in shapes):
                    yield [], value
            elif (alone := _alone(name, item, shapes)) is not None:
                yield alone, value
            elif isinstance(item, dict | list | LazyList):
                yield from lists_within(item, shapes, value, depth + 1, name)
    elif depth <= _DEPTH and is_list(value):
        for item in _parts(value):
            if _may_hold_lists(item, shapes):
                yield from lists_within(item, shapes, None, depth + 1)


def _alone(key: str, value: Any, shapes: Sequence[MessageShape]) -> list[Any] | None:
    """The one message that stands in the place of all of a shape; None for anything else."""
    if type(value) is not dict:
        return None
    return next((found for shape in shapes if (found := shape.alone(key, value)) is not None), None)


def _may_hold_lists(item: Any, shapes: Sequence[MessageShape]) -> bool:
    """Whether there is anything to look into in an item of a list. A message holds no conversation."""
    if type(item) is not dict:
        return isinstance(item, list | LazyList)
    if type(item.get("role")) is str:
        return False
    return not _HOLDERS.isdisjoint(map(type, item.values())) or any(
        shape.takes_text and shape.key in item for shape in shapes
    )


def is_list(value: Any) -> bool:
    """Whether it is a JSON array, in memory or not."""
    return isinstance(value, list | LazyList)


def _of_documents(documents: Documents) -> MessageList:
    return MessageList(Rereadable(lambda: (held(value) for _, value in documents)), {}, {}, documents.name)


def _parts(value: Any) -> Iterable[Any]:
    """The items of a list that are no messages, and may hold large lists of them."""
    return value.parts() if isinstance(value, LazyList) else value


class _Finder(NamedTuple):
    """Finds the messages of a conversation by their shape, or those of all that stand at a key `at`."""

    shape: MessageShape
    at: str | None

    def all(self, item: Any, place: str) -> Iterator[MessageList]:
        """The lists of messages in a document."""
        if self.at is None:
            yield self._one(item, place)
        else:
            yield from self._named(item, self.at.split("."), MessageList([], {}, {}, place))

    def _one(self, item: Any, place: str) -> MessageList:
        is_message = self.shape.is_message
        if is_list(item) and (is_message(next(iter(item), None)) or _all(item, is_message)):
            return MessageList(item, {}, {}, place)  # what is none among them is named by its place
        found = self._lists(item)
        if self.shape.is_own:  # what stands at its own key is meant
            found = {path: pair for path, pair in found.items() if self._is_at_key(path)} or found
            found |= _of_other_requests(found)
        if len(found) == 1:
            [(messages, holder)] = found.values()
            return MessageList(messages, holder, item, place)
        if not found:
            deeper = _path_within(item, self.shape)
            named = f"--at {deeper}" if deeper else f"--at KEY; {_keys_hint(item)}"
            raise InvalidConversation(f"{place}: no messages found", hint=f"name their key with {named}")
        raise InvalidConversation(
            f"{place}: messages stand at several keys: {_listed(found)}",
            hint=f"choose one, for example --at {_shortened(next(iter(found)))}",
        )

    def _named(self, item: Any, keys: Sequence[str], found: MessageList) -> Iterator[MessageList]:
        """The lists at a path of keys, which leads through each item of a list on its way.

        `found` is what holds `item`: what stands beside it, what names it, and its place. Null lacks its
        messages, and so does an object without the next key, unless there are some elsewhere in it.
        """
        if not keys and (alone := self.shape.alone(self._last_key, item)) is not None:
            item = alone
        if is_list(item) and (keys or self._is_of_lists(item)):
            for index, part in enumerate(_parts(item)):
                each = msgspec.structs.replace(found, beside={}, top={}, place=f"{found.place}[{index}]")
                yield from self._named(part, keys, each)
        elif is_list(item) and not keys:
            yield msgspec.structs.replace(found, messages=item)
        elif (key := _first_key(item, keys)) is not None:
            top, rest = found.top or item, keys[key.count(".") + 1 :]
            place = found.place if _is_plain(item[key], rest) else f"{found.place}: {key}"
            below = msgspec.structs.replace(found, beside=item, top=top, place=place)
            yield from self._named(item[key], rest, below)
        else:
            wrong = InvalidConversation(
                f"{found.place}: there is no list of messages at {self.at!r}", hint=_keys_hint(item)
            )
            if item is not None and not (keys and isinstance(item, dict)):
                raise wrong
            if item is not None and _holds_messages(item, self.shape):
                raise wrong
            # What would hold the messages may say what they are of; what stands above it does not.
            beside = {"beside": item, "top": found.top or item} if item and len(keys) == 1 else {}
            yield msgspec.structs.replace(found, messages=[], lack=wrong, **beside)

    @property
    def _last_key(self) -> str:
        return (self.at or "").split(".")[-1]

    def _is_of_lists(self, value: Any) -> bool:
        """Whether the items of a list are lists, each a conversation."""
        return is_list(next(iter(_parts(value)), None))

    def _lists(self, item: Any) -> dict[str, _Held]:
        """The lists of messages in `item` with their holders, by dotted key, of the shallowest level."""
        level = {"": item}
        for _ in range(_DEPTH):
            below = {
                f"{path}.{key}" if path else key: (value, mapping)
                for path, mapping in level.items()
                if isinstance(mapping, dict)
                for key, value in mapping.items()
            }
            found = {
                path: pair for path, pair in below.items() if _is_message_list(path, pair[0], self.shape)
            }
            found |= self._alone(below)
            if found:
                return found
            level = {path: value for path, (value, _) in below.items()}
        return {}

    def _alone(
        self, below: dict[str, tuple[Any, dict[str, Any]]]
    ) -> dict[str, tuple[list[Any], dict[str, Any]]]:
        """The texts, and the single messages, that stand in the place of messages, as lists of one."""
        return {
            path: (alone, holder)
            for path, (value, holder) in below.items()
            if (alone := self.shape.alone(path.split(".")[-1], value)) is not None
        }

    def _is_at_key(self, path: str) -> bool:
        return path.split(".")[-1] == self.shape.key


def _is_message_list(path: str, value: Any, shape: MessageShape) -> bool:
    if not is_list(value):
        return False
    if path.split(".")[-1] == shape.key:
        return value == [] or not _all(value, lambda item: not shape.is_message(item))
    return value != [] and _all(value, shape.is_message)


def _of_other_requests(found: Mapping[str, _Held]) -> dict[str, _Held]:
    """The messages that stand beside those found, where requests to other providers have theirs."""
    return {
        f"{path[: -len(own)]}{key}": (holder[key], holder)
        for path, (_, holder) in found.items()
        for own in [path.split(".")[-1]]
        for key, shape in ((each.files.shape.key, each.files.shape) for each in providers())
        if key != own and holder.get(key) and _is_message_list(key, holder[key], shape)
    }


def _all(items: Any, test: Callable[[Any], bool]) -> bool:
    return items.all(test) if isinstance(items, LazyList) else all(map(test, items))


def _first_key(value: Any, keys: Sequence[str]) -> str | None:
    """The key of an object that a path begins with, which may have dots itself; None where it has none."""
    if not isinstance(value, dict):
        return None
    starts = (".".join(keys[:count]) for count in range(1, len(keys) + 1))
    return next((start for start in starts if start in value), None)


def _is_plain(value: Any, keys: Sequence[str]) -> bool:
    """Whether a path of keys leads from a value to one list of messages, whose holder's place says enough."""
    while keys:
        if (key := _first_key(value, keys)) is None:
            return False
        value, keys = value[key], keys[key.count(".") + 1 :]
    return not is_list(value) or not is_list(next(iter(_parts(value)), None))


def _path_within(item: Any, shape: MessageShape, depth: int = 0) -> str | None:
    """The path of keys to messages that stand in the items of lists."""
    if is_list(item):
        return _path_within(next(iter(_parts(item)), None), shape, depth + 1) if depth <= _DEPTH else None
    for key, value in item.items() if isinstance(item, dict) and depth <= _DEPTH else ():
        if _is_message_list(key, value, shape):
            return str(key)
        below = _path_within(value, shape, depth + 1)
        if below is not None:
            return f"{key}.{below}"
    return None


def _keys_hint(item: Any) -> str:
    if not isinstance(item, dict):
        return "the conversation is no object"
    return f"its keys are {_listed(map(repr, item))}" if item else "the object is empty"


# Keys that a message names, and characters of each: a file may have any number of them, of any length.
_KEYS_NAMED = 8
_KEY_SHOWN = 80


def _listed(keys: Iterable[str]) -> str:
    rest = iter(keys)
    named = [_shortened(key) for key in islice(rest, _KEYS_NAMED)]
    others = sum(1 for _ in rest)
    return ", ".join([*named, *([f"and {others} more"] if others else [])])


def _shortened(key: str) -> str:
    return key if len(key) <= _KEY_SHOWN else f"{key[: _KEY_SHOWN - 1]}…"


def _is_id(value: Any) -> bool:
    return value != "" and isinstance(value, str | int) and not isinstance(value, bool)
