"""What the files of the layout hold, as values: lines of transcripts, messages, archived contexts, the index.

A record is made of a JSON object by `of` of its kind, which raises Unfit naming what is wrong with it, and
becomes the same object again by `as_json`: keys that the layout does not know are kept in `extra`.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeVar
from urllib.parse import quote, unquote

import msgspec
from msgspec import UNSET, UnsetType

from cardbox_cli.limits import EARLIEST, LATEST
from cardbox_cli.model import exact_json

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_Kind = TypeVar("_Kind", bound=msgspec.Struct)

Text = str | UnsetType
# Milliseconds since 1970, or RFC 3339.
Stamp = int | str


class Unfit(ValueError):
    """An object that is none of the kind that it was taken for."""


class _LineFields(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
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


class Line(_LineFields, frozen=True, kw_only=True):
    """A line of a transcript. `ts` is in milliseconds since 1970."""

    extra: dict[str, Any] = {}

    @classmethod
    def of(cls, value: object) -> "Line":
        """The line that a JSON value is. Raises Unfit."""
        fields, extra = _fields(value, _LineFields)
        moment_of(fields.ts)
        return cls(**msgspec.structs.asdict(fields), extra=extra)

    def as_json(self) -> dict[str, Any]:
        """The JSON object that it was made of."""
        return _as_json(self, _LineFields) | self.extra


class _MessageFields(msgspec.Struct, frozen=True, kw_only=True):
    v: Literal[1] | UnsetType = UNSET
    ts: int | UnsetType = UNSET
    role: Literal["user", "assistant"]
    content: Text = UNSET
    text: Text = UNSET
    meta: dict[str, Any] | UnsetType = UNSET


class Message(_MessageFields, frozen=True, kw_only=True):
    """A message of a chat context. Older files call its content `text`."""

    extra: dict[str, Any] = {}

    @classmethod
    def of(cls, value: object) -> "Message":
        """The message of an archive that a JSON value is, with or without version and time. Raises Unfit."""
        aside = {}
        if isinstance(value, dict) and "content" in value and "text" in value:
            aside = {"text": value["text"]}
            value = {key: item for key, item in value.items() if key != "text"}
        fields, extra = _fields(value, _MessageFields)
        if fields.content is UNSET and fields.text is UNSET:
            raise Unfit("Object missing required field `content`")
        if fields.ts is not UNSET:
            moment_of(fields.ts)
        return cls(**msgspec.structs.asdict(fields), extra={**aside, **extra})

    @classmethod
    def of_line(cls, value: object) -> "Message":
        """The message that a line of the active context is, which has version and time. Raises Unfit."""
        message = cls.of(value)
        for name in ("v", "ts"):
            if getattr(message, name) is UNSET:
                raise Unfit(f"Object missing required field `{name}`")
        return message

    @property
    def said(self) -> str:
        """What it says."""
        content = self.text if self.content is UNSET else self.content
        assert isinstance(content, str)
        return content

    def as_json(self) -> dict[str, Any]:
        """The JSON object that it was made of."""
        return _as_json(self, _MessageFields) | self.extra


class _CheckpointFields(msgspec.Struct, rename="camel"):
    last_assistant_index: int | UnsetType = UNSET
    last_assistant_preview: Text = UNSET


class _ArchiveFields(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
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


class Archive(_ArchiveFields, frozen=True, kw_only=True):
    """An archived context."""

    messages: list[Message]
    extra: dict[str, Any] = {}

    @classmethod
    def of(cls, value: object) -> "tuple[Archive, list[tuple[int, str]]]":
        """The archive that a JSON value is; and which of its messages are none, counted from 1, and why.

        Raises Unfit.
        """
        fields, extra = _fields(value, _ArchiveFields)
        moment_of(fields.created_at)
        moment_of(fields.archived_at)
        if fields.checkpoint is not UNSET:
            _fields(fields.checkpoint, _CheckpointFields)
        taken, refused = [], []
        for number, each in enumerate(fields.messages, 1):
            try:
                taken.append(Message.of(each))
            except Unfit as exc:
                refused.append((number, str(exc)))
        return cls(**{**msgspec.structs.asdict(fields), "messages": taken}, extra=extra), refused

    def as_json(self) -> dict[str, Any]:
        """The JSON object that it was made of, without what were no messages."""
        fields = _as_json(self, _ArchiveFields)
        return fields | {"messages": [message.as_json() for message in self.messages]} | self.extra


class _ItemFields(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    v: Literal[1]
    context_id: str
    title: Text = UNSET
    created_at: Stamp
    archived_at: Stamp
    turns: int
    search_text_preview: Text = UNSET


class Item(_ItemFields, frozen=True, kw_only=True):
    """What the index says of an archived context. `turns` counts its messages."""

    extra: dict[str, Any] = {}

    @classmethod
    def of(cls, value: object) -> "Item":
        """The item that a JSON value is. Raises Unfit."""
        fields, extra = _fields(value, _ItemFields)
        moment_of(fields.created_at)
        moment_of(fields.archived_at)
        return cls(**msgspec.structs.asdict(fields), extra=extra)

    def as_json(self) -> dict[str, Any]:
        """The JSON object that it was made of."""
        return _as_json(self, _ItemFields) | self.extra


def moment_of(stamp: Stamp) -> datetime:
    """The instant of a stamp. Raises Unfit for what is none, or none that a database can keep."""
    try:
        if isinstance(stamp, int):
            moment = _EPOCH + timedelta(milliseconds=stamp)
        else:
            moment = datetime.fromisoformat(stamp)
    except (ValueError, OverflowError):
        raise Unfit(f"{str(stamp)[:40]!r} is no time") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if not EARLIEST < moment < LATEST:
        raise Unfit(f"{str(stamp)[:40]!r} is no time")
    return moment


def milliseconds(moment: datetime) -> int:
    """An instant in milliseconds since 1970, what is less than one left out."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _fields(value: object, kind: type[_Kind]) -> tuple[_Kind, dict[str, Any]]:
    """What an object holds of a kind's fields, and the rest of it."""
    try:
        exact_json.check_storable(value)
        fields = msgspec.convert(value, kind)
    except (exact_json.Unstorable, msgspec.ValidationError) as exc:
        raise Unfit(str(exc)) from None
    assert isinstance(value, dict)
    known = kind.__struct_encode_fields__
    return fields, {key: item for key, item in value.items() if key not in known}


def _as_json(record: msgspec.Struct, kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON object of those fields of a record that are set."""
    names = zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
    pairs = ((key, getattr(record, name)) for name, key in names)
    return {key: value for key, value in pairs if value is not UNSET}


# Where the files of the layout lie, as paths with "/" in them, and how a chat's folder is called.


SHIP = ".ship"
CHATS = f"{SHIP}/chat"
PROFILES = f"{SHIP}/profile"

HISTORY = "conversations/history.jsonl"
ACTIVE = "contexts/active.jsonl"
INDEX = "contexts/index.json"
MEMORY = "memory/Primary.md"

_ROLLED = re.compile(r"conversations/archive-([1-9][0-9]{0,8})\.jsonl")
_ARCHIVE = re.compile(r"contexts/archive/(ctx_[A-Za-z0-9_.-]+)\.json")
_PROFILE = re.compile(r"([^/]+)\.md")

# The numbers that files of moved lines may have.
MOST_FILES = 999_999_999
# Bytes that the name of a file has at most.
_LONGEST = 255

# What encodeURIComponent of ECMAScript leaves as it is, besides letters and digits.
_AS_IS = "-_.!~*'()"


def folder_of(chat_key: str) -> str | None:
    """The name of a chat's folder: its key as encodeURIComponent spells it. None where no folder can be."""
    try:
        name = quote(chat_key, safe=_AS_IS)
    except UnicodeEncodeError:
        return None
    return None if name in ("", ".", "..") or len(name) > _LONGEST else name


def key_of(folder: str) -> str | None:
    """The chat whose folder is called so; None where no chat's is."""
    try:
        chat_key = unquote(folder, errors="strict")
    except UnicodeDecodeError:
        return None
    return chat_key if folder_of(chat_key) == folder else None


def rolled(number: int) -> str:
    """The file of the transcript's lines that were moved out of the way as the `number`th."""
    return f"conversations/archive-{number}.jsonl"


def number_of(name: str) -> int | None:
    """The number of a file of moved lines; None for any other."""
    found = _ROLLED.fullmatch(name)
    return int(found[1]) if found else None


def archive_file(context_id: str) -> str:
    """The file of an archived context."""
    return f"contexts/archive/{context_id}.json"


def is_context(context_id: str) -> bool:
    """Whether a file of its folder can be called after an archived context, and is read again."""
    name = archive_file(context_id)
    return context_of(name) == context_id and len(name.rpartition("/")[2]) <= _LONGEST


def context_of(name: str) -> str | None:
    """The archived context that a file holds by its name; None for any other file."""
    found = _ARCHIVE.fullmatch(name)
    return found[1] if found else None


def profile_file(persona: str) -> str:
    """The name of a persona's file."""
    return f"{persona}.md"


def is_file_name(name: str) -> bool:
    """Whether a file of a folder can be called so, and is read again."""
    return "/" not in name and not name.startswith(".") and len(name.encode()) <= _LONGEST


def persona_of(name: str) -> str | None:
    """The persona whose text a file of the profiles' folder holds; None for any other."""
    found = _PROFILE.fullmatch(name)
    return found[1] if found else None
