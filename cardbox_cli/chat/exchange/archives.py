"""An archived context as the file of the layout that holds it, with its item of the index, and back.

What such a file says besides is kept with the archived context, so that it comes out as it went in. Pure.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import UNSET

from cardbox_cli.chat.exchange.cards import message_of_card
from cardbox_cli.chat.layout import records
from cardbox_cli.chat.layout.records import Item, Unfit, milliseconds
from cardbox_cli.model.cards import Card
from cardbox_cli.model.chats import Archive

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
