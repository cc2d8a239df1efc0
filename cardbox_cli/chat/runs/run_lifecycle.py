"""The lifecycle of a run on its chat's head: it claims the chat, reads new messages, and ends.

Each transition locks the head and is a compare-and-set on the run and its epoch. At the end, the user's
messages and the reply join the active context together or not at all. The beginning of a run ends a previous
run whose lease has expired.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from cardbox_cli.chat.contexts import append_round
from cardbox_cli.chat.runs.run_requests import (
    AGENT,
    context_parts,
    create_box,
    create_corrected_message,
    profile_card,
    reset_profile_card,
    select_messages,
)
from cardbox_cli.chat.transcript import unanswered_messages
from cardbox_cli.errors import CbxError, ChatBusy
from cardbox_cli.model.cards import card_text
from cardbox_cli.model.chats import Chat, ChatFence, ChatRun, Entry, RunStatus, entry_draft
from cardbox_cli.model.execution.turns import COMPLETED, FAILED, new_id
from cardbox_cli.process_identity import is_dead
from cardbox_cli.store.chats import ChatStores

LOST = "its lease expired"


def begin_run(
    stores: ChatStores, chat_key: str, *, owner: str, profile: Mapping[str, Any] | None = None
) -> ChatRun | None:
    """Begin a run that answers the newest unanswered message. Returns None if all messages are answered.

    Ends a run first whose lease has expired, or whose process has ended on this machine. Raises NotFound, and
    ChatBusy if another run has the chat.
    """
    with stores.transaction():
        chat = stores.chats.lock(chat_key)
        now = stores.database.now()
        if chat.is_busy(now) and not is_dead(chat.owner or ""):
            raise _busy(chat, now)
        head = chat if chat.run_id is None else _end_lost_run(stores, chat, chat.run_id, now)
        waiting = unanswered_messages(stores, head, head.answered)
        run = _new_run(stores, head, waiting, owner, profile, now) if waiting else None
        head = head if run is None else _claim(head, run, now + stores.settings.lease_time)
        if head is not chat:
            stores.chats.write(head, now)
        return run


def _busy(chat: Chat, now: datetime) -> ChatBusy:
    return ChatBusy(
        f"chat {chat.chat_key!r} is busy: {chat.holder(now)}",
        hint="wait for the run to end, or omit --no-wait",
        details={"chat_key": chat.chat_key, "run_id": chat.run_id, "owner": chat.owner},
    )


def _new_run(
    stores: ChatStores,
    chat: Chat,
    waiting: Sequence[Entry],
    owner: str,
    profile: Mapping[str, Any] | None,
    now: datetime,
) -> ChatRun:
    run_id = new_id("run")
    card_ids = select_messages(chat, waiting)
    profile_parts = [profile_card(chat.chat_key, run_id, profile)]
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
        profile_box_id=create_box(stores, profile_parts, f"what {run_id} is"),
        context_box_id=_context_box(stores, chat, run_id, waiting[-1].position, card_ids),
        output_box_id=create_box(stores, [], f"output of {run_id}"),
        started_at=now,
    )
    stores.runs.begin(run)
    return run


def _context_box(stores: ChatStores, chat: Chat, run_id: str, position: int, card_ids: Sequence[str]) -> str:
    return create_box(stores, context_parts(stores, chat, position, card_ids), f"context of {run_id}")


def _reset_profile(stores: ChatStores, run: ChatRun, chat: Chat) -> str:
    """Return the box of a run's profile that names the replaced context; the old box if its card is gone."""
    slot = next(iter(stores.boxes.slots(run.profile_box_id)), None)
    if slot is None or slot.card is None:
        return run.profile_box_id
    return create_box(stores, [reset_profile_card(slot.card, chat.reset_by)], f"what {run.run_id} is")


def _claim(chat: Chat, run: ChatRun, expires_at: datetime) -> Chat:
    return msgspec.structs.replace(
        chat, epoch=run.epoch, run_id=run.run_id, owner=run.owner, lease_expires_at=expires_at
    )


def update_run(stores: ChatStores, fence: ChatFence) -> ChatRun:
    """Update the run before its next step.

    New messages are appended to the last one that it answers as corrections. If the context was replaced, the
    run gets new boxes. Raises StaleEpoch.
    """
    with stores.transaction():
        chat = stores.chats.hold(fence)
        run = get_run(stores, fence)
        arrived = unanswered_messages(stores, chat, run.merged)
        if not arrived and run.version == chat.version:
            return run
        if run.version != chat.version:
            run = msgspec.structs.replace(
                run,
                version=chat.version,
                user_card_ids=run.user_card_ids[-1:],
                output_box_id=create_box(stores, [], f"output of {run.run_id}"),
                profile_box_id=_reset_profile(stores, run, chat),
            )
            box_id = _context_box(stores, chat, run.run_id, run.position, run.user_card_ids)
            run = msgspec.structs.replace(run, context_box_id=box_id)
        if arrived:
            card_id = create_corrected_message(stores, run, arrived)
            card_ids = [*stores.boxes.get(run.context_box_id).card_ids[:-1], card_id]
            run = msgspec.structs.replace(
                run,
                merged=chat.entries,
                user_card_ids=[*run.user_card_ids[:-1], card_id],
                context_box_id=create_box(stores, card_ids, f"context of {run.run_id}"),
            )
        stores.runs.write(run)
        return run


def get_run(stores: ChatStores, fence: ChatFence) -> ChatRun:
    """Return the run of a valid fence. Raises NotFound if its row was deleted."""
    return stores.runs.get(fence.chat_key, fence.run_id)


def end_run(
    stores: ChatStores,
    fence: ChatFence,
    status: RunStatus,
    *,
    answer: str | None = None,
    error_code: str | None = None,
    error: str | None = None,
) -> ChatRun:
    """End a run. If its command has sent no reply, `answer` is recorded as the reply. Raises StaleEpoch."""
    with stores.transaction():
        chat = stores.chats.hold(fence)
        now = stores.database.now()
        run = msgspec.structs.replace(
            get_run(stores, fence), status=status, error_code=error_code, error=error, ended_at=now
        )
        chat, run = _append_reply(stores, chat, run, answer, now)
        stores.chats.write(_release(chat), now)
        stores.runs.write(run)
        stores.runs.close_steps(run, COMPLETED if status == "success" else FAILED, error, now)
        return run


def _end_lost_run(stores: ChatStores, chat: Chat, run_id: str, now: datetime) -> Chat:
    """End a run whose lease has expired, if its row exists. Returns the head, which the caller writes."""
    run = stores.runs.find(chat.chat_key, run_id)
    if run is None:
        return _release(chat)
    run = msgspec.structs.replace(run, status="lost", error_code="lease_lost", error=LOST, ended_at=now)
    chat, run = _append_reply(stores, chat, run, None, now)
    stores.runs.write(run)
    stores.runs.close_steps(run, FAILED, LOST, now)
    return _release(chat)


def _release(chat: Chat) -> Chat:
    return msgspec.structs.replace(chat, run_id=None, owner=None, lease_expires_at=None)


def _append_reply(
    stores: ChatStores, chat: Chat, run: ChatRun, answer: str | None, now: datetime
) -> tuple[Chat, ChatRun]:
    """Append the reply of a run to the chat. Its messages stay unanswered if it failed without a reply."""
    if run.reply_card_ids:
        card_id = _reply_card(stores, run)
    elif answer is not None:
        draft = entry_draft(
            run.chat_key, "assistant", answer, author_id=AGENT, metadata={"agent_turn_id": run.run_id}
        )
        chat, card_id = stores.chats.append(chat, [draft]), draft.card_id
    else:
        answered = chat.answered if run.status != "success" else max(chat.answered, run.merged)
        return msgspec.structs.replace(chat, answered=answered), run
    chat = msgspec.structs.replace(chat, answered=max(chat.answered, run.merged))
    try:
        with stores.transaction():
            chat = append_round(stores, chat, [*run.user_card_ids, card_id], now)
    except CbxError as exc:
        return chat, msgspec.structs.replace(run, error=f"the context lacks the round: {exc.message}")
    return chat, msgspec.structs.replace(run, answer_card_id=card_id)


def _reply_card(stores: ChatStores, run: ChatRun) -> str:
    """Return the card of the replies that a run's command has sent; several are joined into one."""
    if len(run.reply_card_ids) == 1:
        return run.reply_card_ids[0]
    cards = stores.cards.get_many(run.reply_card_ids, include_deleted=True).cards
    draft = entry_draft(
        run.chat_key,
        "assistant",
        "\n".join(card_text(card.content) for card in cards),
        author_id=AGENT,
        metadata={"agent_turn_id": run.run_id, "joined": run.reply_card_ids},
    )
    stores.cards.add(draft)
    return draft.card_id
