"""The life of a run on its chat's head: it takes the chat, takes in what comes meanwhile, and ends.

Each move holds the head, and is made by compare-and-set on the run and its epoch. At the end the user's
messages and the assistant's text join the active context, both or none; a run that was lost is ended by the
next one.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from cardbox_cli.chat.contexts import with_round
from cardbox_cli.chat.runs.run_requests import (
    AGENT,
    asked_of,
    context_parts,
    corrected_box,
    corrected_message,
    output_box,
    profile_card,
    written,
)
from cardbox_cli.chat.transcript import unanswered
from cardbox_cli.errors import CbxError, ChatBusy
from cardbox_cli.model.cards import card_text
from cardbox_cli.model.chats import Chat, ChatFence, ChatRun, Entry, RunStatus, entry_draft
from cardbox_cli.model.execution.turns import COMPLETED, FAILED, new_id
from cardbox_cli.store.chats import Room

LOST = "its lease expired"


def take(
    room: Room, chat_key: str, *, owner: str, profile: Mapping[str, Any] | None = None
) -> ChatRun | None:
    """Begin a run that answers the newest unanswered message of the chat; None where all are answered.

    A run whose lease has expired is ended first. Raises NotFound, and ChatBusy while another has the chat.
    """
    with room.transaction():
        chat = room.chats.lock(chat_key)
        now = room.database.now()
        if chat.is_busy(now):
            raise _busy(chat, now)
        settled = chat if chat.run_id is None else _settled(room, chat, chat.run_id, now)
        waiting = unanswered(room, settled, settled.answered)
        run = _begun(room, settled, waiting, owner, profile, now) if waiting else None
        taken = settled if run is None else _taken(settled, run, now + room.settings.lease_time)
        if taken is not chat:
            room.chats.write(taken, now)
        return run


def _busy(chat: Chat, now: datetime) -> ChatBusy:
    return ChatBusy(
        f"chat {chat.chat_key!r} is busy: {chat.holder(now)}",
        hint="without --no-wait the next run waits for it, and takes over once its lease has ended",
        details={"chat_key": chat.chat_key, "run_id": chat.run_id, "owner": chat.owner},
    )


def _begun(
    room: Room,
    chat: Chat,
    waiting: Sequence[Entry],
    owner: str,
    profile: Mapping[str, Any] | None,
    now: datetime,
) -> ChatRun:
    run_id = new_id("run")
    card_ids = asked_of(chat, waiting)
    run = ChatRun(
        run_id=run_id,
        chat_key=chat.chat_key,
        epoch=chat.epoch + 1,
        owner=owner,
        status="running",
        position=waiting[-1].position,
        merged=chat.entries,
        version=chat.version,
        user_card_ids=card_ids,
        profile_box_id=written(room, [profile_card(chat.chat_key, run_id, profile)], f"what {run_id} is"),
        context_box_id=_context_box(room, chat, run_id, waiting[-1].position, card_ids),
        output_box_id=output_box(room, run_id),
        started_at=now,
    )
    room.runs.begin(run)
    return run


def _context_box(room: Room, chat: Chat, run_id: str, position: int, asked: Sequence[str]) -> str:
    return written(room, context_parts(room, chat, position, asked), f"context of {run_id}")


def _taken(chat: Chat, run: ChatRun, expires_at: datetime) -> Chat:
    return msgspec.structs.replace(
        chat, epoch=run.epoch, run_id=run.run_id, owner=run.owner, lease_expires_at=expires_at
    )


def take_in(room: Room, fence: ChatFence) -> ChatRun:
    """The run before its next step: messages that came are appended to the last one that it answers, and
    where somebody replaced the context its boxes are made anew. Raises StaleEpoch.
    """
    with room.transaction():
        chat = room.chats.hold(fence)
        run = run_at(room, fence)
        came = unanswered(room, chat, run.merged)
        if not came and run.version == chat.version:
            return run
        if run.version != chat.version:
            run = msgspec.structs.replace(
                run,
                version=chat.version,
                user_card_ids=run.user_card_ids[-1:],
                output_box_id=output_box(room, run.run_id),
            )
            box_id = _context_box(room, chat, run.run_id, run.position, run.user_card_ids)
            run = msgspec.structs.replace(run, context_box_id=box_id)
        if came:
            run = _corrected(room, chat, run, came)
        room.runs.write(run)
        return run


def _corrected(room: Room, chat: Chat, run: ChatRun, came: Sequence[Entry]) -> ChatRun:
    card_id = corrected_message(room, run, came).card_id
    return msgspec.structs.replace(
        run,
        merged=chat.entries,
        user_card_ids=[*run.user_card_ids[:-1], card_id],
        context_box_id=corrected_box(room, run, card_id),
    )


def run_at(room: Room, fence: ChatFence) -> ChatRun:
    """The run of a fence that holds. Raises NotFound where somebody took its row away."""
    return room.runs.get(fence.chat_key, fence.run_id)


def end(
    room: Room,
    fence: ChatFence,
    status: RunStatus,
    *,
    answer: str | None = None,
    error_code: str | None = None,
    error: str | None = None,
) -> ChatRun:
    """End a run. What its command has sent is what it said; else `answer` is entered as the reply.

    Raises StaleEpoch.
    """
    with room.transaction():
        chat = room.chats.hold(fence)
        now = room.database.now()
        run = msgspec.structs.replace(
            run_at(room, fence), status=status, error_code=error_code, error=error, ended_at=now
        )
        chat, run = _said(room, chat, run, answer, now)
        room.chats.write(_freed(chat), now)
        room.runs.write(run)
        room.runs.close_steps(run, COMPLETED if status == "success" else FAILED, error, now)
        return run


def _settled(room: Room, chat: Chat, run_id: str, now: datetime) -> Chat:
    """End the run of a chat whose lease has expired, if it is there; the head, to be written."""
    found = room.runs.find(chat.chat_key, run_id)
    if found is None:
        return _freed(chat)
    run = msgspec.structs.replace(found, status="lost", error_code="lease_lost", error=LOST, ended_at=now)
    chat, run = _said(room, chat, run, None, now)
    room.runs.write(run)
    room.runs.close_steps(run, FAILED, LOST, now)
    return _freed(chat)


def _freed(chat: Chat) -> Chat:
    return msgspec.structs.replace(chat, run_id=None, owner=None, lease_expires_at=None)


def _said(room: Room, chat: Chat, run: ChatRun, answer: str | None, now: datetime) -> tuple[Chat, ChatRun]:
    """The chat with what a run has said, and the run. One that failed and said nothing answers nothing."""
    if run.reply_card_ids:
        card_id = _joined(room, run)
    elif answer is not None:
        draft = entry_draft(
            run.chat_key, "assistant", answer, author_id=AGENT, metadata={"agent_turn_id": run.run_id}
        )
        chat, card_id = room.chats.append(chat, [draft]), draft.card_id
    else:
        done = chat.answered if run.status != "success" else max(chat.answered, run.merged)
        return msgspec.structs.replace(chat, answered=done), run
    chat = msgspec.structs.replace(chat, answered=max(chat.answered, run.merged))
    try:
        with room.transaction():
            chat = with_round(room, chat, [*run.user_card_ids, card_id], now)
    except CbxError as exc:
        return chat, msgspec.structs.replace(run, error=f"the round is not in the context: {exc.message}")
    return chat, msgspec.structs.replace(run, answer_card_id=card_id)


def _joined(room: Room, run: ChatRun) -> str:
    """The card of all that a run's command has sent: its one reply, or several as one."""
    if len(run.reply_card_ids) == 1:
        return run.reply_card_ids[0]
    cards = room.cards.get_many(run.reply_card_ids, include_deleted=True).cards
    draft = entry_draft(
        run.chat_key,
        "assistant",
        "\n".join(card_text(card.content) for card in cards),
        author_id=AGENT,
        metadata={"agent_turn_id": run.run_id, "joined": run.reply_card_ids},
    )
    room.cards.add(draft)
    return draft.card_id
