"""The transcript of a chat: what users wrote and what was sent to them, append-only.

Decides which entries are answered, and to which run a reply belongs. `runs/` decides what a model sees.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from cardbox_cli.errors import InvalidInput
from cardbox_cli.model.cards import card_text
from cardbox_cli.model.chats import Chat, ChatFence, Entry, check_key, entry_draft, entry_id
from cardbox_cli.store.chats import ChatStores

# The number of last entries that are searched for unanswered messages.
_MAX_UNANSWERED = 1000


class AppendedEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An appended entry. If it was delivered before, `is_new` is False and `position` is None.

    `run_id` is the running run. It will read the message of the user, or it has sent the reply.
    """

    chat_key: str
    card_id: str
    position: int | None
    role: str
    is_new: bool
    run_id: str | None


def send(
    stores: ChatStores,
    chat_key: str,
    text: str,
    *,
    platform_metadata: Mapping[str, Any] = {},
    turn: Mapping[str, str] = {},
) -> AppendedEntry:
    """Append a user's message. A running run reads the message before its next step.

    `turn` is the metadata of the turn, or the run, whose command sends it.
    """
    with stores.transaction():
        return _append(stores, chat_key, "user", text, platform_metadata, turn, None)


def correct(
    stores: ChatStores,
    chat_key: str,
    text: str,
    *,
    platform_metadata: Mapping[str, Any] = {},
    turn: Mapping[str, str] = {},
) -> AppendedEntry:
    """Append a user's message to an existing chat, like `send`. Raises NotFound for an unknown chat."""
    with stores.transaction():
        stores.chats.get(chat_key)
        return send(stores, chat_key, text, platform_metadata=platform_metadata, turn=turn)


def reply(
    stores: ChatStores,
    chat_key: str,
    text: str,
    *,
    platform_metadata: Mapping[str, Any] = {},
    turn: Mapping[str, str] = {},
    fence: ChatFence | None = None,
) -> AppendedEntry:
    """Append a reply that was sent to the user.

    With the `fence` of a run, it is that run's reply. Without one, and if no run is running, it answers all
    messages so far. Raises StaleEpoch if the run has lost the chat.
    """
    with stores.transaction():
        return _append(stores, chat_key, "assistant", text, platform_metadata, turn, fence)


def _append(
    stores: ChatStores,
    chat_key: str,
    role: Literal["user", "assistant"],
    text: str,
    platform_metadata: Mapping[str, Any],
    turn: Mapping[str, str],
    fence: ChatFence | None,
) -> AppendedEntry:
    check_key(chat_key)
    if not text.strip():
        raise InvalidInput("the message is blank", hint="pass a text")
    chat = stores.chats.lock_or_create(chat_key) if fence is None else stores.chats.hold(fence)
    message_id = platform_metadata.get("message_id")
    draft = entry_draft(
        chat_key,
        role,
        text,
        platform_metadata=platform_metadata,
        card_id=None if message_id is None else entry_id(stores.project_id, chat_key, role, str(message_id)),
        metadata={**turn, **({} if fence is None else {"agent_turn_id": fence.run_id})},
    )
    now = stores.database.now()
    # A platform's message that was stored before with the same text is not stored again.
    stored = [] if message_id is None else stores.cards.get_many([draft.card_id]).cards
    is_stored = any(card_text(card.content) == card_text(draft.content) for card in stored)
    appended = chat if is_stored else stores.chats.append(chat, [draft])
    is_new = appended.entries > chat.entries
    if is_new:
        if role == "assistant" and fence is None and not chat.is_busy(now):  # it answers all messages
            appended = msgspec.structs.replace(appended, answered=appended.entries)
        stores.chats.write(appended, now)
        if fence is not None:
            run = stores.runs.get(fence.chat_key, fence.run_id)
            replies = [*run.reply_card_ids, draft.card_id]
            stores.runs.write(msgspec.structs.replace(run, reply_card_ids=replies))
    return AppendedEntry(
        chat_key=chat_key,
        card_id=draft.card_id,
        position=chat.entries if is_new else None,
        role=role,
        is_new=is_new,
        run_id=chat.run_id if chat.is_busy(now) else None,
    )


def unanswered_messages(stores: ChatStores, chat: Chat, start: int) -> list[Entry]:
    """Return the users' messages from position `start` on, in order, out of the last 1,000 entries."""
    first = max(start, chat.entries - _MAX_UNANSWERED)
    return [entry for entry in stores.chats.entries(chat, first) if entry.role == "user"]


def window_entries(stores: ChatStores, chat: Chat, before: int) -> list[Entry]:
    """Return the entries that a run without a context sees.

    These are the last ones before position `before`, and none from before the latest `new` or `clear`.
    """
    first = max(chat.window_start, before - stores.settings.chat_window)
    return stores.chats.entries(chat, first, before)
