"""The tools of chats: what models are told of them, and what calls may hand in."""

from typing import Any

import pytest

from cardbox_cli.chat.context_tools import CHAT_TOOLS, LoadArguments, NewArguments, parse_arguments
from cardbox_cli.errors import InvalidInput, NotFound
from cardbox_cli.model.identity import check_tool


def test_there_are_four_chat_tools() -> None:
    assert list(CHAT_TOOLS) == [
        "chat_context_new",
        "chat_context_list",
        "chat_context_load",
        "chat_context_clear_active",
    ]


@pytest.mark.parametrize("name", CHAT_TOOLS)
def test_chat_tools_are_valid_and_match_their_argument_types(name: str) -> None:
    tool = CHAT_TOOLS[name]
    check_tool(tool.tool)
    assert tuple(tool.properties) == tool.takes.__struct_fields__


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("chat_context_new", {}, NewArguments()),
        ("chat_context_new", None, NewArguments()),
        ("chat_context_new", {"title": "退款", "reason": None}, NewArguments(title="退款")),
        ("chat_context_load", {"context_id": "ctx_1"}, LoadArguments(context_id="ctx_1")),
        (
            "chat_context_load",
            {"contextId": "ctx_1", "query": ""},
            LoadArguments(context_id="ctx_1", query=""),
        ),
        ("chat_context_load", {"query": "a plan"}, LoadArguments(query="a plan")),
    ],
)
def test_valid_arguments_are_parsed(name: str, given: Any, expected: object) -> None:
    assert parse_arguments(name, given) == expected


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("chat_context_new", {"titel": "a"}, "unknown field `titel`"),
        ("chat_context_new", {"title": 5}, r"Expected `str \| null`, got `int` - at `\$\.title`"),
        ("chat_context_new", [], "Expected `object`, got `array`"),
        ("chat_context_new", {"title": "a\0"}, "NUL"),
        ("chat_context_list", {"query": "a"}, "unknown field `query`"),
        ("chat_context_load", {}, "context_id or query is required"),
        ("chat_context_load", {"query": " "}, "context_id or query is required"),
        ("chat_context_load", {"query": "a", "context_id": "b"}, "context_id and query cannot be combined"),
    ],
)
def test_the_error_names_an_invalid_argument(name: str, given: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{name}: .*{message}"):
        parse_arguments(name, given)


def test_an_unknown_tool_is_refused_with_a_suggestion() -> None:
    with pytest.raises(
        NotFound, match="unknown chat tool 'chat_context_ned'; did you mean 'chat_context_new'"
    ):
        parse_arguments("chat_context_ned", {})
