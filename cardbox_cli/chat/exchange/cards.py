"""The records of the on-disk layout as cards, and cards as such records.

What the layout knows and a card has no place for is kept in the card's metadata, so that a file comes out as
it went in. Cards of cbx have none of that, and are spelled from what they are. Pure.
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

from msgspec import UNSET

from cardbox_cli.chat.layout.names import MOST_FILES
from cardbox_cli.chat.layout.records import Line, Message, Unfit, milliseconds
from cardbox_cli.limits import EARLIEST
from cardbox_cli.model.cards import IMPORTER, Card, CardDraft, card_text
from cardbox_cli.model.chats import ROLES, entry_draft, key_parts, said_at, told_of

# The key in the metadata of a card that was a line of a file.
LAYOUT = "layout"
# The number in place of that of a file that lines were moved to, for the one that grows.
GROWING = 0

# What a platform is called that nobody has named.
_SELF = "cbx"


def draft_of_line(line: Line, number: int | None, card_id: str) -> CardDraft:
    """The entry that a line of a transcript is. `number` is that of its file, None of the one that grows."""
    told = {
        "channel": line.channel,
        "chat_id": line.chat_id,
        "user_id": line.user_id,
        "message_id": line.message_id,
        "ts": line.ts,
        "meta": line.meta,
    }
    return entry_draft(
        line.chat_key,
        line.role,
        line.text,
        author_id=IMPORTER,
        card_id=card_id,
        told={name: value for name, value in told.items() if value is not UNSET},
        metadata={LAYOUT: {"file": number or GROWING, "extra": line.extra}},
    )


def line_of_card(chat_key: str, card: Card) -> Line:
    """The line of a transcript that an entry is."""
    told, parts = told_of(card), key_parts(chat_key)
    value = {
        "v": 1,
        "ts": _time_of(card),
        "channel": _text(told, "channel") or parts.channel or _SELF,
        "chatId": _text(told, "chat_id") or parts.chat_id or chat_key,
        "chatKey": chat_key,
        "userId": _text(told, "user_id"),
        "messageId": _text(told, "message_id"),
        "role": card.role if card.role in ROLES else "system",
        "text": card_text(card.content),
        "meta": _mapping(told, "meta"),
    }
    given = {key: each for key, each in value.items() if each is not None}
    with suppress(Unfit):  # somebody else has changed what was kept
        return Line.of({**(_mapping(_layout_of(card), "extra") or {}), **given})
    return Line.of(given)


def file_of_card(card: Card) -> int | None:
    """The number of the file that an entry was in, `GROWING` for the one that grows; None of one of cbx."""
    number = _layout_of(card).get("file")
    is_one = isinstance(number, int) and not isinstance(number, bool) and GROWING <= number <= MOST_FILES
    return number if is_one else None


def draft_of_message(chat_key: str, message: Message, card_id: str) -> CardDraft:
    """The message of a context that a record is."""
    key = "text" if message.content is UNSET else "content"
    rest = {name: value for name, value in message.as_json().items() if name not in ("role", key)}
    return entry_draft(
        chat_key,
        message.role,
        message.said,
        author_id=IMPORTER,
        card_id=card_id,
        told={} if message.ts is UNSET else {"ts": message.ts},
        metadata={LAYOUT: {"key": key, "rest": rest}},
    )


def message_of_card(card: Card) -> Message:
    """The record that a message of a context is."""
    layout = _layout_of(card)
    key = "text" if layout.get("key") == "text" else "content"
    said = {"role": "assistant" if card.role == "assistant" else "user", key: card_text(card.content)}
    rest = _mapping(layout, "rest")
    if rest is not None:
        with suppress(Unfit):  # somebody else has changed what was kept
            return Message.of({**rest, **said})
    meta = _mapping(told_of(card), "meta")
    rest = {"v": 1, "ts": _time_of(card), **({} if meta is None else {"meta": meta})}
    return Message.of({**rest, **said})


def _time_of(card: Card) -> int:
    """When it was said, in milliseconds since 1970."""
    return milliseconds(said_at(card) or EARLIEST + timedelta(days=1))


def _layout_of(card: Card) -> Mapping[str, Any]:
    return _mapping(card.metadata, LAYOUT) or {}


def _mapping(value: Mapping[str, Any], key: str) -> dict[str, Any] | None:
    found = value.get(key)
    return found if isinstance(found, dict) else None


def _text(told: Mapping[str, Any], key: str) -> str | None:
    value = told.get(key)
    return value if isinstance(value, str) else None if value is None else str(value)
