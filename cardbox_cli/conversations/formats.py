"""The formats of conversation files by name, what each of them offers, and how a file tells its own."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from cardbox_cli.conversations import anthropic, claude_code, openai
from cardbox_cli.conversations.conversation import Conversation, Entry
from cardbox_cli.conversations.json_documents import Documents
from cardbox_cli.model.cards import Card, CardDraft


class Format(Protocol):
    """What the module of a format offers."""

    NAME: str
    # What its conversations' keys begin with, so that one file taken as two formats makes two boxes.
    KEYSPACE: tuple[str, ...]

    def recognises(self, documents: Documents) -> bool:
        """Whether the documents of a file bear marks that no other format has."""

    def read(self, documents: Documents, *, at: str | None = None) -> Iterator[Conversation]:
        """The conversations in a file, one that others branch off from before them.

        `at` is the key of the messages, dotted if nested. Raises InvalidConversation naming the place.
        """

    def draft(self, entry: Entry) -> list[CardDraft]:
        """The cards that hold `entry`, in order; their ids are the importer's business.

        Raises InvalidConversation naming the entry's place for what is none of this format.
        """

    def keep_original(self, changed: CardDraft, original: CardDraft) -> CardDraft:
        """`changed`, keeping what export gives back for `original`."""

    def export(self, cards: Iterable[Card]) -> Iterator[str]:
        """The text of a file that says what `cards` say, in pieces: what was imported as it was.

        May iterate over `cards` more than once.
        """


FORMATS: dict[str, Format] = {module.NAME: module for module in (openai, anthropic, claude_code)}


def choose_format(name: str | None, documents: Documents) -> Format:
    """The format of this name; for None the one whose marks the file bears.

    A file of objects with a `type`, one of them with a sessionId or a leafUuid, is a Claude Code session.
    Else OpenAI's marks decide (roles tool, function, developer; tool_calls, function_call; its content
    parts), then Anthropic's (`system` or tools with an input_schema beside the messages; its content
    blocks). Messages without a mark read the same in both, and count as OpenAI's.
    """
    if name is not None:
        return FORMATS[name]
    asked = (FORMATS[name] for name in ("claude-code", "openai", "anthropic"))
    return next((each for each in asked if each.recognises(documents)), FORMATS["openai"])
