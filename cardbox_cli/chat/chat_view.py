"""The view of one chat: its active context, transcript and last runs, and what the next run would see."""

from datetime import datetime

import msgspec

from cardbox_cli.chat.contexts import context_slots
from cardbox_cli.chat.transcript import unanswered_messages
from cardbox_cli.model.cards import card_text
from cardbox_cli.model.chats import BOX_CARDS, Archive, Chat, ChatRun, Entry, ResetBy, message_time
from cardbox_cli.store.chats import ChatStores

_MAX_RUNS = 5


class ContextMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a context. `role` and `content` are empty if its card was deleted."""

    role: str
    content: str
    card_id: str
    said_at: datetime | None
    created_at: datetime | None
    state: str = "present"


class TranscriptWindow(msgspec.Struct, frozen=True, kw_only=True):
    """The positions of the entries that a run without an active context would see before the newest message.

    `most` is the size of the window. `start` is the first position after the latest `new` or `clear`.
    """

    first: int
    last: int
    most: int
    start: int


class TranscriptSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a transcript. Each of its boxes holds 1,000 entries; `box_id` is the last one."""

    entries: int
    boxes: int
    box_id: str | None
    unanswered: int
    window: TranscriptWindow


class RunStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step and its number in its run. `cbx render --at` accepts step ids, and numbers of the last run."""

    number: int
    step_id: str
    run_id: str
    status: str
    request_box_id: str | None
    started_at: datetime | None
    ended_at: datetime | None


class ChatView(msgspec.Struct, frozen=True, kw_only=True):
    """A chat. `messages` belong to the active context; `context_id` is None if that is empty.

    `running` is the id of the current run, `owner` the process that runs it. `runs` are the last ones, newest
    first, and `steps` their steps.
    """

    chat_key: str
    context_id: str | None
    messages: list[ContextMessage]
    context_box_id: str | None
    loaded_from: str | None
    context_created_at: datetime | None
    reset_by: ResetBy | None
    reset_at: datetime | None
    transcript: TranscriptSummary
    archives: int
    running: str | None
    owner: str | None
    lease_expires_at: datetime | None
    runs: list[ChatRun]
    steps: list[RunStep]
    created_at: datetime
    updated_at: datetime


def read_chat_view(stores: ChatStores, chat_key: str) -> ChatView:
    """Read the chat of this key in the caller's snapshot. Raises NotFound."""
    chat = stores.chats.get(chat_key)
    runs = stores.runs.last(chat_key, _MAX_RUNS)
    is_busy = chat.is_busy(stores.database.now())
    return ChatView(
        chat_key=chat_key,
        context_id=chat.context_id,
        messages=list_messages(stores, chat),
        context_box_id=chat.context_box_id,
        loaded_from=None if chat.context_box_id is None else chat.loaded_from,
        context_created_at=chat.context_created_at,
        reset_by=chat.reset_by,
        reset_at=chat.reset_at,
        transcript=_transcript_summary(stores, chat),
        archives=stores.archives.count(chat_key),
        running=chat.run_id if is_busy else None,
        owner=chat.owner if is_busy else None,
        lease_expires_at=chat.lease_expires_at if is_busy else None,
        runs=runs,
        steps=[
            RunStep(
                number=number,
                step_id=step.step_id,
                run_id=run.run_id,
                status=step.status,
                request_box_id=step.request_box_id,
                started_at=step.started_at,
                ended_at=step.ended_at,
            )
            for run in runs
            for number, step in enumerate(stores.runs.steps(chat_key, run.run_id), 1)
        ],
        created_at=chat.created_at,
        updated_at=chat.updated_at,
    )


def list_messages(stores: ChatStores, chat: Chat) -> list[ContextMessage]:
    return [
        ContextMessage(
            role="" if slot.card is None else slot.card.role or "",
            content="" if slot.card is None else card_text(slot.card.content),
            card_id=slot.card_id,
            said_at=None if slot.card is None else message_time(slot.card),
            created_at=None if slot.card is None else slot.card.created_at,
            state=slot.state,
        )
        for slot in context_slots(stores, chat)
    ]


def list_archives(stores: ChatStores, chat_key: str, *, limit: int | None) -> list[Archive]:
    """Return the archived contexts of a chat, newest first. Raises NotFound for an unknown chat."""
    stores.chats.get(chat_key)
    return list(stores.archives.newest(chat_key, limit=limit))


def list_entries(stores: ChatStores, chat_key: str, *, limit: int | None) -> list[Entry]:
    """Return the last `limit` entries of a transcript, or all, in order. Raises NotFound."""
    chat = stores.chats.get(chat_key)
    return stores.chats.entries(chat, 0 if limit is None else chat.entries - limit)


def _transcript_summary(stores: ChatStores, chat: Chat) -> TranscriptSummary:
    most = stores.settings.chat_window
    waiting = unanswered_messages(stores, chat, chat.answered)
    last = waiting[-1].position if waiting else chat.entries
    return TranscriptSummary(
        entries=chat.entries,
        boxes=-(-chat.entries // BOX_CARDS),
        box_id=chat.transcript_box_id,
        unanswered=len(waiting),
        window=TranscriptWindow(
            first=min(max(chat.window_start, last - most, 0), last),
            last=last,
            most=most,
            start=chat.window_start,
        ),
    )
