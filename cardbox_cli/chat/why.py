"""Why a chat remembers, or does not: what the next run would carry with it, and the causes of a fresh start.

Reads one snapshot and decides on it; each cause says what proves it and what helps. Never writes.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Literal

import msgspec

from cardbox_cli.chat.transcript import unanswered
from cardbox_cli.model.chats import Archive, Chat, ChatRun
from cardbox_cli.store.chats import Room
from cardbox_cli.text import command_line

_NEAR = 5
_RUNS = 5

Carries = Literal["context", "transcript", "nothing"]


class NearKey(msgspec.Struct, frozen=True, kw_only=True):
    """A chat whose key is near: how much it holds, and when it was last used."""

    chat_key: str
    entries: int
    has_context: bool
    updated_at: datetime


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """A reason why a chat begins afresh: what it is called, what proves it, and the command that helps."""

    cause: Literal["another-key", "another-project", "cleared", "new-context", "run-failed"]
    proves: str
    fix: str | None


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """What the next run carries with it, in words and as numbers, and the causes where that is nothing."""

    chat_key: str
    exists: bool
    carries: Carries
    messages: int
    summary: str
    causes: list[Cause]
    near: list[NearKey]

    @property
    def well(self) -> bool:
        """Whether the next run carries anything with it."""
        return self.carries != "nothing"


def explain(room: Room, chat_key: str) -> Explained:
    """Why a chat remembers or not. Takes part in the caller's snapshot. A chat need not exist."""
    chat = room.chats.find(chat_key)
    near = room.chats.near(chat_key, _NEAR)
    nothing: tuple[Carries, int] = ("nothing", 0)
    carries, messages = nothing if chat is None else _carried(room, chat)
    found = [] if carries == "context" else list(_causes(room, chat_key, chat, near))
    return Explained(
        chat_key=chat_key,
        exists=chat is not None,
        carries=carries,
        messages=messages,
        summary=_summary(chat, carries, messages),
        causes=found,
        near=[
            NearKey(
                chat_key=each.chat_key,
                entries=each.entries,
                has_context=each.context_box_id is not None,
                updated_at=each.updated_at,
            )
            for each in near
        ],
    )


def _carried(room: Room, chat: Chat) -> tuple[Carries, int]:
    if chat.context_box_id is not None:
        return "context", len(room.boxes.get(chat.context_box_id).card_ids)
    waiting = unanswered(room, chat, chat.answered)
    last = waiting[-1].position if waiting else chat.entries
    seen = min(last - chat.window_start, room.settings.chat_window)
    return ("transcript", seen) if seen > 0 else ("nothing", 0)


def _summary(chat: Chat | None, carries: Carries, messages: int) -> str:
    if chat is None:
        return "there is no such chat in this project: a message would begin it"
    if carries == "context":
        loaded = f", loaded from {chat.loaded_from}" if chat.loaded_from else ""
        carried = f"the next run carries the active context: {messages} messages{loaded}"
        return f"{carried}, and nothing else of the transcript, which has {chat.entries} entries"
    if carries == "transcript":
        return f"the active context is empty: the next run sees {messages} entries of the transcript"
    return "the next run begins afresh: the active context is empty, and no entry is in the window"


def _causes(room: Room, chat_key: str, chat: Chat | None, near: Sequence[Chat]) -> Iterator[Cause]:
    if chat is not None:
        yield from _own_causes(room, chat)
    used = [each for each in near if each.entries or each.context_box_id]
    if used:
        others = ", ".join(each.chat_key for each in used)
        yield Cause(
            cause="another-key",
            proves=f"another key is another chat, and near are {others}: a topic changes the key",
            fix=command_line(("chat", "show", used[0].chat_key)),
        )
    for project in room.chats.other_projects(chat_key, _NEAR):
        yield Cause(
            cause="another-project",
            proves=f"project {project!r} has a chat of this key, and nothing crosses projects",
            fix=command_line(("chat", "show", chat_key, "--project", project)),
        )


def _own_causes(room: Room, chat: Chat) -> Iterator[Cause]:
    newest = next(iter(room.archives.newest(chat.chat_key, limit=1)), None)
    if chat.context_box_id is None and chat.reset_by == "clear":
        yield Cause(
            cause="cleared",
            proves=f"the context was cleared at {_at(chat.reset_at)}, and nothing of it was archived",
            fix=_load(newest),
        )
    if chat.context_box_id is None and chat.reset_by == "new":
        yield Cause(
            cause="new-context",
            proves=f"a new context was begun at {_at(chat.reset_at)}",
            fix=_load(newest),
        )
    failed = _failed(room.runs.last(chat.chat_key, _RUNS))
    if failed is not None:
        yield Cause(
            cause="run-failed",
            proves=f"run {failed.run_id} {failed.status}: {failed.error or failed.error_code}; what was "
            "said in it is not in the context",
            fix=None,
        )


def _failed(runs: Sequence[ChatRun]) -> ChatRun | None:
    """The last run, where it did not come to its end."""
    last = runs[0] if runs else None
    return last if last is not None and last.status not in ("success", "running") else None


def _load(archive: Archive | None) -> str | None:
    if archive is None:
        return None
    return command_line(("chat", "load", archive.chat_key, archive.context_id))


def _at(moment: datetime | None) -> str:
    return "an unknown time" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}Z"
