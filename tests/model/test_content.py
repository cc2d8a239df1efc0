import msgspec
import pytest

from cardbox_cli.errors import InvalidCard
from cardbox_cli.model import exact_json
from cardbox_cli.model.content import fields_schema, parse_content

VALID = [
    {"__type__": "TextContent", "text": ""},
    {"__type__": "JsonContent", "data": {"a": [1, None]}},
    {"__type__": "JsonContent", "data": []},
    {"__type__": "FieldsSchemaContent", "fields": [{"name": "a", "description": "b"}]},
    {"__type__": "ToolContent", "tools": [{"type": "function"}]},
    {"__type__": "ToolCallContent", "tool_name": "t", "arguments": {}, "status": "called"},
    {
        "__type__": "ToolCallContent",
        "tool_name": "t",
        "arguments": {},
        "status": "called",
        "target_subject": None,
    },
    {"__type__": "ToolResultContent", "status": "success", "after_execution": "suspend", "result": None},
    {
        "__type__": "ToolResultContent",
        "status": "success",
        "after_execution": "suspend",
        "result": 1,
        "error": None,
    },
    {
        "__type__": "ToolResultContent",
        "status": "failed",
        "after_execution": "terminate",
        "error": {"code": "c", "message": "m", "more": 1},
    },
    {"__type__": "FileContent", "uri": "s3://bucket/key", "checksum": "c", "size": 3},
    {"__type__": "ImageFileContent", "uri": "https://host/path", "checksum": "c", "width": 4},
    {
        "__type__": "MultiFileContent",
        "files": [{"__type__": "PdfFileContent", "uri": "s3://bucket/key", "checksum": "c", "page_count": 2}],
    },
]


@pytest.mark.parametrize("stored", VALID, ids=lambda stored: stored["__type__"])
def test_content_survives_a_round_trip(stored: dict[str, object]) -> None:
    assert exact_json.decode(exact_json.encode(parse_content(stored))) == stored


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        ("text", "content must be an object with the key '__type__'"),
        ({"text": "a"}, "content must be an object with the key '__type__'"),
        (
            {"__type__": "Other"},
            "content of class 'Other' is invalid: Invalid value 'Other' - at `$.__type__`",
        ),
        (
            {"__type__": "TextContent"},
            "content of class 'TextContent' is invalid: Object missing required field `text`",
        ),
        (
            {"__type__": "TextContent", "text": "a", "x": 1},
            "content of class 'TextContent' is invalid: Object contains unknown field `x`",
        ),
        (
            {"__type__": "JsonContent", "data": 3},
            "content of class 'JsonContent' is invalid: Expected `object | array`, got `int` - at `$.data`",
        ),
        (
            {"__type__": "ToolResultContent", "status": "failed", "after_execution": "suspend"},
            "content of class 'ToolResultContent' is invalid: "
            "error must be an object with code and message when status is 'failed'",
        ),
        (
            {
                "__type__": "ToolResultContent",
                "status": "success",
                "after_execution": "suspend",
                "error": {"code": "c", "message": "m"},
            },
            "content of class 'ToolResultContent' is invalid: error must be absent when status is 'success'",
        ),
        (
            {"__type__": "FileContent", "uri": "file:///etc/passwd", "checksum": "c"},
            "content of class 'FileContent' is invalid: "
            "uri 'file:///etc/passwd' must be s3://bucket/key or https://host/path",
        ),
        (
            {"__type__": "FileContent", "uri": "s3://bucket", "checksum": "c"},
            "content of class 'FileContent' is invalid: uri 's3://bucket' lacks its bucket or key",
        ),
        (
            {"__type__": "MultiFileContent", "files": []},
            "content of class 'MultiFileContent' is invalid: files must not be empty",
        ),
    ],
)
def test_invalid_content_is_refused_with_its_place(stored: object, message: str) -> None:
    with pytest.raises(InvalidCard) as raised:
        parse_content(stored)
    assert raised.value.message == message


def test_fields_keep_only_name_and_description() -> None:
    schema = fields_schema([{"name": "a", "description": "b", "required": True}])
    assert msgspec.to_builtins(schema.fields) == [{"name": "a", "description": "b"}]
