"""A conversation on its way from a file to a box, and what a format of such files offers."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from cardbox_cli.conversations.json_documents import Documents
from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import Card, CardDraft

_Item = TypeVar("_Item", covariant=True)


class Rereadable(Generic[_Item]):
    """What is read anew each time it is iterated over, since it may be too much to hold."""

    def __init__(self, read: Callable[[], Iterator[_Item]]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[_Item]:
        return self._read()


class FileEntry(msgspec.Struct, frozen=True, gc=False):
    """What a format writes at a time, such as a message: its JSON value.

    `position` tells it from the other entries of its conversation, `place` is for error messages.
    `created_at` is when it was written, where the file says so.
    """

    position: str
    value: Any
    place: str
    created_at: datetime | None = None


def moment(text: Any) -> datetime | None:
    """The time that a file gives in RFC 3339, in UTC where it says no other; None for anything else."""
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        return None


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation as it stands in a file: its entries in order, in the format of that name.

    The entries can be iterated over more than once. `own_id` is the id that the file gives it, `parent_id`
    that of the conversation it branched off from, `place` is for error messages. `beside` is what stands
    beside its messages, such as the tools of a request's body; `request` is what of it is kept, if it is one.
    One that `is_part` goes with others, in this file or in another one, and is kept whatever it says.
    """

    entries: Iterable[FileEntry]
    place: str
    own_id: str | None
    title: str | None
    format: str
    parent_id: str | None = None
    beside: Mapping[str, Any] = {}
    request: FileEntry | None = None
    is_part: bool = False


class Read(Protocol):
    """Reads the conversations in a file, one that others branch off from before them.

    `at` is the key of the messages, dotted if nested. Raises InvalidConversation naming the place.
    """

    def __call__(self, documents: Documents, *, at: str | None = None) -> Iterator[Conversation]: ...


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """A format of conversation files. `provider` names the one whose messages it holds.

    `keyspace` begins the keys of its conversations, so that one file taken as two formats makes two boxes.
    `marks` says, in words, by what a value of a file is in this format and in no other, None where it bears
    no mark; `fits` tells whether a value without a mark may be in it, `reads` a value that would be
    understood from one that would only be kept, where there are such. `tells_all`: where it speaks, others
    are not asked. `holds` names the formats whose values may stand in a file of this one.
    `draft` makes the cards of an entry, whose ids are the importer's business, and raises InvalidConversation
    naming the entry's place; `draft_request` those of what is kept of a request.
    `keep_original` gives the first card what `export` needs to give back the second. `export` gives the text
    of a file with what cards hold, in pieces, and may iterate over the cards more than once.
    `names_itself_later`: a conversation that grows may still have no id of its own.
    """

    name: str
    provider: str
    keyspace: tuple[str, ...]
    marks: Callable[[Any], str | None]
    fits: Callable[[Any], bool]
    read: Read
    draft: Callable[[FileEntry], list[CardDraft]]
    keep_original: Callable[[CardDraft, CardDraft], CardDraft]
    export: Callable[[Iterable[Card]], Iterator[str]] | None
    draft_request: Callable[[FileEntry], list[CardDraft]] | None = None
    reads: Callable[[Any], bool] | None = None
    tells_all: bool = True
    holds: tuple[str, ...] = ()
    names_itself_later: bool = False


def indented(value: Any, columns: int = 0) -> str:
    """A value as indented JSON; of several lines all but the first begin with so many blanks."""
    text = msgspec.json.format(exact_json.encode(value), indent=2).decode()
    return text.replace("\n", "\n" + " " * columns) if columns else text


# So many items of a list are written at once: one is soon written, and the text of very many takes memory.
_AT_ONCE = 32


def indented_list(values: Iterable[Any], level: int = 0) -> Iterator[str]:
    """A list as indented JSON, in pieces, as it stands so many levels deep."""
    opening = "\n".join("  " * outer + "[" for outer in range(level + 1))
    closing = "".join("\n" + "  " * outer + "]" for outer in reversed(range(level + 1)))
    lead, items = "[", iter(values)
    while some := list(islice(items, _AT_ONCE)):
        within: Any = some
        for _ in range(level):
            within = [within]
        text = msgspec.json.format(exact_json.encode(within), indent=2).decode()
        yield lead + text[len(opening) : -len(closing)]
        lead = ","
    yield "[]" if lead == "[" else "\n" + "  " * level + "]"
