"""What the files of the layout hold, as values: lines of transcripts, messages, archived contexts, the index.

A record is made of a JSON object by `of` of its kind, which raises Unfit naming what is wrong with it, and
becomes the same object again by `as_json`: keys that the layout does not know are kept in `extra`.
"""

from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeVar

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
