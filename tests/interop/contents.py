"""One sample of each content class, with every field, as both programs spell it in a stored row."""

from typing import Any

_PREVIEW = {"uri": "s3://pictures/small.png", "content_type": "image/png", "width": 64, "height": 48,
            "size": 900, "checksum": "c1", "etag": "e1", "source_frame_ts": 1.5}  # fmt: skip
_FILE = {"uri": "s3://files/a/b", "checksum": "sha256:00", "etag": "e0", "size": 12,
         "content_type": "application/octet-stream", "expires_at": "2031-02-03T04:05:06Z",
         "preview": _PREVIEW}  # fmt: skip

CONTENTS: dict[str, dict[str, Any]] = {
    "TextContent": {"text": "Grüße, 世界 \u2028 \U0001f600 \x1b[31m"},
    "JsonContent": {"data": {"sum": 12345678901234567890, "rate": 1.10, "none": None, "ärger": [True, {}]}},
    "FieldsSchemaContent": {"fields": [{"name": "total", "description": "in EUR"}]},
    "ToolContent": {"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]},
    "ToolCallContent": {
        "tool_name": "f",
        "arguments": {"x": 1},
        "status": "called",
        "target_subject": "cg.p.cmd.tool.f",
    },
    "ToolResultContent": {
        "status": "failed",
        "after_execution": "suspend",
        "result": {"partial": [1, 2]},
        "error": {"code": "timeout", "message": "too late"},
    },
    "FileContent": _FILE,
    "ImageFileContent": {**_FILE, "width": 640, "height": 480, "format": "png"},
    "PdfFileContent": {**_FILE, "page_count": 3},
    "TextFileContent": _FILE,
    "VideoFileContent": {**_FILE, "duration_seconds": 2.5, "width": 1, "height": 1, "codec": "av1",
                         "bitrate": 9},
    "AudioFileContent": {**_FILE, "duration_seconds": 2.5, "codec": "opus", "bitrate": 9},
    "MultiFileContent": {"files": [{"__type__": "FileContent", **_FILE},
                                   {"__type__": "PdfFileContent", **_FILE, "page_count": 3}]},
}  # fmt: skip

# What cannot be left out of a class.
_NEEDED = {"uri", "checksum", "text", "data", "fields", "tools", "tool_name", "arguments", "status",
           "after_execution", "error", "files"}  # fmt: skip


def full(name: str) -> dict[str, Any]:
    """The content with every field."""
    return {"__type__": name, **CONTENTS[name]}


def sparse(name: str) -> dict[str, Any]:
    """The content without what can be left out."""
    return {key: value for key, value in full(name).items() if key in _NEEDED | {"__type__"}}


def given(content: Any) -> Any:
    """`content` without the nulls that stand for a field that was left out."""
    if isinstance(content, dict) and "__type__" in content and content["__type__"] != "JsonContent":
        return {key: given(value) for key, value in content.items() if value is not None}
    if isinstance(content, list):
        return [given(item) for item in content]
    return content
