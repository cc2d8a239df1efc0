"""The records and the paths of the `.ship` layout: transcript lines, messages, archived contexts, the index.

`parse` makes a record from a JSON object, `encode` returns the same object. `extra` preserves the keys that
the layout does not define.
"""

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Self, TypeVar
from urllib.parse import quote, unquote

import msgspec
from msgspec import UNSET, UnsetType

from cardbox_cli.limits import EARLIEST, LATEST
from cardbox_cli.model import exact_json
from cardbox_cli.text.error_messages import invalid_message

# The keys under which an archive lists its messages, and an index entry counts them: now, and in older files.
MESSAGES, TURNS = "messages", "turns"

_Parsed = TypeVar("_Parsed")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Text = str | UnsetType
# Milliseconds since 1970, or an RFC 3339 time.
Stamp = int | str


class InvalidRecord(ValueError):
    """A value that is not a record of the expected type; the message says why."""


class _Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    extra: dict[str, Any] = {}

    @classmethod
    def parse(cls, value: object) -> Self:
        """Parse a JSON value. Raises InvalidRecord."""
        fields, extra = value, dict[str, Any]()
        if isinstance(value, dict):
            names = {*cls.__struct_encode_fields__} - {"extra", "listKey"}
            fields = {key: item for key, item in value.items() if key in names}
            extra = {key: item for key, item in value.items() if key not in names}
        try:
            exact_json.check_storable(value)
            record = msgspec.convert(fields, cls)
        except (exact_json.Unstorable, msgspec.ValidationError) as exc:
            raise InvalidRecord(str(exc)) from None
        for name in ("ts", "created_at", "archived_at"):
            if (stamp := getattr(record, name, UNSET)) is not UNSET:
                parse_stamp(stamp)
        return msgspec.structs.replace(record, extra=extra)

    def encode(self) -> dict[str, Any]:
        """Return the JSON object that was parsed."""
        names = zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True)
        fields = {key: getattr(self, name) for name, key in names if name not in ("extra", "list_key")}
        return {key: value for key, value in fields.items() if value is not UNSET} | self.extra


class TranscriptLine(_Record, frozen=True, kw_only=True):
    """A line of a transcript. `ts` is in milliseconds since 1970."""

    v: Literal[1]
    ts: int
    channel: str
    chat_id: str
    chat_key: str
    user_id: Text = UNSET
    message_id: Text = UNSET
    role: Literal["user", "assistant", "system", "tool"]
    text: str
    meta: dict[str, Any] | UnsetType = UNSET


class MessageRecord(_Record, frozen=True, kw_only=True):
    """A message of a chat context. Older files store its content as `text`."""

    v: Literal[1] | UnsetType = UNSET
    ts: int | UnsetType = UNSET
    role: Literal["user", "assistant"]
    content: Text = UNSET
    text: Text = UNSET
    meta: dict[str, Any] | UnsetType = UNSET

    @classmethod
    def parse(cls, value: object) -> Self:
        """Parse a message of an archive, with or without version and time. Raises InvalidRecord."""
        second = {}
        if isinstance(value, dict) and "content" in value and "text" in value:
            second = {"text": value["text"]}
            value = {key: item for key, item in value.items() if key != "text"}
        message = super().parse(value)
        if message.content is UNSET and message.text is UNSET:
            raise InvalidRecord("Object missing required field `content`")
        return msgspec.structs.replace(message, extra=second | message.extra)

    @classmethod
    def parse_line(cls, value: object) -> Self:
        """Parse a line of the active context, which needs a version and a time. Raises InvalidRecord."""
        message = cls.parse(value)
        for name in ("v", "ts"):
            if getattr(message, name) is UNSET:
                raise InvalidRecord(f"Object missing required field `{name}`")
        return message

    @property
    def body(self) -> str:
        """The content, under either of its two keys."""
        content = self.text if self.content is UNSET else self.content
        assert isinstance(content, str)
        return content


class _Checkpoint(_Record, frozen=True, kw_only=True):
    last_assistant_index: int | UnsetType = UNSET
    last_assistant_preview: Text = UNSET


class ArchiveRecord(_Record, frozen=True, kw_only=True):
    """An archived context. Its messages are `MessageRecord`s, under the key `list_key`."""

    v: Literal[1]
    chat_key: str
    context_id: str
    created_at: Stamp
    archived_at: Stamp
    title: Text = UNSET
    reason: Text = UNSET
    checkpoint: dict[str, Any] | UnsetType = UNSET
    messages: list[Any]
    search_text: Text = UNSET
    list_key: str = MESSAGES

    @classmethod
    def parse_valid(cls, value: object) -> tuple[Self, list[tuple[int, str]]]:
        """Parse an archive. Also returns the messages in it that are invalid, numbered from 1, and why.

        Raises InvalidRecord.
        """
        list_key = MESSAGES
        if isinstance(value, dict) and MESSAGES not in value and isinstance(value.get(TURNS), list):
            list_key = TURNS
            value = {MESSAGES if key == TURNS else key: item for key, item in value.items()}
        record = cls.parse(value)
        if record.checkpoint is not UNSET:
            _Checkpoint.parse(record.checkpoint)
        messages, refused = parse_each(record.messages, MessageRecord.parse)
        return msgspec.structs.replace(record, messages=messages, list_key=list_key), refused

    def encode(self) -> dict[str, Any]:
        """Return the JSON object that was parsed, without its invalid messages."""
        messages = {self.list_key: [message.encode() for message in self.messages]}
        return {key: item for key, item in super().encode().items() if key != MESSAGES} | messages


class ActiveSnapshot(_Record, frozen=True, kw_only=True):
    """The active context as the oldest programs wrote it: one document that lists its messages as `turns`."""

    v: Literal[1]
    chat_key: str
    turns: list[Any]


class IndexItem(_Record, frozen=True, kw_only=True):
    """The index entry of an archived context.

    `messages` counts its messages. Older files call this number `turns`.
    """

    v: Literal[1]
    context_id: str
    title: Text = UNSET
    created_at: Stamp
    archived_at: Stamp
    messages: int | UnsetType = UNSET
    turns: int | UnsetType = UNSET
    search_text_preview: Text = UNSET

    @classmethod
    def parse(cls, value: object) -> Self:
        """Parse an entry, which has one of the two numbers at least. Raises InvalidRecord."""
        item = super().parse(value)
        if item.messages is UNSET and item.turns is UNSET:
            raise InvalidRecord("Object missing required field `messages`")
        return item


def parse_each(
    values: Iterable[object], parse: Callable[[object], _Parsed]
) -> tuple[list[_Parsed], list[tuple[int, str]]]:
    """Return the valid records, and the numbers of invalid values, from 1, each with its reason."""
    parsed: list[_Parsed] = []
    refused: list[tuple[int, str]] = []
    for number, value in enumerate(values, 1):
        try:
            parsed.append(parse(value))
        except InvalidRecord as exc:
            refused.append((number, str(exc)))
    return parsed, refused


def parse_stamp(stamp: Stamp) -> datetime:
    """Convert a stamp to an instant. Raises InvalidRecord if it is invalid or Postgres cannot store it."""
    try:
        if isinstance(stamp, int):
            moment = _EPOCH + timedelta(milliseconds=stamp)
        else:
            moment = datetime.fromisoformat(stamp)
    except (ValueError, OverflowError):
        raise InvalidRecord(invalid_message("time", str(stamp))) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if not EARLIEST < moment < LATEST:
        raise InvalidRecord(invalid_message("time", str(stamp)))
    return moment


def milliseconds(moment: datetime) -> int:
    """Convert an instant to milliseconds since 1970, rounded down."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


# --- paths, relative to the project's folder or to the chat's, always with "/"

SHIP = ".ship"
CHATS = f"{SHIP}/chat"
PROFILES = f"{SHIP}/profile"

HISTORY = "conversations/history.jsonl"
ACTIVE = "contexts/active.jsonl"
# The active context in the layout of the oldest programs.
ACTIVE_SNAPSHOT = "contexts/active.json"
INDEX = "contexts/index.json"
MEMORY = "memory/Primary.md"

_ROLLED = re.compile(r"conversations/archive-([1-9][0-9]{0,8})\.jsonl")
_ARCHIVE = re.compile(r"contexts/archive/(ctx_[A-Za-z0-9_.-]+)\.json")
_PROFILE = re.compile(r"([^/]+)\.md")

# The largest number of a file of rolled-over lines.
MAX_FILES = 999_999_999
_MAX_NAME_BYTES = 255

# The characters that ECMAScript's encodeURIComponent does not escape, in addition to letters and digits.
_UNESCAPED = "-_.!~*'()"


def chat_folder(chat_key: str) -> str | None:
    """Return the name of a chat's folder, its key by encodeURIComponent; None if that is not a valid name."""
    try:
        name = quote(chat_key, safe=_UNESCAPED)
    except UnicodeEncodeError:
        return None
    return None if name in ("", ".", "..") or len(name) > _MAX_NAME_BYTES else name


def folder_chat_key(folder: str) -> str | None:
    """Return the key of the chat with this folder, None if no chat has it."""
    try:
        chat_key = unquote(folder, errors="strict")
    except UnicodeDecodeError:
        return None
    return chat_key if chat_folder(chat_key) == folder else None


def rolled_file(number: int) -> str:
    """Return the name of the file with the `number`th part of the transcript's older lines."""
    return f"conversations/archive-{number}.jsonl"


def rolled_file_number(name: str) -> int | None:
    """Return the number of a file of older lines, None for any other file."""
    match = _ROLLED.fullmatch(name)
    return int(match[1]) if match else None


def archive_file(context_id: str) -> str:
    return f"contexts/archive/{context_id}.json"


def is_archive_id(context_id: str) -> bool:
    """Return whether an archived context's id makes a file name that is also read."""
    name = archive_file(context_id)
    return archived_context_id(name) == context_id and len(name.rpartition("/")[2]) <= _MAX_NAME_BYTES


def archived_context_id(name: str) -> str | None:
    """Return the id of the archived context in a file of this name, None for any other file."""
    match = _ARCHIVE.fullmatch(name)
    return match[1] if match else None


def profile_file(persona: str) -> str:
    return f"{persona}.md"


def is_file_name(name: str) -> bool:
    """Return whether a file may have this name and is also read."""
    return "/" not in name and not name.startswith(".") and len(name.encode()) <= _MAX_NAME_BYTES


def persona_name(name: str) -> str | None:
    """Return the name of the persona whose text this file holds, None for any other file."""
    match = _PROFILE.fullmatch(name)
    return match[1] if match else None
