"""Contents of cards: a union of classes, tagged by the key `__type__`.

The names, keys and rules equal those of the card-box library (cardbox 0.0.1, `structures.py`), so that both
can read each other's rows. A key that a stored row lacks stays absent. This module decodes and validates
contents. Other modules decide how a content is shown or sent.
"""

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, cast
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, UnsetType

from cardbox_cli.errors import InvalidCard
from cardbox_cli.model import exact_json
from cardbox_cli.text.error_messages import json_type

# JSON has no infinity, which a float would become if its number is too large.
FiniteFloat: TypeAlias = Annotated[float, msgspec.Meta(ge=-sys.float_info.max, le=sys.float_info.max)]


class _Content(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="__type__", tag=True, gc=False
):
    pass


class TextContent(_Content, frozen=True):
    text: str


class JsonContent(_Content, frozen=True):
    """A JSON object or array."""

    data: dict[str, Any] | list[Any]


# The `kind` of a JSON content that replaces a missing deliverable, and explains why it is missing.
FALLBACK = "fallback_deliverable"


def is_fallback(content: object) -> bool:
    data = content.data if isinstance(content, JsonContent) else None
    return isinstance(data, dict) and data.get("kind") == FALLBACK


class FieldSchema(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    description: str = ""

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise ValueError("a field needs a non-empty name")


class FieldsSchemaContent(_Content, frozen=True):
    fields: list[FieldSchema]


class ToolContent(_Content, frozen=True):
    tools: list[dict[str, Any]]


class ToolCallContent(_Content, frozen=True):
    """A tool call that must be executed. The card of the thought has the model's call in `tool_calls`."""

    tool_name: str
    arguments: dict[str, Any]
    status: str
    target_subject: str | UnsetType | None = UNSET


class ToolResultContent(_Content, frozen=True):
    """Result of a tool. `error`, an object with `code` and `message`, is present only after a failure."""

    status: str
    after_execution: Literal["suspend", "terminate"]
    result: Any = UNSET
    error: Any = UNSET

    def __post_init__(self) -> None:
        if not self.status.strip():
            raise ValueError("status must not be empty")
        error = self.error
        if self.status == "success":
            if error is not UNSET and error is not None:
                raise ValueError("error must be absent when status is 'success'")
        elif not (isinstance(error, dict) and error.get("code") and error.get("message")):
            raise ValueError(f"error must be an object with code and message when status is {self.status!r}")


class PreviewImage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    uri: str
    content_type: str | UnsetType | None = UNSET
    width: int | UnsetType | None = UNSET
    height: int | UnsetType | None = UNSET
    size: int | UnsetType | None = UNSET
    checksum: str | UnsetType | None = UNSET
    etag: str | UnsetType | None = UNSET
    source_frame_ts: FiniteFloat | UnsetType | None = UNSET

    def __post_init__(self) -> None:
        _check_uri(self.uri)


class FileContent(_Content, frozen=True):
    """A file outside the database. `size` is in bytes, `expires_at` an RFC 3339 time."""

    uri: str
    checksum: str
    etag: str | UnsetType | None = UNSET
    size: int | UnsetType | None = UNSET
    content_type: str | UnsetType | None = UNSET
    expires_at: str | UnsetType | None = UNSET
    preview: PreviewImage | UnsetType | None = UNSET

    def __post_init__(self) -> None:
        _check_uri(self.uri)
        if not self.checksum:
            raise ValueError("checksum must not be empty")


class ImageFileContent(FileContent, frozen=True):
    """A picture. `width` and `height` are in pixels."""

    width: int | UnsetType | None = UNSET
    height: int | UnsetType | None = UNSET
    format: str | UnsetType | None = UNSET


class PdfFileContent(FileContent, frozen=True):
    page_count: int | UnsetType | None = UNSET


class TextFileContent(FileContent, frozen=True):
    """A text file."""


class VideoFileContent(FileContent, frozen=True):
    """A video. `bitrate` is in bits per second."""

    duration_seconds: FiniteFloat | UnsetType | None = UNSET
    width: int | UnsetType | None = UNSET
    height: int | UnsetType | None = UNSET
    codec: str | UnsetType | None = UNSET
    bitrate: int | UnsetType | None = UNSET


class AudioFileContent(FileContent, frozen=True):
    """A sound. `bitrate` is in bits per second."""

    duration_seconds: FiniteFloat | UnsetType | None = UNSET
    codec: str | UnsetType | None = UNSET
    bitrate: int | UnsetType | None = UNSET


AnyFile: TypeAlias = (
    FileContent | ImageFileContent | PdfFileContent | TextFileContent | VideoFileContent | AudioFileContent
)


class MultiFileContent(_Content, frozen=True):
    files: list[AnyFile]

    def __post_init__(self) -> None:
        if not self.files:
            raise ValueError("files must not be empty")


Content: TypeAlias = (
    TextContent
    | JsonContent
    | FieldsSchemaContent
    | ToolContent
    | ToolCallContent
    | ToolResultContent
    | AnyFile
    | MultiFileContent
)

# A stored content of an unknown class remains a dict. In a row of another program, the content may be null.
if TYPE_CHECKING:
    StoredContent: TypeAlias = Content | dict[str, Any] | None
else:
    # msgspec can decode this union. It refuses a union of tagged classes and dict.
    StoredContent = Content | None


def parse_content(data: Any) -> Content:
    """Convert an object with `__type__` to its content class. Raises InvalidCard, which names a bad key."""
    if not isinstance(data, dict) or "__type__" not in data:
        raise InvalidCard(
            "content must be an object with the key '__type__'",
            hint='for example {"__type__": "TextContent", "text": "hello"}',
        )
    try:
        return cast(Content, msgspec.convert(data, Content))
    except (msgspec.ValidationError, OverflowError) as exc:
        raise InvalidCard(f"content of class {data['__type__']!r} is invalid: {exc}") from exc


def content_from_value(value: Any) -> Content:
    if isinstance(value, str):
        return TextContent(value)
    if isinstance(value, dict | list):
        return JsonContent(value)
    return TextContent(exact_json.encode(value).decode())


def fields_schema(value: Any) -> FieldsSchemaContent:
    """Convert a list of objects with `name` and `description` to a schema of fields.

    Ignores other keys, because the class cannot hold them. Raises InvalidCard, which names the invalid item.
    """
    if not isinstance(value, list):
        raise InvalidCard(f"must be a list of objects with name and description, not {json_type(value)}")
    return FieldsSchemaContent([_field_schema(item, index) for index, item in enumerate(value)])


def _field_schema(item: Any, index: int) -> FieldSchema:
    if not isinstance(item, dict):
        raise InvalidCard(f"[{index}] must be an object with name and description, not {json_type(item)}")
    for key in ("name", "description"):
        if not isinstance(item.get(key), str):
            raise InvalidCard(f"[{index}] needs {key!r} as a string")
    if not item["name"].strip():
        raise InvalidCard(f"[{index}] needs a non-empty 'name'")
    return FieldSchema(item["name"], item["description"])


def tool_definitions(value: Any) -> ToolContent:
    """Convert a list of tools, or an object with this list as `tools`. Raises InvalidCard."""
    tools = listed_tools(value)
    if tools is None:
        raise InvalidCard(
            "must be a list of tools, which are objects, or an object with such a list as 'tools'"
        )
    return ToolContent(tools)


def listed_tools(value: Any) -> list[dict[str, Any]] | None:
    """Return the tools in a list, or in an object that has the key `tools` alone; None for other values."""
    if isinstance(value, dict) and set(value) == {"tools"}:
        value = value["tools"]
    return value if isinstance(value, list) and all(isinstance(tool, dict) for tool in value) else None


_RESULT_KEYS = frozenset({"status", "after_execution", "result", "error"})


def tool_result(value: Any) -> Content:
    """Convert an object with a status and a result or an error; the turn continues unless it says otherwise.

    Any other value, such as the result alone, is plain text or JSON.
    """
    is_result = isinstance(value, dict) and "status" in value and set(value) <= _RESULT_KEYS
    if is_result and not {"result", "error"}.isdisjoint(value):
        typed = {"after_execution": "suspend", **value, "__type__": "ToolResultContent"}
        with suppress(msgspec.ValidationError):
            return cast(Content, msgspec.convert(typed, ToolResultContent))
    return content_from_value(value)


def _check_uri(uri: str) -> None:
    parts = urlsplit(uri)
    if parts.scheme not in ("s3", "https"):
        raise ValueError(f"uri {uri!r} must be s3://bucket/key or https://host/path")
    segments = [segment for segment in parts.path.split("/") if segment]
    needed = 2 if parts.scheme == "s3" and parts.netloc == "localhost" else 1
    if not parts.netloc or len(segments) < needed:
        lacking = "bucket or key" if parts.scheme == "s3" else "host or path"
        raise ValueError(f"uri {uri!r} lacks its {lacking}")
