"""A conversation on its way from a file to a box, and what every format writes alike."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from cardbox_cli.errors import InvalidConversation
from cardbox_cli.model import exact_json
from cardbox_cli.model.handwritten.wording import json_kind

_Item = TypeVar("_Item", covariant=True)


class Rereadable(Generic[_Item]):
    """What is read anew each time it is iterated over, since it may be too much to hold."""

    def __init__(self, read: Callable[[], Iterator[_Item]]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[_Item]:
        return self._read()


class Entry(msgspec.Struct, frozen=True):
    """What a format writes at a time, such as a message: its JSON value.

    `position` tells it from the other entries of its conversation, `place` is for error messages.
    """

    position: str
    value: Any
    place: str


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation as it stands in a file: its entries in order, in the format of that name.

    The entries can be iterated over more than once. `own_id` is the id that the file gives it, `parent_id`
    that of the conversation it branched off from, `place` is for error messages. `beside` is what stands
    beside its messages, such as the tools of a request's body.
    """

    entries: Iterable[Entry]
    place: str
    own_id: str | None
    title: str | None
    format: str
    parent_id: str | None = None
    beside: Mapping[str, Any] = {}


def checked_message(entry: Entry, roles: Collection[str], provider: str) -> dict[str, Any]:
    """The entry's value, a message of one of `roles`. Raises InvalidConversation naming its place."""
    message = entry.value
    if not isinstance(message, dict):
        raise InvalidConversation(f"{entry.place}: a message must be an object, not {json_kind(message)}")
    role = message.get("role")
    if not isinstance(role, str) or role not in roles:
        raise InvalidConversation(
            f"{entry.place}: the role {role!r} is none of {provider}'s", hint=f"roles are {', '.join(roles)}"
        )
    return message


def file_pieces(messages: Iterable[Any], **beside: Any) -> Iterator[str]:
    """The text of an indented JSON file, a message at a time: what stands `beside` them, then `messages`."""
    yield "{\n"
    for key, value in beside.items():
        yield f"  {_indented(key)}: {_indented(value, 2)},\n"
    yield '  "messages": ['
    lead = "\n"
    for message in messages:
        yield f"{lead}    {_indented(message, 4)}"
        lead = ",\n"
    yield "]\n}" if lead == "\n" else "\n  ]\n}"


def _indented(value: Any, columns: int = 0) -> str:
    text = msgspec.json.format(exact_json.encode(value).decode(), indent=2)
    return text.replace("\n", "\n" + " " * columns)
