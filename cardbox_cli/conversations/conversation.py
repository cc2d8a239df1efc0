"""The conversations that a file holds, and the interface of a file format."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from cardbox_cli.conversations.json_documents import JsonDocuments
from cardbox_cli.errors import InvalidConversation
from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import Card, CardDraft

_Item = TypeVar("_Item", covariant=True)


class Rereadable(Generic[_Item]):
    """Items that are read again in each iteration, because they may be too large for memory."""

    def __init__(self, read: Callable[[], Iterator[_Item]]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[_Item]:
        return self._read()


class FileEntry(msgspec.Struct, frozen=True, gc=False):
    """One item of a conversation file, such as a message, as a JSON value.

    `position` is unique within the conversation; `place` is for error messages. `created_at` is None if the
    file does not have it.
    """

    position: str
    value: Any
    place: str
    created_at: datetime | None = None


def parse_time(text: Any) -> datetime | None:
    """Parse an RFC 3339 time, in UTC if it names no zone. Returns None for any other value."""
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        return None


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation of a file: its entries in order, in the format named `format`.

    The entries can be iterated over more than once. `own_id` is its id in the file, `parent_id` the id of the
    conversation that it branched off from, and `place` is for error messages. `siblings` are the keys next to
    its messages. If the conversation is a request, `request` is the part of them that is stored. If
    `is_part`, it belongs to other conversations, in this file or another one, and is imported even without a
    message. `lack` is the error of a conversation whose messages are missing.
    """

    entries: Iterable[FileEntry]
    place: str
    own_id: str | None = None
    title: str | None = None
    format: str
    parent_id: str | None = None
    siblings: Mapping[str, Any] = {}
    request: FileEntry | None = None
    is_part: bool = False
    lack: InvalidConversation | None = None


class ConversationReader(Protocol):
    """A reader of the conversations in a file. It yields parents before their branches.

    `at` is the key of the messages, dotted if nested. Raises InvalidConversation naming the place.
    """

    def __call__(self, documents: JsonDocuments, *, at: str | None = None) -> Iterator[Conversation]: ...


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """A format of conversation files. `provider` names the provider whose messages it holds.

    - `keyspace` is the prefix of its conversations' keys: one file read as two formats makes two boxes.
    - `marks` returns the evidence that a value is in this format and no other, None without evidence.
    - `fits` returns whether a value without evidence may be in it.
    - `reads` returns whether a value would be understood, rather than stored as an event. None means always.
    - `tells_all`: its evidence outweighs that of other formats. `holds` names formats whose values may be in
      a file of this one.
    - `draft` makes the cards of an entry, without ids, and raises InvalidConversation naming its place;
      `draft_request` makes those of a request.
    - `keep_original` adds to the first card what `export` needs to write the second. `export` yields the text
      of a file in chunks, and may iterate over the cards more than once. Read-only formats have neither.
    - `names_itself_later`: a conversation may get its id only when it grows.
    """

    name: str
    provider: str
    keyspace: tuple[str, ...]
    marks: Callable[[Any], str | None]
    fits: Callable[[Any], bool]
    read: ConversationReader
    draft: Callable[[FileEntry], list[CardDraft]]
    keep_original: Callable[[CardDraft, CardDraft], CardDraft] = lambda changed, _: changed
    export: Callable[[Iterable[Card]], Iterator[str]] | None = None
    draft_request: Callable[[FileEntry], list[CardDraft]] | None = None
    reads: Callable[[Any], bool] | None = None
    tells_all: bool = True
    holds: tuple[str, ...] = ()
    names_itself_later: bool = False


def format_indented(value: Any, columns: int = 0) -> str:
    """Format a value as indented JSON. Each line but the first begins with `columns` spaces."""
    text = msgspec.json.format(exact_json.encode(value), indent=2).decode()
    return text.replace("\n", "\n" + " " * columns) if columns else text


# The number of items per chunk: a compromise between speed and memory.
_CHUNK_ITEMS = 32


def format_indented_list(values: Iterable[Any], level: int = 0) -> Iterator[str]:
    """Format a list as indented JSON in chunks, at a nesting depth of `level`."""
    opening = "\n".join("  " * outer + "[" for outer in range(level + 1))
    closing = "".join("\n" + "  " * outer + "]" for outer in reversed(range(level + 1)))
    lead, items = "[", iter(values)
    while some := list(islice(items, _CHUNK_ITEMS)):
        within: Any = some
        for _ in range(level):
            within = [within]
        text = msgspec.json.format(exact_json.encode(within), indent=2).decode()
        yield lead + text[len(opening) : -len(closing)]
        lead = ","
    yield "[]" if lead == "[" else "\n" + "  " * level + "]"
