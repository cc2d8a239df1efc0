"""The explanation of a chat's memory: what its next run would see, and why it would start empty.

Reads one snapshot and never writes. Each cause names its proof and a command that helps.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Literal

import msgspec

from cardbox_cli.chat.context_search import fold, split_terms
from cardbox_cli.chat.contexts import context_slots, search_best
from cardbox_cli.chat.transcript import unanswered_messages
from cardbox_cli.errors import NotFound
from cardbox_cli.model.cards import card_text
from cardbox_cli.model.chats import Chat
from cardbox_cli.store.chats import ChatStores
from cardbox_cli.text.command_lines import command_line
from cardbox_cli.text.quantities import format_count

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

    cause: Literal[
        "another-key",
        "another-project",
        "cleared",
        "new-context",
        "run-failed",
        "archived",
        "transcript-only",
        "never-said",
    ]
    proves: str
    fix: str | None


class MemoryExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of a chat's next run: a summary, its source and size, and causes.

    The causes say why it is empty, why it began again, and why it lacks the wanted `words`. `has_words` is
    None if no words are wanted.
    """

    chat_key: str
    exists: bool
    carries: Carries
    messages: int
    summary: str
    causes: list[MemoryLossCause]
    near: list[SimilarChat]
    words: str | None = None
    has_words: bool | None = None

    @property
    def well(self) -> bool:
        return self.carries != "nothing" and self.has_words is not False


def explain_memory(
    stores: ChatStores, chat_key: str, words: str | None = None, *, project_option: Sequence[str] = ()
) -> MemoryExplanation:
    """Explain the memory of a chat, which need not exist, and whether it has all of `words`.

    Commands end with `project_option`. Takes part in the caller's snapshot.
    """
    chat = stores.chats.find(chat_key)
    near = stores.chats.similar(chat_key, _MAX_NEAR)
    carries, messages = _measure_memory(stores, chat)
    has_words = None if words is None else _has_words(stores, chat, messages, words)
    causes = list(_causes(stores, chat_key, chat, near, project_option, empty=carries != "context"))
    if words is not None and chat is not None and not has_words:
        causes = [_missing_words(stores, chat, words, project_option), *causes]
    return MemoryExplanation(
        chat_key=chat_key,
        words=words,
        has_words=has_words,
        exists=chat is not None,
        carries=carries,
        messages=messages,
        summary=_summary(chat, carries, messages),
        causes=causes,
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


def _has_words(stores: ChatStores, chat: Chat | None, messages: int, words: str) -> bool:
    """Return whether the messages that the next run sees have all of these words."""
    if chat is None:
        return False
    if chat.context_box_id is not None:
        texts = [
            card_text(slot.card.content) for slot in context_slots(stores, chat) if slot.card is not None
        ]
    else:
        texts = [entry.text for entry in stores.chats.entries(chat, max(chat.entries - messages, 0))]
    return _contains(texts if messages else [], words)


def _contains(texts: Sequence[str], words: str) -> bool:
    whole = fold("\n".join(texts))
    return all(term in whole for term in split_terms(words))


def _missing_words(
    stores: ChatStores, chat: Chat, words: str, project_option: Sequence[str]
) -> MemoryLossCause:
    """Return where the words are that the next run does not see."""
    try:
        match = search_best(stores, chat.chat_key, words)
    except NotFound:
        match = None
    if match is not None:
        load = command_line(("chat", "load", chat.chat_key, match.context_id), *project_option)
        proof = f"the archived context {match.context_id} has {match.why}"
        return MemoryLossCause(cause="archived", proves=proof, fix=load)
    if _contains([entry.text for entry in stores.chats.entries(chat, 0)], words):
        shows = command_line(("chat", "transcript", chat.chat_key), *project_option)
        proof = f"{words!r} is in the transcript, but in no context: send it again"
        return MemoryLossCause(cause="transcript-only", proves=proof, fix=shows)
    return MemoryLossCause(cause="never-said", proves=f"no message of this chat has {words!r}", fix=None)


def _causes(
    stores: ChatStores,
    chat_key: str,
    chat: Chat | None,
    near: Sequence[Chat],
    project_option: Sequence[str],
    *,
    empty: bool,
) -> Iterator[MemoryLossCause]:
    """Yield why a chat lost its memory. Unless it is `empty`, only the reason of its last reset counts."""
    if chat is not None:
        yield from _own_causes(stores, chat, project_option, empty=empty)
    if not empty:
        return
    used = [each for each in near if each.entries or each.context_box_id]
    if used:
        others = ", ".join(each.chat_key for each in used)
        yield MemoryLossCause(
            cause="another-key",
            proves=f"another key is another chat, and a topic changes the key; similar keys: {others}",
            fix=command_line(("chat", "show", used[0].chat_key), *project_option),
        )
    for project in stores.chats.other_projects(chat_key, _MAX_NEAR):
        yield MemoryLossCause(
            cause="another-project",
            proves=f"project {project!r} has a chat with this key, and no data crosses projects",
            fix=command_line(("chat", "show", chat_key, "--project", project)),
        )


def _own_causes(
    stores: ChatStores, chat: Chat, project_option: Sequence[str], *, empty: bool
) -> Iterator[MemoryLossCause]:
    moment = "an unknown time" if chat.reset_at is None else f"{chat.reset_at:%Y-%m-%d %H:%M:%S}Z"
    if chat.reset_by == "clear":
        proof = f"the context was cleared at {moment} without archiving it"
        if chat.loaded_from is not None:
            proof += f"; it was loaded from {chat.loaded_from}"
        fix = _load_command(chat, chat.loaded_from, project_option)
        yield MemoryLossCause(cause="cleared", proves=proof, fix=fix)
    if chat.reset_by == "new":
        newest = next(iter(stores.archives.newest(chat.chat_key, limit=1)), None)
        archived = chat.loaded_from or (newest.context_id if newest else None)
        count = "" if newest is None else f", and {format_count(newest.messages, 'message')} archived"
        proof = f"a new context was started at {moment}{count}"
        fix = _load_command(chat, archived, project_option)
        yield MemoryLossCause(cause="new-context", proves=proof, fix=fix)
    last = next(iter(stores.runs.last(chat.chat_key, 1)), None) if empty else None
    if last is not None and last.status not in ("success", "running"):
        problem = f"run {last.run_id} {last.status}: {last.error or last.error_code}"
        proof = f"{problem}; its messages are not in the context"
        yield MemoryLossCause(cause="run-failed", proves=proof, fix=None)


def _load_command(chat: Chat, context_id: str | None, project_option: Sequence[str]) -> str | None:
    if context_id is None:
        return None
    return command_line(("chat", "load", chat.chat_key, context_id), *project_option)
