"""Conversions between the records of the `.ship` layout and cards. Pure.

A card's metadata preserves the fields that a card has no place for, so export gives back the imported file.
Records of other cards are built from the cards alone.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec
from msgspec import UNSET

from cardbox_cli.chat.files.records import (
    MAX_FILES,
    MESSAGES,
    TURNS,
    ArchiveRecord,
    IndexItem,
    InvalidRecord,
    MessageRecord,
    TranscriptLine,
    milliseconds,
)
from cardbox_cli.context.parts import dict_at
from cardbox_cli.limits import EARLIEST
from cardbox_cli.model.cards import IMPORTER, Card, CardDraft, card_text
from cardbox_cli.model.chats import (
    ROLES,
    Archive,
    chat_metadata,
    entry_draft,
    key_parts,
    message_time,
)

# The metadata key of the preserved fields.
LAYOUT = "layout"
# The file number of the transcript file that grows.
GROWING = 0

# The channel of an entry without one.
_DEFAULT_CHANNEL = "cbx"


def draft_line(line: TranscriptLine, number: int | None, card_id: str) -> CardDraft:
    """Return the entry for a line of a transcript. `number` is its file's; None means the file that grows."""
    metadata = {
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
        platform_metadata={name: value for name, value in metadata.items() if value is not UNSET},
        metadata={LAYOUT: {"file": number or GROWING, "extra": line.extra}},
    )


def line_of_card(chat_key: str, card: Card) -> TranscriptLine:
    metadata, parts = chat_metadata(card), key_parts(chat_key)
    meta = {**(_VIA_TOOL if _is_sent_by_command(card) else {}), **(_mapping(metadata, "meta") or {})}
    value = {
        "v": 1,
        "ts": _message_milliseconds(card),
        "channel": _text(metadata, "channel") or parts.channel or _DEFAULT_CHANNEL,
        "chatId": _text(metadata, "chat_id") or parts.chat_id or chat_key,
        "chatKey": chat_key,
        "userId": _text(metadata, "user_id"),
        "messageId": _text(metadata, "message_id"),
        "role": card.role if card.role in ROLES else "system",
        "text": card_text(card.content),
        "meta": meta or _mapping(metadata, "meta"),
    }
    fields = {key: each for key, each in value.items() if each is not None}
    with suppress(InvalidRecord):  # the preserved fields were edited
        return TranscriptLine.parse({**dict_at(dict_at(card.metadata, LAYOUT), "extra"), **fields})
    return TranscriptLine.parse(fields)


# The `meta` of a reply that a tool of the agent has sent.
_VIA_TOOL = {"via": "tool"}


def _is_sent_by_command(card: Card) -> bool:
    """Return whether the command of a run or turn has sent this reply, for example by `cbx chat reply`."""
    # The final answer of a run has no step.
    return card.role == "assistant" and "step_id" in card.metadata


def file_of_card(card: Card) -> int | None:
    """Return the number of the file that an entry was imported from, None if it was not imported."""
    number = dict_at(card.metadata, LAYOUT).get("file")
    is_one = isinstance(number, int) and not isinstance(number, bool) and GROWING <= number <= MAX_FILES
    return number if is_one else None


def draft_message(chat_key: str, message: MessageRecord, card_id: str) -> CardDraft:
    key = "text" if message.content is UNSET else "content"
    rest = {name: value for name, value in message.encode().items() if name not in ("role", key)}
    return entry_draft(
        chat_key,
        message.role,
        message.body,
        author_id=IMPORTER,
        card_id=card_id,
        platform_metadata={} if message.ts is UNSET else {"ts": message.ts},
        metadata={LAYOUT: {"key": key, "rest": rest}},
    )


def message_of_card(card: Card) -> MessageRecord:
    layout = dict_at(card.metadata, LAYOUT)
    key = "text" if layout.get("key") == "text" else "content"
    own = {"role": "assistant" if card.role == "assistant" else "user", key: card_text(card.content)}
    rest = _mapping(layout, "rest")
    if rest is not None:
        with suppress(InvalidRecord):  # the preserved fields were edited
            return MessageRecord.parse({**rest, **own})
    meta = _mapping(chat_metadata(card), "meta")
    rest = {"v": 1, "ts": _message_milliseconds(card), **({} if meta is None else {"meta": meta})}
    return MessageRecord.parse({**rest, **own})


def _message_milliseconds(card: Card) -> int:
    return milliseconds(message_time(card) or EARLIEST + timedelta(days=1))


def _mapping(value: Mapping[str, Any], key: str) -> dict[str, Any] | None:
    inner = value.get(key)
    return inner if isinstance(inner, dict) else None


def _text(metadata: Mapping[str, Any], key: str) -> str | None:
    value = metadata.get(key)
    return value if isinstance(value, str) else None if value is None else str(value)


# --- archived contexts and their index entries

# The fields of an archive's file that are columns. Its row preserves all others as `layout`.
_COLUMNS = ("v", "chatKey", "contextId", "title", "reason")

# The lengths of `searchText` and `searchTextPreview`, by which other programs find an archive.
_MAX_SEARCH_TEXT = 10_000
_MAX_PREVIEW = 400
_MAX_INDEX = 2**31 - 1


def layout_of(
    record: ArchiveRecord, item: IndexItem | None, index_fields: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the preserved fields of an archive's file, of its index entry, and of the index itself."""
    columns = (*_COLUMNS, record.list_key)
    rest = {key: value for key, value in record.encode().items() if key not in columns}
    described = None if item is None else item.encode()
    older = {} if record.list_key == MESSAGES else {"list_key": record.list_key}
    return {"file": rest, "item": described, "beside": dict(index_fields), **older}


def restore_checkpoint(archive: Archive, record: ArchiveRecord) -> Archive:
    """Return the archived context with its file's checkpoint, if the file has one."""
    checkpoint = {} if record.checkpoint is UNSET else record.checkpoint
    index = checkpoint.get("lastAssistantIndex", checkpoint.get("lastAssistantTurnIndex"))
    preview = checkpoint.get("lastAssistantPreview", checkpoint.get("lastAssistantTextPreview"))
    is_index = isinstance(index, int) and 0 <= index <= _MAX_INDEX
    return msgspec.structs.replace(
        archive,
        checkpoint_index=index if is_index else archive.checkpoint_index,
        checkpoint_preview=preview if isinstance(preview, str) else archive.checkpoint_preview,
    )


def record_of(archive: Archive, cards: Sequence[Card], layout: Mapping[str, Any] | None) -> ArchiveRecord:
    messages = [message_of_card(card) for card in cards]
    list_key = TURNS if (layout or {}).get("list_key") == TURNS else MESSAGES
    texts = {"title": archive.title, "reason": archive.reason}
    columns = {
        "v": 1,
        "chatKey": archive.chat_key,
        "contextId": archive.context_id,
        **{key: text for key, text in texts.items() if text is not None},
        list_key: [message.encode() for message in messages],
    }
    preserved = None if layout is None else layout.get("file", {})
    if isinstance(preserved, dict):
        with suppress(InvalidRecord):  # the preserved fields were edited
            return _record({**preserved, **columns})
    return _record({**_further_fields(archive, messages), **columns})


def _record(value: dict[str, Any]) -> ArchiveRecord:
    record, refused = ArchiveRecord.parse_valid(value)
    if refused:
        raise InvalidRecord(f"message {refused[0][0]}: {refused[0][1]}")
    return record


def _further_fields(archive: Archive, messages: Sequence[MessageRecord]) -> dict[str, Any]:
    """Return the further fields of an archived context that was not imported."""
    rest: dict[str, Any] = {
        "createdAt": milliseconds(archive.created_at),
        "archivedAt": milliseconds(archive.archived_at),
    }
    if archive.checkpoint_index is not None:
        rest["checkpoint"] = {
            "lastAssistantIndex": archive.checkpoint_index,
            "lastAssistantPreview": archive.checkpoint_preview or "",
        }
    texts = (archive.title, archive.reason, *(message.body for message in messages))
    return {**rest, "searchText": "\n".join(text for text in texts if text)[:_MAX_SEARCH_TEXT]}


def item_of(record: ArchiveRecord, layout: Mapping[str, Any] | None) -> IndexItem:
    """Return the index entry of an archived context: the imported one, if there was one."""
    described = None if layout is None else layout.get("item")
    if described is not None:
        with suppress(InvalidRecord):
            return IndexItem.parse(described)
    preview = UNSET if record.search_text is UNSET else record.search_text[:_MAX_PREVIEW]
    return IndexItem(
        v=1,
        context_id=record.context_id,
        title=record.title,
        created_at=record.created_at,
        archived_at=record.archived_at,
        messages=len(record.messages),
        search_text_preview=preview,
    )
