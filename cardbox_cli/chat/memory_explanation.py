"""The explanation of a chat's memory: what its next run would see, and why it would start empty.

Reads one snapshot and never writes. Each cause names its proof and a command that helps.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Literal

import msgspec

from cardbox_cli.chat.transcript import unanswered_messages
from cardbox_cli.model.chats import Chat
from cardbox_cli.store.chats import ChatStores
from cardbox_cli.text.command_lines import command_line

_MAX_NEAR = 5

Carries = Literal["context", "transcript", "nothing"]


class SimilarChat(msgspec.Struct, frozen=True, kw_only=True):
    """A chat with a similar key: its size, and when it was last used."""

    chat_key: str
    entries: int
    has_context: bool
    updated_at: datetime


class MemoryLossCause(msgspec.Struct, frozen=True, kw_only=True):
    """A reason why a chat starts without memory, its proof, and a command that helps."""

    cause: Literal["another-key", "another-project", "cleared", "new-context", "run-failed"]
    proves: str
    fix: str | None


class MemoryExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of a chat's next run: a summary, its source and size, and the causes if it is empty."""

    chat_key: str
    exists: bool
    carries: Carries
    messages: int
    summary: str
    causes: list[MemoryLossCause]
    near: list[SimilarChat]

    @property
    def well(self) -> bool:
        return self.carries != "nothing"


def explain_memory(stores: ChatStores, chat_key: str) -> MemoryExplanation:
    """Explain the memory of a chat, which need not exist. Takes part in the caller's snapshot."""
    chat = stores.chats.find(chat_key)
    near = stores.chats.similar(chat_key, _MAX_NEAR)
    carries, messages = _measure_memory(stores, chat)
    return MemoryExplanation(
        chat_key=chat_key,
        exists=chat is not None,
        carries=carries,
        messages=messages,
        summary=_summary(chat, carries, messages),
        causes=[] if carries == "context" else list(_causes(stores, chat_key, chat, near)),
        near=[
            SimilarChat(
                chat_key=each.chat_key,
                entries=each.entries,
                has_context=each.context_box_id is not None,
                updated_at=each.updated_at,
            )
            for each in near
        ],
    )


def _measure_memory(stores: ChatStores, chat: Chat | None) -> tuple[Carries, int]:
    if chat is None:
        return "nothing", 0
    if chat.context_box_id is not None:
        return "context", len(stores.boxes.get(chat.context_box_id).card_ids)
    waiting = unanswered_messages(stores, chat, chat.answered)
    last = waiting[-1].position if waiting else chat.entries
    seen = min(last - chat.window_start, stores.settings.chat_window)
    return ("transcript", seen) if seen > 0 else ("nothing", 0)


def _summary(chat: Chat | None, carries: Carries, messages: int) -> str:
    if chat is None:
        return "this project has no such chat: a message would start it"
    if carries == "context":
        loaded = f", loaded from {chat.loaded_from}" if chat.loaded_from else ""
        carried = f"the next run sees the active context: {messages} messages{loaded}"
        return f"{carried}, and nothing else from the transcript of {chat.entries} entries"
    if carries == "transcript":
        return f"the active context is empty: the next run sees {messages} entries of the transcript"
    return "the next run starts without memory: the active context is empty, and no entry is in the window"


def _causes(
    stores: ChatStores, chat_key: str, chat: Chat | None, near: Sequence[Chat]
) -> Iterator[MemoryLossCause]:
    if chat is not None:
        yield from _own_causes(stores, chat)
    used = [each for each in near if each.entries or each.context_box_id]
    if used:
        others = ", ".join(each.chat_key for each in used)
        yield MemoryLossCause(
            cause="another-key",
            proves=f"another key is another chat, and a topic changes the key; similar keys: {others}",
            fix=command_line(("chat", "show", used[0].chat_key)),
        )
    for project in stores.chats.other_projects(chat_key, _MAX_NEAR):
        yield MemoryLossCause(
            cause="another-project",
            proves=f"project {project!r} has a chat with this key, and no data crosses projects",
            fix=command_line(("chat", "show", chat_key, "--project", project)),
        )


def _own_causes(stores: ChatStores, chat: Chat) -> Iterator[MemoryLossCause]:
    moment = "an unknown time" if chat.reset_at is None else f"{chat.reset_at:%Y-%m-%d %H:%M:%S}Z"
    if chat.context_box_id is None and chat.reset_by == "clear":
        proof = f"the context was cleared at {moment} without archiving it"
        if chat.loaded_from is not None:
            proof += f"; it was loaded from {chat.loaded_from}"
        yield MemoryLossCause(cause="cleared", proves=proof, fix=_load_command(chat, chat.loaded_from))
    if chat.context_box_id is None and chat.reset_by == "new":
        newest = next(iter(stores.archives.newest(chat.chat_key, limit=1)), None)
        archived = chat.loaded_from or (newest.context_id if newest else None)
        proof = f"a new context was started at {moment}"
        yield MemoryLossCause(cause="new-context", proves=proof, fix=_load_command(chat, archived))
    last = next(iter(stores.runs.last(chat.chat_key, 1)), None)
    if last is not None and last.status not in ("success", "running"):
        problem = f"run {last.run_id} {last.status}: {last.error or last.error_code}"
        proof = f"{problem}; its messages are not in the context"
        yield MemoryLossCause(cause="run-failed", proves=proof, fix=None)


def _load_command(chat: Chat, context_id: str | None) -> str | None:
    return None if context_id is None else command_line(("chat", "load", chat.chat_key, context_id))
