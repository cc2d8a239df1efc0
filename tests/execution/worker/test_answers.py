"""What commands print, as cards: pure, so that every output can be tried."""

import json
from collections.abc import Collection, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardbox_cli.execution.tool_calls import Author, ToolCall, calls_of, result_card
from cardbox_cli.execution.worker.step_answers import (
    AUTO_RULES,
    EMPTY,
    INVALID,
    PROVIDER,
    AnswerRules,
    InvalidAnswer,
    StepAnswer,
    read_answer,
)
from cardbox_cli.model.cards import CardDraft, card_text, check_draft
from cardbox_cli.model.content import ToolCallContent, ToolResultContent
from cardbox_cli.providers.anthropic.blocks import content_of
from cardbox_cli.providers.registry import PROVIDERS, provider_named

AUTHOR = Author(agent_id="ada", agent_turn_id="turn_1", step_id="step_1", trace_id="t")
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "sky"}'}}


def read(
    stdout: Any, held: Collection[str] = (), rules: AnswerRules = AUTO_RULES
) -> StepAnswer | InvalidAnswer:
    def holds(ids: Sequence[str]) -> set[str]:
        return set(ids) & set(held)

    printed = stdout if isinstance(stdout, bytes) else json.dumps(stdout).encode()
    return read_answer(printed, AUTHOR, holds, rules)


def answer(stdout: Any, held: Collection[str] = (), rules: AnswerRules = AUTO_RULES) -> StepAnswer:
    found = read(stdout, held, rules)
    assert isinstance(found, StepAnswer), found
    return found


def said(found: StepAnswer) -> list[tuple[str, str]]:
    return [(card.type, card_text(card.content)) for card in found.cards]


def message(**parts: Any) -> dict[str, Any]:
    return {"role": "assistant", **parts}


FINISHED = [("agent.thought", "done"), ("task.deliverable", "done")]


@pytest.mark.parametrize(
    "printed",
    [
        b"done",
        b"\n  done\r\n",
        b"\xef\xbb\xbfdone",
        message(content="done"),
        message(content="done", refusal=None, annotations=[], tool_calls=None),
        message(content=None, refusal="done"),
        message(content=[{"type": "text", "text": "done"}]),
        {"id": "x", "choices": [{"index": 0, "message": message(content="done"), "finish_reason": "stop"}]},
        {"choices": [{"message": {"content": "done"}}]},
        {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "done"}]},
    ],
)
def test_an_answer_without_tool_calls_is_the_deliverable(printed: Any) -> None:
    assert said(answer(printed)) == FINISHED


@pytest.mark.parametrize(
    "text",
    [
        '{"answer": 42}',
        "[1, 2]",
        '{"role": "user", "content": "x"}',
        '{"type": "tool.result", "content": {"__type__": "TextContent", "text": "yes"}}',
        "{half",
        "{name}, see [1] and {2}",
        "[INFO] done",
        "[{x}](y)",
    ],
)
def test_json_that_is_not_a_message_is_text(text: str) -> None:
    assert said(answer(text.encode())) == [("agent.thought", text), ("task.deliverable", text)]


def test_every_card_names_its_turn_step_and_author() -> None:
    for card in answer(message(content="x", tool_calls=[CALL])).cards:
        assert {
            "agent_turn_id": "turn_1",
            "step_id": "step_1",
            "trace_id": "t",
            "author_id": "ada",
        }.items() <= card.metadata.items()


@pytest.mark.parametrize(
    "printed",
    [
        message(content="hm", tool_calls=[CALL]),
        {"choices": [{"message": message(content="hm", tool_calls=[CALL])}]},
        # As some servers spell it.
        message(
            content="hm", tool_calls=[{"id": "c1", "function": {"name": "look", "arguments": {"at": "sky"}}}]
        ),
        {
            "type": "message",
            "role": "assistant",
            "content": [
                {"type": "text", "text": "hm"},
                {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "sky"}},
            ],
        },
    ],
)
def test_tool_calls_are_scheduled_and_there_is_no_deliverable(printed: Any) -> None:
    found = answer(printed)
    thought, scheduled = found.cards
    assert (thought.type, card_text(thought.content)) == ("agent.thought", "hm")
    assert scheduled.content == ToolCallContent("look", {"at": "sky"}, "called")
    assert scheduled.tool_call_id == scheduled.metadata["tool_call_id"] == "c1"
    assert [(call.tool_call_id, call.tool_name, call.input) for call in found.calls] == [
        ("c1", "look", {"at": "sky"})
    ]


def test_a_legacy_function_call_is_a_tool_call() -> None:
    [call] = answer(message(content=None, function_call={"name": "look", "arguments": "{}"})).calls
    assert call.tool_call_id.startswith("tc_")
    assert call.tool_name == "look"


@pytest.mark.parametrize(
    "given",
    [
        "",
        " ",
        "held",
        "x" * 256,
        None,
        7,
        "-rf",
        "@last",
        "tc_1\nerror: x",
        "tc\x1b[2J",
        "tc\u202e",
        "tc\u2028",
    ],
)
def test_invalid_ids_are_replaced_in_the_call_and_the_thought(given: Any) -> None:
    found = answer(message(content=None, tool_calls=[{**CALL, "id": given}]), held={"held"})
    thought, scheduled = found.cards
    [call] = calls_of(thought)
    assert call.tool_call_id == scheduled.tool_call_id == found.calls[0].tool_call_id
    assert call.tool_call_id.startswith("tc_")


def test_a_repeated_id_in_a_message_is_replaced() -> None:
    first, second = answer(message(content=None, tool_calls=[CALL, CALL])).calls
    assert first.tool_call_id == "c1"
    assert second.tool_call_id.startswith("tc_")


def test_ids_are_replaced_in_anthropic_blocks_too() -> None:
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "tool_use", "id": "held", "name": "look", "input": {}},
    ]
    found = answer({"type": "message", "role": "assistant", "content": blocks}, held={"held"})
    reasoning, thought, _ = found.cards
    assert reasoning.metadata["source_group"] == thought.metadata["source_group"]
    assert content_of(reasoning, provider_named("anthropic")) == blocks[:1]
    assert content_of(thought, provider_named("anthropic")) == [
        {**blocks[1], "id": found.calls[0].tool_call_id}
    ]


def test_reasoning_is_sent_back_unchanged() -> None:
    [thought, _] = answer(message(content="done", reasoning_content="hm")).cards
    assert thought.metadata["reasoning_content"] == "hm"
    assert provider_named("openai").encode(as_card(thought)) == message(
        content="done", reasoning_content="hm"
    )


@pytest.mark.parametrize("arguments", ["{half", "[1]", "7", '{"a": NaN}', "null"])
def test_arguments_that_are_not_an_object_are_stored_unchanged(arguments: str) -> None:
    found = answer(
        message(content=None, tool_calls=[{**CALL, "function": {"name": "look", "arguments": arguments}}])
    )
    thought, scheduled = found.cards
    assert thought.tool_calls is not None
    assert thought.tool_calls[0]["function"]["arguments"] == arguments
    assert isinstance(scheduled.content, ToolCallContent)
    assert found.calls[0].input is None
    assert scheduled.content.arguments == {"_raw": arguments}


def test_the_usage_of_a_response_is_stored() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 4}
    assert answer({"choices": [{"message": message(content="x")}], "usage": usage}).usage == usage
    assert answer(message(content="x")).usage is None


@pytest.mark.parametrize(
    ("printed", "bad"),
    [
        (b"", InvalidAnswer(EMPTY, "the command printed nothing")),
        (b" \n", InvalidAnswer(EMPTY, "the command printed nothing")),
        (message(content=""), InvalidAnswer(EMPTY, "the model's message is empty and calls no tool")),
        (b"\xff", InvalidAnswer(INVALID, "the output is not UTF-8: byte 0 is 0xff")),
        (
            b"a\x00b",
            InvalidAnswer(INVALID, "the answer cannot be stored: it holds a NUL character at offset 1"),
        ),
        (
            message(content="\ud800"),
            InvalidAnswer(INVALID, "the answer cannot be stored: content holds a lone surrogate at offset 0"),
        ),
        (
            message(content={"a": 1}),
            InvalidAnswer(INVALID, "the content of the message is neither text nor a list"),
        ),
        (message(content="x", tool_calls=[{}]), InvalidAnswer(INVALID, "tool_calls[0] names no function")),
        (message(content="x", tool_calls={"a": 1}), InvalidAnswer(INVALID, "tool_calls is not a list")),
        (
            message(content=[{"type": "tool_use", "name": "f"}]),
            InvalidAnswer(INVALID, "content[0] is not a call: it needs a name, and an object as its input"),
        ),
        ({"choices": []}, InvalidAnswer(INVALID, "the response has no choices[0].message")),
        (
            {"error": {"message": "no key", "type": "auth"}},
            InvalidAnswer(PROVIDER, "the provider returned an error: no key"),
        ),
        (
            {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}},
            InvalidAnswer(PROVIDER, "the provider returned an error: busy"),
        ),
        (
            {"error": "no such model"},
            InvalidAnswer(PROVIDER, "the provider returned an error: no such model"),
        ),
    ],
)
def test_invalid_output_is_refused(printed: Any, bad: InvalidAnswer) -> None:
    assert read(printed) == bad


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["id", "type", "name", "function", "arguments", "text", "input", "role", "content", "message"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
# Calls and texts of each provider's, which may lack anything.
_call = st.dictionaries(st.sampled_from(["id", "toolUseId", "name", "args", "input"]), _json, max_size=3)
_parts = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["function_call", "custom_tool_call", "message", "reasoning"]),
        "functionCall": _call | _json,
        "toolUse": _call | _json,
        "text": _json,
        "name": _json,
        "call_id": _json,
        "arguments": _json,
        "content": _json,
        "summary": _json,
        "reasoningContent": _json,
        "toolResult": _json,
        "citationsContent": _json,
        "functionResponse": _json,
    },
)
_contents = _json | st.fixed_dictionaries(
    {"role": st.sampled_from(["model", "assistant"])},
    optional={key: _json | st.lists(_parts | _json, max_size=3) for key in ("parts", "content")},
)
_responses = st.one_of(
    _json,
    st.fixed_dictionaries(
        {"role": st.just("assistant")}, optional={"content": _json, "tool_calls": _json, "refusal": _json}
    ),
    st.fixed_dictionaries({"choices": st.lists(st.fixed_dictionaries({"message": _json}), max_size=1)}),
    st.fixed_dictionaries(
        {
            "type": st.just("message"),
            "role": st.just("assistant"),
            "content": st.lists(
                st.fixed_dictionaries(
                    {"type": st.sampled_from(["text", "thinking", "tool_use", "x"])},
                    optional={"id": _json, "name": _json, "input": _json, "text": _json},
                ),
                max_size=3,
            ),
        }
    ),
    st.fixed_dictionaries({"object": st.just("response"), "output": _json | st.lists(_parts, max_size=3)}),
    st.fixed_dictionaries(
        {"candidates": st.lists(st.fixed_dictionaries({"content": _contents}), max_size=1)}
    ),
    st.fixed_dictionaries({"output": st.fixed_dictionaries({"message": _contents})}),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["agent.thought", "tool.result"]), "content": _json},
        optional={"tool_calls": _json},
    ),
)


_rules = st.builds(
    AnswerRules,
    mode=st.sampled_from(["auto", "response", "text", "cards"]),
    format=st.sampled_from([*PROVIDERS, "text"]),
)


@given(st.binary(max_size=50) | _responses.map(lambda value: json.dumps(value).encode()), _rules)
def test_any_output_is_an_answer_or_refused(printed: bytes, rules: AnswerRules) -> None:
    found = read(printed, rules=rules)
    if isinstance(found, InvalidAnswer):
        assert found.message
        return
    assert found.cards
    for card in found.cards:
        check_draft(card)
    assert len({call.tool_call_id for call in found.calls}) == len(found.calls)


@pytest.mark.parametrize(
    ("result", "failure", "content"),
    [
        ({"a": 1}, None, ToolResultContent("success", "suspend", result={"a": 1})),
        ("", None, ToolResultContent("success", "suspend", result="")),
        (
            None,
            ("exit_1", "no"),
            ToolResultContent("failed", "suspend", result=None, error={"code": "exit_1", "message": "no"}),
        ),
    ],
)
def test_a_result_card_has_the_result_or_the_error_of_its_call(
    result: Any, failure: tuple[str, str] | None, content: ToolResultContent
) -> None:
    call = ToolCall(tool_call_id="c1", tool_name="look", arguments="{}")
    card = result_card(call, AUTHOR, result=result, failure=failure)
    assert card.content == content
    assert (card.tool_call_id, card.metadata["function_name"], card.role) == ("c1", "look", "tool")


def as_card(draft: CardDraft) -> Any:
    from cardbox_cli.model.cards import Card

    stored = dict.fromkeys(("author_id", "expires_at", "deleted_at"))
    own = {name: getattr(draft, name) for name in CardDraft.__struct_fields__}
    return Card(project_id="p", type=draft.type, role=draft.role, **stored, **own)
