"""What agents, worker targets and tools may be called, and what a tool's parameters may be."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardbox_cli.errors import InvalidInput
from cardbox_cli.model.identity import (
    NO_PARAMETERS,
    Tool,
    check_agent_id,
    check_label,
    check_tool,
    check_worker_target,
    is_subject_token,
)


def tool(**given: Any) -> Tool:
    standard = {
        "tool_name": "weather",
        "description": None,
        "parameters": NO_PARAMETERS,
        "target_subject": None,
        "after_execution": "suspend",
        "options": {},
    }
    return Tool(**{**standard, **given})


@given(st.text(max_size=20))
def test_a_subject_token_is_one_word_without_wildcards(text: str) -> None:
    if is_subject_token(text):
        assert text.split() == [text]
        assert text.isprintable()
        assert f"evt.agent.{text}.task".split(".") == ["evt", "agent", text, "task"]
        assert not set(text) & set("*>")


@pytest.mark.parametrize("text", ["researcher-1", "Агент", "svc1_x", "a:b", "018f2b64_abc", "x" * 255])
def test_single_words_are_subject_tokens(text: str) -> None:
    assert is_subject_token(text)


@pytest.mark.parametrize(
    "text", ["", " ", "a b", "a.b", "sys.operator", "*", "a>", "a\n", "\ud800", "x" * 256]
)
def test_other_texts_are_not_subject_tokens(text: str) -> None:
    assert not is_subject_token(text)


@pytest.mark.parametrize("check", [check_agent_id, check_worker_target])
def test_names_that_look_like_options_or_are_invisible_are_refused(check: Callable[[str], None]) -> None:
    for text, fault in (("-x", "begins with -"), ("@a", "begins with @"), ("a\u3164", "invisible character")):
        with pytest.raises(InvalidInput, match=fault):
            check(text)


@pytest.mark.parametrize("text", ["", "  ", "a\nb", "x" * 256, "\x00"])
def test_a_blank_long_or_multiline_label_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"must have 1 to 255 printable characters on one line"):
        check_label(text, "title")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tool_name": "web.search"}, "the tool name 'web.search' must be 1 to 64 letters, digits, '_' and '-'"),
        ({"tool_name": "x" * 65}, "must be 1 to 64 letters"),
        ({"tool_name": "--yes"}, "the tool name: '--yes' begins with -, like an option"),
        ({"tool_name": "fork_join"}, "the tool name 'fork_join' belongs to an internal handler"),
        ({"parameters": []}, 'the schema must be a JSON object with "type": "object", found a list'),
        ({"parameters": {}}, 'the schema must be a JSON object with "type": "object", found an object without it'),
        ({"parameters": {"type": "string"}}, "found an object without it"),
        ({"parameters": {"type": "object", "properties": []}}, '"properties" of the schema must be an object, found a list'),
        ({"parameters": {"type": "object", "properties": {"a": 1}}}, "the property 'a' of the schema must be an object, found a number"),
        ({"parameters": {"type": "object", "required": "a"}}, '"required" of the schema must be a list of names'),
        ({"parameters": {"type": "object", "required": [1]}}, '"required" of the schema must be a list of names'),
        ({"parameters": {"type": "object", "required": ["a"]}}, "\"required\" of the schema names 'a', which is not one of its properties"),
        ({"parameters": {"type": "object", "title": "\x00"}}, "tool 'weather': parameters.title: holds a NUL character at offset 0"),
        ({"description": "\ud800"}, "tool 'weather': description: holds a lone surrogate at offset 0"),
        ({"options": {"exec": " "}}, "the command of a tool must not be blank"),
        ({"options": {"timeout_seconds": 0}}, "the timeout of a tool must be a number of seconds above 0 and up to 1,000,000,000, not 0"),
        ({"options": {"timeout_seconds": float("inf")}}, "the timeout of a tool must be a number of seconds above 0 and up to 1,000,000,000, not inf"),
        ({"options": {"timeout_seconds": 1e300}}, "the timeout of a tool must be a number of seconds above 0 and up to 1,000,000,000, not 1e+300"),
        ({"after_execution": "resume"}, "after_execution must be suspend or terminate, not 'resume'"),
    ],
)  # fmt: skip
def test_invalid_tools_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_tool(tool(**given))
    assert said in refused.value.message


def test_a_valid_tool_is_accepted() -> None:
    city = {"type": "object", "properties": {"city": {"type": "string"}, "any": True}, "required": ["city"]}
    check_tool(tool(parameters=city, options={"exec": "cat", "timeout_seconds": 0.5}))


@pytest.mark.parametrize(
    ("options", "command", "seconds"),
    [
        ({}, None, None),
        ({"exec": "cat", "timeout_seconds": 2}, "cat", 2.0),
        ({"exec": "cat", "timeout_seconds": 10**400}, "cat", 1e9),
        ({"exec": "cat", "timeout_seconds": 1e300}, "cat", 1e9),
        ({"exec": " ", "suspend_timeout_seconds": 7}, None, 7.0),
        ({"exec": ["cat"], "timeout_seconds": "2"}, None, None),
        ({"timeout_seconds": True, "suspend_timeout_seconds": -1}, None, None),
    ],
)
def test_options_of_other_programs_are_read_if_valid(
    options: dict[str, Any], command: str | None, seconds: float | None
) -> None:
    stored = tool(options=options)
    assert (stored.command, stored.timeout_seconds) == (command, seconds)
