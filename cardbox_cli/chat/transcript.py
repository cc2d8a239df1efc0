"""The transcript of a chat: what users said and what was really sent, append-only.

Owns what an entry means for the chat: whether it is answered, and to which run a reply belongs. What a model
sees of a transcript is `runs/`' affair.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from cardbox_cli.errors import InvalidInput
from cardbox_cli.model.cards import CardDraft, card_text
from cardbox_cli.model.chats import Chat, ChatFence, Entry, check_key, entry_draft, entry_id
from cardbox_cli.store.chats import Room

# How many entries are looked at for messages that nobody has answered.
_UNANSWERED = 1000

# No turn, and no run of a chat: a person or a platform.
_NOBODYS: Mapping[str, str] = {}


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """An entry as it was appended. `is_new` is False where it was delivered before; its place then is None.

    `run_id` is that of the run that goes on: which takes a user's message in, or which has sent a reply.
    """

    chat_key: str
    card_id: str
    position: int | None
    role: str
    is_new: bool
    run_id: str | None


def send(
    room: Room,
    chat_key: str,
    text: str,
    *,
    told: Mapping[str, Any] | None = None,
    turn: Mapping[str, str] = _NOBODYS,
) -> Said:
    """A user's message has come: append it. A run that goes on takes it in between two of its steps.

    `turn` is the metadata that names the turn, or the run, whose command brings it.
    """
    with room.transaction():
        return _append(room, chat_key, "user", text, told or {}, turn, None)


def correct(
    room: Room,
    chat_key: str,
    text: str,
    *,
    told: Mapping[str, Any] | None = None,
    turn: Mapping[str, str] = _NOBODYS,
) -> Said:
    """As `send`, in a chat that there is: a key that nobody has used corrects nothing. Raises NotFound."""
    with room.transaction():
        room.chats.get(chat_key)
        return _append(room, chat_key, "user", text, told or {}, turn, None)


def reply(
    room: Room,
    chat_key: str,
    text: str,
    *,
    told: Mapping[str, Any] | None = None,
    turn: Mapping[str, str] = _NOBODYS,
    fence: ChatFence | None = None,
) -> Said:
    """Something was sent: append it. With the `fence` of a run it is what that run says in this round; else,
    where no run goes on, whatever users have said is answered by it.

    Raises StaleEpoch where the run does not have the chat any more.
    """
    with room.transaction():
        return _append(room, chat_key, "assistant", text, told or {}, turn, fence)


def _append(
    room: Room,
    chat_key: str,
    role: Literal["user", "assistant"],
    text: str,
    told: Mapping[str, Any],
    turn: Mapping[str, str],
    fence: ChatFence | None,
) -> Said:
    check_key(chat_key)
    if not text.strip():
        raise InvalidInput("the message is blank", hint="say something")
    chat = room.chats.lock_or_make(chat_key) if fence is None else room.chats.hold(fence)
    message_id = told.get("message_id")
    draft = entry_draft(
        chat_key,
        role,
        text,
        told=told,
        card_id=None if message_id is None else entry_id(room.project_id, chat_key, role, str(message_id)),
        metadata={**turn, **({} if fence is None else {"agent_turn_id": fence.run_id})},
    )
    now = room.database.now()
    known = message_id is not None and _is_stored(room, draft)
    appended = chat if known else room.chats.append(chat, [draft])
    is_new = appended.entries > chat.entries
    if is_new:
        room.chats.write(_after(appended, role, fence, is_busy=chat.is_busy(now)), now)
        if fence is not None:
            _note_reply(room, fence, draft.card_id)
    return Said(
        chat_key=chat_key,
        card_id=draft.card_id,
        position=chat.entries if is_new else None,
        role=role,
        is_new=is_new,
        run_id=chat.run_id if chat.is_busy(now) else None,
    )


def _is_stored(room: Room, draft: CardDraft) -> bool:
    """Whether a platform's message was stored before in these words, whoever brought it."""
    found = room.cards.get_many([draft.card_id]).cards
    return any(card_text(card.content) == card_text(draft.content) for card in found)


def _after(chat: Chat, role: str, fence: ChatFence | None, *, is_busy: bool) -> Chat:
    """The chat once an entry was appended: an answer that no run gives answers all there is."""
    if role == "assistant" and fence is None and not is_busy:
        return msgspec.structs.replace(chat, answered=chat.entries)
    return chat


def _note_reply(room: Room, fence: ChatFence, card_id: str) -> None:
    run = room.runs.get(fence.chat_key, fence.run_id)
    room.runs.write(msgspec.structs.replace(run, reply_card_ids=[*run.reply_card_ids, card_id]))


def unanswered(room: Room, chat: Chat, start: int) -> list[Entry]:
    """The messages of users from a place on, in order; of very many the last."""
    first = max(start, chat.entries - _UNANSWERED)
    return [entry for entry in room.chats.entries(chat, first) if entry.role == "user"]


def last_entries(room: Room, chat: Chat, count: int | None) -> list[Entry]:
    """The last so many entries, or all, in order."""
    return room.chats.entries(chat, 0 if count is None else chat.entries - count)


def window(room: Room, chat: Chat, before: int) -> list[Entry]:
    """What a run without a context sees of the transcript: its last entries before a place, and none from
    before the latest `new` or `clear`."""
    first = max(chat.window_start, before - room.settings.chat_window)
    return room.chats.entries(chat, first, before)
