"""Where the conversations of a file are."""

import json
from typing import Any

import pytest

from cardbox_cli.conversations.message_lists import MessageList, find_messages
from cardbox_cli.errors import InvalidConversation
from tests.conversations.reading import documents_in

A = {"role": "user", "content": "a"}
B = {"role": "assistant", "content": "b"}


def found(document: Any, at: str | None = None) -> list[list[Any]]:
    text = document if isinstance(document, str) else json.dumps(document)
    return [list(each.messages) for each in read(text, at)]


def read(text: str, at: str | None = None) -> list[MessageList]:
    return list(find_messages(documents_in(text), at))


def lines(*documents: Any) -> str:
    return "\n".join(map(json.dumps, documents)) + "\n"


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ([A, B], [[A, B]]),
        ({"messages": [A, B]}, [[A, B]]),
        ({"messages": []}, [[]]),
        ({"messages": [{"content": "no role"}, A, "no object"]}, [[{"content": "no role"}, A, "no object"]]),
        ([A, {"content": "no role"}], [[A, {"content": "no role"}]]),
        ({"traj": [A], "tools": [{"name": "t"}]}, [[A]]),
        ({"request": {"body": {"messages": [A]}}, "n": 1}, [[A]]),
        ([{"traj": [A]}, {"traj": [B]}], [[A], [B]]),
        ([[A], [B], []], [[A], [B], []]),
        ([], []),
        ([[[A], [B]], [{"messages": [A]}]], [[A], [B], [A]]),
        ([[[[A]]]], [[A]]),
        (lines(A, B), [[A, B]]),
        (lines({"messages": [A]}, {"messages": [B]}), [[A], [B]]),
        (lines([A], [B]), [[A], [B]]),
        ("\n" + lines({"messages": [A]}) + "\n\n" + lines({"messages": [B]}), [[A], [B]]),
        (json.dumps(A), [[A]]),
    ],
)
def test_conversations_are_found_automatically(document: Any, expected: list[list[Any]]) -> None:
    assert found(document) == expected


@pytest.mark.parametrize(
    ("document", "at", "expected"),
    [
        ({"a": [A], "b": [B]}, "b", [[B]]),
        ([{"x": {"y": [A]}}, {"x": {"y": [B]}}], "x.y", [[A], [B]]),
        (lines({"t": [A]}, {"t": []}), "t", [[A], []]),
        ({"a.b": {"messages": [A], "c": [B]}}, "a.b.messages", [[A]]),
        ({"x": {"a.b.c": [A], "d": [B]}}, "x.a.b.c", [[A]]),
        ({"samples": [{"messages": [A]}, {"messages": [B]}]}, "samples.messages", [[A], [B]]),
        ({"log": {"runs": [[A], [B]]}}, "log.runs", [[A], [B]]),
        ([{"agents": [{"m": [[A], [B]]}]}, {"agents": []}], "agents.m", [[A], [B]]),
        # One without messages is one that says nothing.
        ({"a": [{"t": [A]}, {"u": []}, {}, None, {"t": None}, {"t": []}, {"t": [B]}]}, "a.t", [[A], [], [], [], [], [], [B]]),
        ([{"t": [A]}, {"u": [{"b": 1}]}, {"t": None, "u": [B]}], "t", [[A], [], []]),
        (lines({"error": "timeout"}, {"t": [B]}), "t", [[], [B]]),
        ({"log": [{"samples": [{"t": [A]}]}, {"samples": None}, {}]}, "log.samples.t", [[A], [], []]),
    ],
)  # fmt: skip
def test_conversations_are_found_at_the_given_key(document: Any, at: str, expected: list[list[Any]]) -> None:
    assert found(document, at) == expected


@pytest.mark.parametrize(
    ("document", "at", "message", "hint"),
    [
        ("", None, "f is empty", "give a JSON or JSONL file of messages"),
        ("{", None, "f:1:2: not JSON: Expecting property name enclosed in double quotes", "give a JSON or JSONL file of messages"),
        ('{"messages": []}\n{oops}\n', None, "f:2:2: not JSON: Expecting property name enclosed in double quotes", "give a JSON or JSONL file of messages"),
        ("3", None, "f: no messages found", "pass the messages' key: --at KEY; the conversation is not an object"),
        ({"a": 1, "b": []}, None, "f: no messages found", "pass the messages' key: --at KEY; its keys are 'a', 'b'"),
        ({"log": {"samples": [{"messages": [A]}]}}, None, "f: no messages found", "pass the messages' key: --at log.samples.messages"),
        ({"a": [{}, {"u": 5}]}, "a.t", "f: a[0]: no list of messages at 'a.t'", "the object is empty"),
            ([{"t": [A]}, {"u": [B]}], "t", "f[1]: no list of messages at 't'", "its keys are 'u'"),
            ([{"a": [{"t": [A]}]}, {"b": [{"t": [B]}]}], "a.t", "f[1]: no list of messages at 'a.t'", "its keys are 'b'"),
        ({"a": [{"t": [A]}, {"t": 5}]}, "a.t", "f: a[1]: no list of messages at 'a.t'", "the conversation is not an object"),
        ({"a": [{"t": [A]}, 5]}, "a.t", "f: a[1]: no list of messages at 'a.t'", "the conversation is not an object"),
        ({"a": [{"t": [A]}, {"t": {"x": [B]}}]}, "a.t", "f: a[1]: no list of messages at 'a.t'", "its keys are 'x'"),
        ({"a": [A], "b": [B]}, None, "f: several keys hold messages: a, b", "choose one, for example --at a"),
        ({"a" * 99: [A], **{key: [B] for key in "bcdefghij"}}, None, f"f: several keys hold messages: {'a' * 79}…, b, c, d, e, f, g, h, and 2 more", f"choose one, for example --at {'a' * 79}…"),
        ([{"u": [A]}, {"u": [B]}], "t", "f[0]: no list of messages at 't'", "its keys are 'u'"),
        ("1e99999999999999999999", None, "f:1:1: the number 1e99999999999999999999 is too large for JSONB", None),
    ],
)  # fmt: skip
def test_a_file_without_messages_is_refused_with_a_hint(
    document: Any, at: str | None, message: str, hint: str | None
) -> None:
    with pytest.raises(InvalidConversation) as raised:
        found(document, at)
    assert (raised.value.message, raised.value.hint) == (message, hint)


def test_the_id_and_title_of_a_conversation_are_read() -> None:
    text = json.dumps(
        [{"id": 7, "title": "T", "messages": [A]}, {"session_id": "s", "id": "x", "messages": [A]}, [A]]
    )
    conversations = [(each.conversation("openai", []), each.place) for each in read(text)]
    ids = [(each.own_id, each.title, place) for each, place in conversations]
    assert ids == [("7", "T", "f[0]"), ("s", None, "f[1]"), (None, None, "f[2]")]
