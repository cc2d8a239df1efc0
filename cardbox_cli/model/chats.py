"""Chats, as values: their heads, entries, archived contexts and runs, and how entries are cards.

Owns what a chat's key says, the names of what is kept in a card's metadata, and the fence of a run. No I/O.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec

from cardbox_cli.errors import InvalidInput
from cardbox_cli.limits import EARLIEST, LATEST
from cardbox_cli.model.card_types import CHAT_MESSAGE
from cardbox_cli.model.cards import Card, CardDraft, card_text, draft_card
from cardbox_cli.model.ids import check_new_id, derived_id
from cardbox_cli.text import format_duration

Role = Literal["user", "assistant", "system", "tool"]
ROLES: tuple[Role, ...] = ("user", "assistant", "system", "tool")
ResetBy = Literal["new", "load", "clear"]
RunStatus = Literal["running", "success", "failed", "canceled", "timeout", "lost"]

# How many cards a box of a transcript holds; only the newest may hold fewer.
BOX_CARDS = 1000
# The key in the metadata of an entry's card: {key, channel, chat_id, user_id, message_id, ts, meta}.
CHAT = "chat"
# Characters of a checkpoint that a list shows.
PREVIEW = 200

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_KEY = 512
_KEY = re.compile(r"(?P<channel>[^-]+)-chat-(?P<chat_id>.+?)(?:-topic-(?P<topic>.+))?")


class ChatFence(msgspec.Struct, frozen=True):
    """The right of a run to write: it holds as long as the chat is at this run and this epoch."""

    chat_key: str
    run_id: str
    epoch: int


class Chat(msgspec.Struct, frozen=True, kw_only=True):
    """The head of a chat. Places in its transcript count from 0; `entries` is how many there are.

    Entries from `window_start` on are what a run sees that has no context, those of users from `answered` on
    are unanswered. `context_box_id` is None where the active context is empty; `context_id` is that of a
    snapshot as long as the context is as it was loaded from there (`loaded_from`). `version` counts how often
    it was replaced.
    """

    chat_key: str
    entries: int = 0
    transcript_box_id: str | None = None
    window_start: int = 0
    answered: int = 0
    context_id: str | None = None
    context_box_id: str | None = None
    context_created_at: datetime | None = None
    loaded_from: str | None = None
    version: int = 0
    reset_by: ResetBy | None = None
    reset_at: datetime | None = None
    epoch: int = 0
    run_id: str | None = None
    owner: str | None = None
    lease_expires_at: datetime | None = None
    created_at: datetime
    updated_at: datetime

    @property
    def fence(self) -> ChatFence | None:
        """The fence of the run that goes on, if one does."""
        return None if self.run_id is None else ChatFence(self.chat_key, self.run_id, self.epoch)

    @property
    def is_as_loaded(self) -> bool:
        """Whether the active context is a snapshot, and nothing was added since."""
        return self.context_id is not None and self.context_id == self.loaded_from

    def is_busy(self, now: datetime) -> bool:
        """Whether a run goes on whose lease holds."""
        return self.run_id is not None and self.lease_expires_at is not None and self.lease_expires_at > now

    def holder(self, now: datetime) -> str:
        """In words, which run has the chat, whose that is, and for how long if it has died."""
        left = format_duration((self.lease_expires_at or now) - now)
        return f"run {self.run_id} of {self.owner or 'nobody'} has it, with a lease of another {left}"


class Archive(msgspec.Struct, frozen=True, kw_only=True):
    """An archived context, a snapshot. The checkpoint is its last message of an assistant, if it has one."""

    context_id: str
    chat_key: str
    box_id: str
    title: str | None
    reason: str | None
    checkpoint_index: int | None
    checkpoint_preview: str | None
    messages: int
    created_at: datetime
    archived_at: datetime


class Findable(msgspec.Struct, frozen=True, kw_only=True):
    """What a search ranks an archived context by."""

    context_id: str
    title: str | None
    reason: str | None
    search_text: str
    archived_at: datetime


class ChatRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a chat. `user_card_ids` are the messages that it answers, the last with what corrected it.

    `position` is the place of that last one in the transcript, `merged` the place up to which messages are
    taken in, `version` that of the context which its boxes were made of. `reply_card_ids` are what its
    command has sent, `answer_card_id` is what the active context got.
    """

    run_id: str
    chat_key: str
    epoch: int
    owner: str
    status: RunStatus
    position: int
    merged: int
    version: int
    user_card_ids: list[str]
    reply_card_ids: list[str] = []
    answer_card_id: str | None = None
    profile_box_id: str
    context_box_id: str
    output_box_id: str
    error_code: str | None = None
    error: str | None = None
    started_at: datetime
    ended_at: datetime | None = None

    @property
    def fence(self) -> ChatFence:
        """What guards its writes."""
        return ChatFence(self.chat_key, self.run_id, self.epoch)


class KeyParts(msgspec.Struct, frozen=True):
    """What a chat's key says, as platforms make them; None where it is made otherwise."""

    channel: str | None = None
    chat_id: str | None = None
    topic: str | None = None


def key_parts(chat_key: str) -> KeyParts:
    """The parts of a key such as `telegram-chat-42-topic-7`."""
    found = _KEY.fullmatch(chat_key)
    return KeyParts() if found is None else KeyParts(**found.groupdict())


def near_to(chat_key: str) -> str:
    """With what the keys begin that are near to this one: those of all topics of its chat."""
    parts = key_parts(chat_key)
    return chat_key if parts.channel is None else f"{parts.channel}-chat-{parts.chat_id}"


CHAT_AGENT = "chat"
"""Who the cards of the runs of chats are by."""


def check_key(chat_key: str) -> None:
    """Raise InvalidInput for what cannot be the key of a chat."""
    hint = "a key names one conversation, such as telegram-chat-42-topic-7"
    check_new_id(chat_key, "the chat's key", hint)
    if len(chat_key) > _LONGEST_KEY:
        raise InvalidInput(f"the chat's key has {len(chat_key)} characters, not {_LONGEST_KEY}", hint=hint)


def transcript_box(project_id: str, chat_key: str, position: int) -> str:
    """The id of the box that holds the entry at this place."""
    return str(derived_id(project_id, "chat.transcript", chat_key, str(position // BOX_CARDS)))


def texts_box(project_id: str, chat_key: str | None) -> str:
    """The id of the box with a chat's memory texts; without a key, of that with the project's personas."""
    parts = ("chat.persona",) if chat_key is None else ("chat.memory", chat_key)
    return str(derived_id(project_id, *parts))


def entry_draft(
    chat_key: str,
    role: Role,
    text: str,
    *,
    author_id: str | None = None,
    card_id: str | None = None,
    told: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> CardDraft:
    """An entry of a transcript, or a message of a context, as a card; `told` is what a platform says."""
    given = {name: value for name, value in (told or {}).items() if value is not None}
    return draft_card(
        CHAT_MESSAGE,
        text,
        role=role,
        author_id=author_id,
        card_id=card_id,
        metadata={**(metadata or {}), CHAT: {"key": chat_key, **given}},
    )


def entry_id(project_id: str, chat_key: str, role: Role, message_id: str) -> str:
    """The card id of an entry with a platform's id: what is delivered twice is stored once."""
    return derived_id(project_id, CHAT_MESSAGE, chat_key, role, message_id).hex


def told_of(card: Card) -> dict[str, Any]:
    """What a platform said of an entry; {} of a card that is none."""
    told = card.metadata.get(CHAT)
    return told if isinstance(told, dict) else {}


def said_at(card: Card) -> datetime | None:
    """When an entry or a message was said, as the platform or a file tells; else when it was written."""
    ts = told_of(card).get("ts")
    if isinstance(ts, int) and not isinstance(ts, bool):
        try:
            moment = _EPOCH + timedelta(milliseconds=ts)
        except OverflowError:
            return card.created_at
        if EARLIEST < moment < LATEST:
            return moment
    return card.created_at


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a transcript: its place, and its card; None where that is gone."""

    position: int
    card_id: str
    card: Card | None

    @property
    def role(self) -> str:
        """Who speaks; a card that is gone is nobody's."""
        return "" if self.card is None else self.card.role or ""

    @property
    def text(self) -> str:
        """What was said."""
        return "" if self.card is None else card_text(self.card.content)
