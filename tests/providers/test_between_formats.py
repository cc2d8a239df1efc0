"""What a request of one provider becomes for another: what is sent fits together, and what is lost is named."""

import json
from typing import Any, NamedTuple

import pytest

from cardbox_cli.context.lint.rule import lint
from cardbox_cli.context.losses import losses
from cardbox_cli.context.request import RequestEntry, request_of
from cardbox_cli.conversations.formats.registry import find_exporter, find_format
from cardbox_cli.model import exact_json
from cardbox_cli.providers.registry import provider_named
from tests.context.lint.cards import found, kept_answer, message, user
from tests.conversations.reading import documents_in, entries_of

Body = dict[str, Any]
HI: Body = {"role": "user", "content": "Hi"}


class Sent(NamedTuple):
    """The body, what is named as lost, and the rules that find an error."""

    body: Body
    lost: set[str]
    errors: set[str]


def entries(source: str, body: Body) -> list[RequestEntry]:
    [conversation] = find_format(source).read(documents_in(json.dumps(body)))
    return entries_of(conversation)


def sent(source: str, body: Body, target: str) -> Sent:
    """What a request of `source` is for `target`."""
    places, record = entries(source, body), provider_named(target)
    request = request_of(places, encode=record.encode)
    made = json.loads(exact_json.encode(record.body(request)))
    rules = {each.rule for each in lint(places, request, record) if each.severity == "error"}
    return Sent(made, {loss.what for loss in losses(request, record)}, rules)


# --- calls that are no function's

GRAMMAR = {"syntax": "lark", "definition": "start: x"}
CALLED: Body = {"role": "assistant", "content": None, "tool_calls": [
    {"id": "call_2", "type": "custom", "custom": {"name": "apply_patch", "input": "*** x"}}]}  # fmt: skip
ANSWER: Body = {"role": "tool", "tool_call_id": "call_2", "content": "done"}
CHAT: Body = {
    "model": "gpt-5",
    "messages": [HI, CALLED, ANSWER],
    "tools": [
        {"type": "custom", "custom": {"name": "apply_patch", "format": {"type": "grammar", "grammar": GRAMMAR}}},
        {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}},
    ],
    "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [
        {"type": "function", "function": {"name": "f"}}, {"type": "custom", "custom": {"name": "apply_patch"}}]}},
}  # fmt: skip
ITEMS: list[Body] = [
    {"type": "custom_tool_call", "call_id": "call_2", "name": "apply_patch", "input": "*** x"},
    {"type": "custom_tool_call_output", "call_id": "call_2", "output": "done"},
]
RESPONSES: Body = {
    "model": "gpt-5",
    "input": [HI, *ITEMS],
    "tools": [{"type": "custom", "name": "apply_patch", "format": {"type": "grammar", **GRAMMAR}},
              {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}, "strict": False}],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [
        {"type": "function", "name": "f"}, {"type": "custom", "name": "apply_patch"}]},
}  # fmt: skip
SOURCES = {"openai": CHAT, "openai-responses": RESPONSES}
WITHOUT_CUSTOM = ("anthropic", "gemini", "bedrock-converse")


@pytest.mark.parametrize("target", WITHOUT_CUSTOM)
@pytest.mark.parametrize("source", SOURCES)
def test_the_result_of_a_call_that_is_sent_as_text_is_sent_as_text(source: str, target: str) -> None:
    made = sent(source, SOURCES[source], target)
    words = json.dumps(made.body)
    assert "[result of call_2: done]" in words
    assert "tool_result" not in words
    assert "functionResponse" not in words
    assert "toolResult" not in words
    assert {
        "a tool call that is not a function's is sent as text",
        "the result of a call that is not a function call is sent as text",
        "the tool 'apply_patch' is not sent",
    } <= made.lost
    assert made.errors <= {"tool-name-invalid"}


@pytest.mark.parametrize("target", WITHOUT_CUSTOM)
def test_an_exported_file_has_the_result_as_text(target: str) -> None:
    cards = [entry.slot.card for entry in entries("openai", CHAT) if entry.slot.card is not None]
    assert "[result of call_2: done]" in "".join(find_exporter(target)(cards))


def test_custom_tools_are_translated_between_openai_formats() -> None:
    made = sent("openai", CHAT, "openai-responses")
    assert made == ({**RESPONSES, "input": [HI, *ITEMS]}, set(), set())
    assert sent("openai-responses", RESPONSES, "openai").body["tools"][0] == CHAT["tools"][0]
    assert sent("openai-responses", RESPONSES, "openai").body["tool_choice"] == CHAT["tool_choice"]
    forced = {"type": "custom", "custom": {"name": "apply_patch"}}
    flat = {"type": "custom", "name": "apply_patch"}
    body = sent("openai", {**CHAT, "tool_choice": forced}, "openai-responses").body
    assert body["tool_choice"] == flat
    body = sent("openai-responses", {**RESPONSES, "tool_choice": flat}, "openai").body
    assert body["tool_choice"] == forced


def test_a_result_answers_the_nearest_call_of_its_id() -> None:
    call = {"id": "call_2", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    again: list[Body] = [{"role": "assistant", "content": None, "tool_calls": [call]}, ANSWER]
    messages = [HI, CALLED, ANSWER, *again]
    body = sent("openai", {"messages": messages, "model": "m"}, "gemini").body
    assert body["contents"][-1]["parts"][0]["functionResponse"]["response"] == {"output": "done"}


@pytest.mark.parametrize("target", [*WITHOUT_CUSTOM, "openai-responses"])
def test_functions_without_ids_are_sent_as_text_and_reported(target: str) -> None:
    call: Body = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    made = sent("openai", {"messages": [HI, call, {"role": "function", "name": "f", "content": "a"}]}, target)
    assert "[result of f: a]" in json.dumps(made.body)
    assert made.lost == {
        "'function_call' is sent as text",
        "the result of a function without an id is sent as text",
    }


def test_a_stored_result_with_its_call_sent_as_text_is_an_error() -> None:
    block = {"type": "tool_result", "tool_use_id": "call_2", "content": "ok"}
    call = message(CALLED, "agent.thought", "assistant", tool_calls=CALLED["tool_calls"])
    rules = [(each.rule, each.position) for each in found("anthropic", user(), call, kept_answer(block))]
    assert ("result-without-call", 2) in rules


# --- what is lost, and named

LATE = {"model": "claude-opus-4-8", "max_tokens": 100, "messages": [
    HI, {"role": "system", "content": "be short"}, {"role": "assistant", "content": "Hello"}, HI]}  # fmt: skip
MOVED = "system text within the history is moved to the top"
FUNCTION = {"name": "f", "input_schema": {"type": "object", "properties": {}}}
ASKED = {"model": "claude-sonnet-4-5", "max_tokens": 100, "messages": [HI]}
SINGLE = {**ASKED, "tools": [FUNCTION], "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}


@pytest.mark.parametrize("target", ["gemini", "bedrock-converse", "anthropic"])
def test_system_text_that_moves_up_is_reported(target: str) -> None:
    made = sent("anthropic", LATE, target)
    assert (MOVED in made.lost) == (target != "anthropic")


@pytest.mark.parametrize("target", WITHOUT_CUSTOM)
def test_a_tool_that_is_not_sent_is_reported_and_cannot_be_chosen(target: str) -> None:
    searching = {"model": "gpt-5", "input": "x", "tools": [{"type": "web_search"}], "tool_choice": "auto"}
    made = sent("openai-responses", searching, target)
    assert {"the tool 'web_search' is not sent", "the parameter 'tool_choice' is not sent"} <= made.lost
    assert not {"tools", "tool_choice", "toolConfig"} & made.body.keys()
    assert made.errors == set()


@pytest.mark.parametrize("target", ["anthropic", "gemini", "bedrock-converse"])
def test_a_choice_of_a_tool_that_is_not_sent_is_not_sent(target: str) -> None:
    made = sent(
        "openai-responses", {**RESPONSES, "tool_choice": {"type": "custom", "name": "apply_patch"}}, target
    )
    assert "the parameter 'tool_choice' is not sent" in made.lost
    assert "tool_choice" not in made.body
    assert "toolChoice" not in json.dumps(made.body)
    assert "toolConfig" not in made.body or "tools" in made.body["toolConfig"]
    assert made.errors == set()


@pytest.mark.parametrize("target", ["openai", "openai-responses"])
def test_disabled_parallel_tool_use_is_translated_to_openai(target: str) -> None:
    made = sent("anthropic", SINGLE, target)
    assert (made.body["tool_choice"], made.body["parallel_tool_calls"]) == ("required", False)
    assert made.lost == set()


@pytest.mark.parametrize("target", ["gemini", "bedrock-converse"])
def test_disabled_parallel_tool_use_is_reported_if_the_format_lacks_it(target: str) -> None:
    lost = sent("anthropic", SINGLE, target).lost
    assert lost == {"the 'disable_parallel_tool_use' of the parameter 'tool_choice' is not sent"}


@pytest.mark.parametrize("value", [0, False])
@pytest.mark.parametrize("target", ["anthropic", "gemini", "bedrock-converse", "openai-responses"])
def test_an_unknown_key_is_reported_even_if_its_value_is_falsy(target: str, value: Any) -> None:
    made = sent("openai", {"model": "m", "messages": [{**HI, "weight": value, "name": None}]}, target)
    assert made.lost == {"the message's 'weight' is not sent"}


# --- the tools that are linted are those that are sent


@pytest.mark.parametrize("target", ["openai", "anthropic", "gemini", "openai-responses"])
def test_the_lint_ignores_tools_that_are_not_sent(target: str) -> None:
    spec = {"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object", "properties": {}}}}}
    converse = {"messages": [{"role": "user", "content": [{"text": "Hi"}]}],
                "toolConfig": {"tools": [spec, {"cachePoint": {"type": "default"}}]}}  # fmt: skip
    assert sent("bedrock-converse", converse, target).errors == set()
    served = [{"type": "mcp", "server_label": "m", "server_url": "https://x.y"}, {"type": "web_search"}]
    if target != "openai-responses":
        assert sent("openai-responses", {"model": "m", "input": "x", "tools": served}, target).errors == set()


# --- refusals, and tools that failed

REFUSED = {"model": "gpt-5", "input": [HI, {"role": "assistant", "content": [
    {"type": "output_text", "text": "Hm."}, {"type": "refusal", "refusal": "No."}]}]}  # fmt: skip


def test_a_refusal_stays_a_refusal_between_openai_formats() -> None:
    made = sent("openai-responses", REFUSED, "openai")
    said = [{"type": "text", "text": "Hm."}, {"type": "refusal", "refusal": "No."}]
    assert made.body["messages"][1] == {"role": "assistant", "content": said}
    assert (made.lost, made.errors) == (set(), set())
    chat = {"model": "gpt-5", "messages": [HI, {"role": "assistant", "content": "Hm.", "refusal": "No."}]}
    back = sent("openai", chat, "openai-responses")
    assert (back.body["input"], back.lost, back.errors) == (REFUSED["input"], set(), set())


@pytest.mark.parametrize("target", WITHOUT_CUSTOM)
def test_a_refusal_that_is_sent_as_text_is_reported(target: str) -> None:
    made = sent("openai-responses", REFUSED, target)
    assert "No." in json.dumps(made.body)
    assert made.lost == {"a part of type 'refusal' is sent as text"}


USE = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
FAILED: dict[str, Body] = {
    "anthropic": {**ASKED, "messages": [
        HI, {"role": "assistant", "content": [USE]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "no", "is_error": True}]}]},
    "gemini": {"contents": [
        {"role": "user", "parts": [{"text": "Hi"}]},
        {"role": "model", "parts": [{"functionCall": {"id": "c", "name": "f", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"id": "c", "name": "f", "response": {"error": "no"}}}]}]},
    "bedrock-converse": {"messages": [
        {"role": "user", "content": [{"text": "Hi"}]},
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c", "name": "f", "input": {}}}]},
        {"role": "user", "content": [
            {"toolResult": {"toolUseId": "c", "content": [{"text": "no"}], "status": "error"}}]}]},
}  # fmt: skip
MARKS = {
    "anthropic": '"is_error": true',
    "gemini": '{"error": "no"}',
    "bedrock-converse": '"status": "error"',
}


@pytest.mark.parametrize("target", MARKS)
@pytest.mark.parametrize("source", FAILED)
def test_a_tool_failure_is_translated(source: str, target: str) -> None:
    made = sent(source, FAILED[source], target)
    assert MARKS[target] in json.dumps(made.body)
    assert made.lost == set()


@pytest.mark.parametrize("target", ["openai", "openai-responses"])
@pytest.mark.parametrize("source", FAILED)
def test_a_tool_failure_is_reported_lost_if_the_format_lacks_it(source: str, target: str) -> None:
    assert sent(source, FAILED[source], target).lost == {"that the tool failed is not sent"}


# --- parameters of one name


@pytest.mark.parametrize(
    ("source", "body", "target", "name"),
    [
        ("openai", {"model": "m", "messages": [HI], "metadata": {"a": "b"}}, "anthropic", "metadata"),
        ("openai", {"model": "m", "messages": [HI], "service_tier": "flex"}, "anthropic", "service_tier"),
        ("anthropic", {**ASKED, "service_tier": "standard_only"}, "openai", "service_tier"),
        ("anthropic", {**ASKED, "service_tier": "standard_only"}, "openai-responses", "service_tier"),
        ("anthropic", {**ASKED, "stop_sequences": list("abcde")}, "openai", "stop_sequences"),
        ("anthropic", {**ASKED, "stop_sequences": list("abcdef")}, "gemini", "stop_sequences"),
        ("gemini", {"contents": [{"parts": [{"text": "Hi"}]}], "serviceTier": "flex"}, "bedrock-converse", "serviceTier"),
    ],
)  # fmt: skip
def test_a_provider_specific_value_is_not_copied(source: str, body: Body, target: str, name: str) -> None:
    made = sent(source, body, target)
    assert f"the parameter {name!r} is not sent" in made.lost
    assert not {name, "stop"} & made.body.keys()
    assert "stopSequences" not in json.dumps(made.body)
    assert made.errors == set()


def test_shared_values_are_copied_and_invalid_ones_are_errors() -> None:
    chat = {
        "model": "claude-sonnet-4-5",
        "messages": [HI],
        "metadata": {"user_id": "u"},
        "stop": list("abcd"),
    }
    made = sent("openai", chat, "anthropic")
    assert (made.body["metadata"], made.body["stop_sequences"], made.lost) == (
        {"user_id": "u"},
        list("abcd"),
        set(),
    )
    made = sent("openai", {**chat, "metadata": 5}, "anthropic")
    assert (made.body["metadata"], made.lost, made.errors) == (5, set(), {"value-invalid"})


def test_allowed_callers_are_copied_if_the_format_knows_them() -> None:
    called = [{**FUNCTION, "allowed_callers": ["code_execution_20250825"]}]
    made = sent("anthropic", {**ASKED, "tools": called}, "openai-responses")
    assert "allowed_callers" not in made.body["tools"][0]
    assert (made.lost, made.errors) == ({"the 'allowed_callers' of the tool 'f' is not sent"}, set())
    both = [{**FUNCTION, "allowed_callers": ["direct"]}]
    assert sent("anthropic", {**ASKED, "tools": both}, "openai-responses").body["tools"][0][
        "allowed_callers"
    ] == ["direct"]


def test_untranslated_keys_of_a_parameter_are_reported() -> None:
    config = {
        "temperature": 0.5,
        "thinkingConfig": {"thinkingBudget": 5},
        "mediaResolution": "MEDIA_RESOLUTION_LOW",
    }
    made = sent("gemini", {"contents": [{"parts": [{"text": "Hi"}]}], "generationConfig": config}, "openai")
    assert made.body["temperature"] == 0.5
    assert made.lost == {
        "the parameter 'generationConfig.thinkingConfig' is not sent",
        "the parameter 'generationConfig.mediaResolution' is not sent",
    }


def test_gemini_parameters_can_be_in_camel_or_snake_case() -> None:
    snake = {
        "contents": [{"parts": [{"text": "Hi"}]}],
        "generation_config": {"max_output_tokens": 5, "top_p": 0.5},
    }
    body = sent("gemini", snake, "anthropic").body
    assert (body["max_tokens"], body["top_p"]) == (5, 0.5)
