"""Values of chats: heads, entries, archived contexts and runs, and the cards that store entries.

This pure module also defines the parts of a chat's key, the metadata of its cards, and the fence of a run.
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
from cardbox_cli.text.times import format_duration

Role = Literal["user", "assistant", "system", "tool"]
ROLES: tuple[Role, ...] = ("user", "assistant", "system", "tool")
ResetBy = Literal["new", "load", "clear"]
RunStatus = Literal["running", "success", "failed", "canceled", "timeout", "lost"]

# The number of cards in each box of a transcript. Only the newest box may have fewer.
BOX_CARDS = 1000
# The metadata key of an entry's card for {key, channel, chat_id, user_id, message_id, ts, meta}.
CHAT = "chat"
# The number of characters of a checkpoint that a list shows.
PREVIEW = 200

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_KEY_LENGTH = 512
_KEY = re.compile(r"(?P<channel>[^-]+)-chat-(?P<chat_id>.+?)(?:-topic-(?P<topic>.+))?")


class ChatFence(msgspec.Struct, frozen=True):
    """The right of a run to write. It is valid while the chat's head has this run and this epoch."""

    chat_key: str
    run_id: str
    epoch: int


class Chat(msgspec.Struct, frozen=True, kw_only=True):
    """The head of a chat. `entries` is the length of its transcript. Positions in it count from 0.

    A run without a context sees entries from `window_start` on. Users' entries from `answered` on have no
    answer yet. `context_box_id` is None if the active context is empty. Until the context changes,
    `context_id` is the id of the snapshot `loaded_from`. If the context is empty, `loaded_from` is the
    snapshot of the context before it. `version` counts replacements of the context.
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
        return None if self.run_id is None else ChatFence(self.chat_key, self.run_id, self.epoch)

    @property
    def is_as_loaded(self) -> bool:
        """Return whether the active context is an archived context that has not changed since its load."""
        return self.context_id is not None and self.context_id == self.loaded_from

    def is_busy(self, now: datetime) -> bool:
        return self.run_id is not None and self.lease_expires_at is not None and self.lease_expires_at > now

    def holder(self, now: datetime) -> str:
        """Describe the run that holds the chat, its owner, and the remaining time of its lease."""
        left = format_duration((self.lease_expires_at or now) - now)
        return f"run {self.run_id} of {self.owner or 'nobody'} has it; its lease ends in {left}"


class Archive(msgspec.Struct, frozen=True, kw_only=True):
    """An archived context. Its checkpoint is the assistant's last message in it, if there is one."""

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


class SearchCandidate(msgspec.Struct, frozen=True, kw_only=True):
    context_id: str
    title: str | None
    reason: str | None
    search_text: str
    archived_at: datetime


class ChatRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a chat. `user_card_ids` are the messages that it answers, with corrections of the last one.

    `position` is the transcript position of the last message. The run also answers later messages up to
    `merged`. `version` is the version of the context that the run read. `reply_card_ids` are the replies of
    its command. `answer_card_id` is the answer in the active context.
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
        return ChatFence(self.chat_key, self.run_id, self.epoch)


class KeyParts(msgspec.Struct, frozen=True):
    """The parts of a chat's key such as `telegram-chat-42-topic-7`. They are None for any other key."""

    channel: str | None = None
    chat_id: str | None = None
    topic: str | None = None


def key_parts(chat_key: str) -> KeyParts:
    """Parse a key such as `telegram-chat-42-topic-7`."""
    match = _KEY.fullmatch(chat_key)
    return KeyParts() if match is None else KeyParts(**match.groupdict())


def chat_key_prefix(chat_key: str) -> str:
    """Return the key prefix shared by all topics of this chat."""
    parts = key_parts(chat_key)
    return chat_key if parts.channel is None else f"{parts.channel}-chat-{parts.chat_id}"


CHAT_AGENT = "chat"
"""The author of the cards that runs of chats write."""


def check_key(chat_key: str) -> None:
    """Raise InvalidInput for an invalid key of a chat."""
    hint = "use a key of one conversation, such as telegram-chat-42-topic-7"
    check_new_id(chat_key, "the chat's key", hint)
    if len(chat_key) > _MAX_KEY_LENGTH:
        what = f"the chat's key has {len(chat_key)} characters; the limit is {_MAX_KEY_LENGTH}"
        raise InvalidInput(what, hint=hint)


def transcript_box(project_id: str, chat_key: str, position: int) -> str:
    """Return the id of the transcript's box that has the entry at this position."""
    return str(derived_id(project_id, "chat.transcript", chat_key, str(position // BOX_CARDS)))


def texts_box(project_id: str, chat_key: str | None) -> str:
    """Return the id of the box for a chat's memory. Without a key, the box is for the project's personas."""
    parts = ("chat.persona",) if chat_key is None else ("chat.memory", chat_key)
    return str(derived_id(project_id, *parts))


def entry_draft(
    chat_key: str,
    role: Role,
    text: str,
    *,
    author_id: str | None = None,
    card_id: str | None = None,
    platform_metadata: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> CardDraft:
    """Draft the card of a transcript entry or of a message in a context."""
    given = {name: value for name, value in (platform_metadata or {}).items() if value is not None}
    return draft_card(
        CHAT_MESSAGE,
        text,
        role=role,
        author_id=author_id,
        card_id=card_id,
        metadata={**(metadata or {}), CHAT: {"key": chat_key, **given}},
    )


def entry_id(project_id: str, chat_key: str, role: Role, message_id: str) -> str:
    """Return the card id of an entry, derived from the platform's id, so repeated deliveries have one id."""
    return derived_id(project_id, CHAT_MESSAGE, chat_key, role, message_id).hex


def chat_metadata(card: Card) -> dict[str, Any]:
    """Return the metadata that a platform passed for an entry, or {} for any other card."""
    stored = card.metadata.get(CHAT)
    return stored if isinstance(stored, dict) else {}


def message_time(card: Card) -> datetime | None:
    """Return the time of a message that its platform or file states, or else the time of the write."""
    ts = chat_metadata(card).get("ts")
    if isinstance(ts, int) and not isinstance(ts, bool):
        try:
            moment = _EPOCH + timedelta(milliseconds=ts)
        except OverflowError:
            return card.created_at
        if EARLIEST < moment < LATEST:
            return moment
    return card.created_at


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a transcript. `card` is None if the card is deleted or expired."""

    position: int
    card_id: str
    card: Card | None

    @property
    def role(self) -> str:
        return "" if self.card is None else self.card.role or ""

    @property
    def text(self) -> str:
        return "" if self.card is None else card_text(self.card.content)
