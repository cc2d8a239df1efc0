"""Which format a file is taken to be in."""

import json
from typing import Any

import pytest

from cardbox_cli.conversations.formats.registry import choose_format, find_format, format_names
from cardbox_cli.errors import UsageError
from tests.conversations.anthropic_messages import FOUND, IMAGE, RESULT, THINKING, USE, assistant, user
from tests.conversations.reading import documents_in

HI = {"role": "user", "content": "Hi"}
TEXT_BLOCK = user({"type": "text", "text": "Hi"})
CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]}
LINE = {"type": "user", "sessionId": "s", "uuid": "u", "message": HI}
SUMMARY = {"type": "summary", "summary": "S", "leafUuid": "u"}


def jsonl(*documents: Any) -> str:
    return "\n".join(map(json.dumps, documents))


@pytest.mark.parametrize(
    ("document", "name"),
    [
        ([HI], "openai"),
        ([], "openai"),
        (HI, "openai"),
        ([TEXT_BLOCK], "openai"),
        ({"messages": [HI]}, "openai"),
        ([HI, CALL], "openai"),
        ([HI, {"role": "tool", "tool_call_id": "c", "content": "x"}], "openai"),
        ([{"role": "developer", "content": "x"}], "openai"),
        ([{"role": "system", "content": "x"}, HI], "openai"),
        ([user({"type": "image_url", "image_url": {"url": "https://h"}})], "openai"),
        ({"system": "x", "messages": [CALL]}, "openai"),
        ([{"messages": [HI]}, {"messages": [CALL]}], "openai"),
        ({"system": "x", "messages": [HI]}, "anthropic"),
        ({"request": {"body": {"system": [], "messages": [HI]}}}, "anthropic"),
        ({"messages": [HI], "tools": [{"name": "f", "input_schema": {}}]}, "anthropic"),
        ([HI, assistant(USE)], "anthropic"),
        ([user(RESULT)], "anthropic"),
        ([assistant(THINKING)], "anthropic"),
        ([user(IMAGE)], "anthropic"),
        ([assistant(FOUND)], "anthropic"),
        (assistant(USE), "anthropic"),
        ([[HI], [assistant(USE)]], "anthropic"),
        (jsonl(HI, assistant(USE)), "anthropic"),
        (jsonl({"messages": [HI]}, {"messages": [user(RESULT)]}), "anthropic"),
        (jsonl(LINE), "claude-code"),
        (jsonl(SUMMARY, LINE), "claude-code"),
        (jsonl(SUMMARY), "claude-code"),
        ([SUMMARY, LINE], "claude-code"),
        (jsonl(LINE, {"type": "system", "content": "x"}), "claude-code"),
        (jsonl({"type": "chat", "sessionId": "s", "messages": [HI]}), "openai"),
        (jsonl({"type": "message", "sessionId": "s", **HI}), "openai"),
        (jsonl({"type": "user"}), "openai"),
        ("3", "openai"),
        ({"contents": [{"role": "user", "parts": "x"}]}, "gemini"),
    ],
)  # fmt: skip
def test_the_format_of_a_file_is_detected(document: Any, name: str) -> None:
    text = document if isinstance(document, str) else json.dumps(document)
    assert name == choose_format(None, documents_in(text)).format.name


@pytest.mark.parametrize("name", format_names())
def test_a_given_format_name_overrides_detection(name: str) -> None:
    assert name == choose_format(name, documents_in("[]")).format.name


def test_a_claude_code_session_refuses_a_message_key() -> None:
    with pytest.raises(UsageError) as raised:
        list(find_format("claude-code").read(documents_in(json.dumps(LINE)), at="messages"))
    assert str(raised.value) == "--at messages: a Claude Code session has no key for messages"
    assert raised.value.hint == "omit --at"
