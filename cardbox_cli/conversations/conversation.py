"""A conversation on its way from a file to a box, and what every format writes alike."""

from typing import Any

import msgspec

from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import CardDraft, draft_card
from cardbox_cli.model.content import Content

AUTHOR = "cbx.import"


class Entry(msgspec.Struct, frozen=True):
    """What a format writes at a time, such as a message: its JSON value.

    `position` tells it from the other entries of its conversation, `place` is for error messages.
    """

    position: str
    value: Any
    place: str


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation as it stands in a file: its entries in order, in the format of that name.

    `own_id` is the id that the file gives it, `parent_id` that of the conversation it branched off from.
    """

    entries: list[Entry]
    own_id: str | None
    title: str | None
    format: str
    parent_id: str | None = None


def imported_card(card_type: str, content: Content | str, **parts: Any) -> CardDraft:
    """A draft by the importer; its id is a placeholder until its conversation is known."""
    return draft_card(card_type, content, author_id=AUTHOR, card_id="?", **parts)


def file_text(value: Any) -> str:
    """A JSON file's text, indented."""
    return msgspec.json.format(exact_json.encode(value).decode(), indent=2)
