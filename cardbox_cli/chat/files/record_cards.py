"""The records of the on-disk layout as cards, and cards as such records.

What the layout knows and a card has no place for is kept in the card's metadata, so that a file comes out as
it went in. Cards of cbx have none of that, and are spelled from what they are. Pure.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec
from msgspec import UNSET

from cardbox_cli.chat.files import records
from cardbox_cli.chat.files.records import MOST_FILES, Item, Line, Message, Unfit, milliseconds
from cardbox_cli.limits import EARLIEST
from cardbox_cli.model.cards import IMPORTER, Card, CardDraft, card_text
from cardbox_cli.model.chats import ROLES, Archive, entry_draft, key_parts, said_at, told_of

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


# An archived context as the file of the layout that holds it, with its item of the index, and back.
#
# What such a file says besides is kept with the archived context, so that it comes out as it went in. Pure.


# What the columns of an archived context say: the rest of its file is the layout.
_COLUMNS = ("v", "chatKey", "contextId", "title", "reason", "messages")

# The text by which programs of the layout find it: of so many characters at most, and its beginning.
_SEARCHED = 10_000
_PREVIEW = 400
_LARGEST_INDEX = 2**31 - 1


def layout_of(record: records.Archive, item: Item | None, beside: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of a file, of its item in the index and of what stands beside that."""
    rest = {key: value for key, value in record.as_json().items() if key not in _COLUMNS}
    return {"file": rest, "item": None if item is None else item.as_json(), "beside": dict(beside)}


def with_checkpoint(archive: Archive, record: records.Archive) -> Archive:
    """The archived context with the checkpoint that its file names, if it names one."""
    named = {} if record.checkpoint is UNSET else record.checkpoint
    index, preview = named.get("lastAssistantIndex"), named.get("lastAssistantPreview")
    return msgspec.structs.replace(
        archive,
        checkpoint_index=index if _is_index(index) else archive.checkpoint_index,
        checkpoint_preview=preview if isinstance(preview, str) else archive.checkpoint_preview,
    )


def _is_index(value: object) -> bool:
    return isinstance(value, int) and 0 <= value <= _LARGEST_INDEX


def record_of(archive: Archive, cards: Sequence[Card], layout: Mapping[str, Any] | None) -> records.Archive:
    """The file that holds an archived context."""
    messages = [message_of_card(card) for card in cards]
    said = {"title": archive.title, "reason": archive.reason}
    columns = {
        "v": 1,
        "chatKey": archive.chat_key,
        "contextId": archive.context_id,
        **{key: text for key, text in said.items() if text is not None},
        "messages": [message.as_json() for message in messages],
    }
    kept = None if layout is None else layout.get("file", {})
    if isinstance(kept, dict):
        with suppress(Unfit):  # somebody else has changed what was kept
            return _record({**kept, **columns})
    return _record({**_rest_of(archive, messages), **columns})


def _record(value: dict[str, Any]) -> records.Archive:
    record, refused = records.Archive.of(value)
    if refused:
        raise Unfit(f"message {refused[0][0]}: {refused[0][1]}")
    return record


def _rest_of(archive: Archive, messages: Sequence[records.Message]) -> dict[str, Any]:
    """What the file of an archived context of cbx says besides."""
    rest: dict[str, Any] = {
        "createdAt": milliseconds(archive.created_at),
        "archivedAt": milliseconds(archive.archived_at),
    }
    if archive.checkpoint_index is not None:
        rest["checkpoint"] = {
            "lastAssistantIndex": archive.checkpoint_index,
            "lastAssistantPreview": archive.checkpoint_preview or "",
        }
    texts = (archive.title, archive.reason, *(message.said for message in messages))
    return {**rest, "searchText": "\n".join(text for text in texts if text)[:_SEARCHED]}


def item_of(record: records.Archive, layout: Mapping[str, Any] | None) -> Item:
    """What the index says of an archived context: what it said when it was imported, if it did."""
    described = None if layout is None else layout.get("item")
    if described is not None:
        with suppress(Unfit):
            return Item.of(described)
    preview = UNSET if record.search_text is UNSET else record.search_text[:_PREVIEW]
    return Item(
        v=1,
        context_id=record.context_id,
        title=record.title,
        created_at=record.created_at,
        archived_at=record.archived_at,
        turns=len(record.messages),
        search_text_preview=preview,
    )
