"""The registry of formats of conversation files, what each of them offers, and how a file tells its own.

Each provider's messages are a format, by the provider's record; a line for any other.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from cardbox_cli.context.providers.registry import DEFAULT, PROVIDERS, provider_named

if TYPE_CHECKING:
    from cardbox_cli.conversations.conversation import Conversation, FileEntry
    from cardbox_cli.conversations.json_documents import Documents
    from cardbox_cli.model.cards import Card, CardDraft

# The formats that are no provider's messages, and the module that each is.
OTHERS = {"claude-code": "cardbox_cli.conversations.claude_code"}


class Format(Protocol):
    """What a format offers. `PROVIDER` names the one whose messages it holds.

    `KEYSPACE` begins the keys of its conversations, so that one file taken as two formats makes two boxes.
    """

    NAME: str
    PROVIDER: str
    KEYSPACE: tuple[str, ...]

    def recognises(self, documents: "Documents") -> bool:
        """Whether the documents of a file bear marks that no other format has."""

    def read(self, documents: "Documents", *, at: str | None = None) -> "Iterator[Conversation]":
        """The conversations in a file, one that others branch off from before them.

        `at` is the key of the messages, dotted if nested. Raises InvalidConversation naming the place.
        """

    def draft(self, entry: "FileEntry") -> "list[CardDraft]":
        """The cards that hold `entry`, in order; their ids are the importer's business.

        Raises InvalidConversation naming the entry's place for what is none of this format.
        """

    def keep_original(self, changed: "CardDraft", original: "CardDraft", /) -> "CardDraft":
        """`changed`, keeping what export gives back for `original`."""

    def export(self, cards: "Iterable[Card]") -> Iterator[str]:
        """The text of a file that holds what `cards` hold, in pieces: what was imported as it was.

        May iterate over `cards` more than once.
        """


def format_names() -> tuple[str, ...]:
    """The names of all formats."""
    return (*PROVIDERS, *OTHERS)


@cache
def format_named(name: str) -> Format:
    """The format of this name, one of `format_names`."""
    if name in OTHERS:
        module: Format = import_module(OTHERS[name])
        return module
    from cardbox_cli.conversations.messages import MessagesFormat

    return MessagesFormat(provider_named(name))


def choose_format(name: str | None, documents: "Documents") -> Format:
    """The format of this name; for None the one whose marks the file bears.

    The formats that are no provider's are asked first, then the providers' in their order; messages without
    a mark count as the default provider's.
    """
    if name is not None:
        return format_named(name)
    asked = map(format_named, (*OTHERS, *PROVIDERS))
    return next((each for each in asked if each.recognises(documents)), format_named(DEFAULT))
