"""Whole responses of every provider, as documented by each: what is read of them, and what the next request is."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.worker.runner import RunOutcome
from cardbox_cli.execution.worker.step_answers import (
    CUT_OFF,
    EMPTY,
    INVALID,
    PROVIDER,
    TOO_MANY,
    TOO_MANY_PARTS,
    AnswerMode,
    AnswerRules,
    InvalidAnswer,
)
from cardbox_cli.providers.registry import PROVIDERS
from cardbox_cli.store.profiles import ProfileStore
from cardbox_cli.store.tools import ToolStore
from tests.conftest import PROJECT, Cbx
from tests.execution.fixtures import Asked
from tests.execution.requests.test_request import LOOK
from tests.execution.worker.test_answers import FINISHED, answer, read, said

USAGE = {"input": 3, "output": 4}
FORMATS = list(PROVIDERS)
PARTED = ["openai-responses", "gemini", "bedrock-converse"]


def openai(text: str | None = "done", calls: int = 0, **beside: Any) -> dict[str, Any]:
    made = [
        {"id": f"c{number}", "type": "function", "function": {"name": "look", "arguments": '{"at":"sky"}'}}
        for number in range(calls)
    ]
    message = {"role": "assistant", "content": text, **({"tool_calls": made} if made else {})}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if made else "stop"}
    return {
        "id": "x",
        "object": "chat.completion",
        "choices": [{**choice, **beside}],
        "usage": USAGE,
    }


def anthropic(text: str | None = "done", calls: int = 0, **beside: Any) -> dict[str, Any]:
    content = [
        *([{"type": "thinking", "thinking": "hm", "signature": "c2ln"}] if calls else []),
        *([] if text is None else [{"type": "text", "text": text}]),
        *(
            {"type": "tool_use", "id": f"c{number}", "name": "look", "input": {"at": "sky"}}
            for number in range(calls)
        ),
    ]
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x", "content": content}
    return {**message, "stop_reason": "tool_use" if calls else "end_turn", "usage": USAGE, **beside}


def responses(text: str | None = "done", calls: int = 0, **beside: Any) -> dict[str, Any]:
    said_text: dict[str, Any] = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    message = {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant"}
    output = [
        {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAA"},
        *([] if text is None else [{**message, "content": [said_text]}]),
        *(
            {
                "id": f"fc_{number}",
                "type": "function_call",
                "status": "completed",
                "call_id": f"c{number}",
                "name": "look",
                "arguments": '{"at":"sky"}',
            }
            for number in range(calls)
        ),
    ]
    state = {"status": "completed", "error": None, "incomplete_details": None}
    return {"id": "resp_1", "object": "response", **state, "output": output, "usage": USAGE, **beside}


def gemini(text: str | None = "done", calls: int = 0, **beside: Any) -> dict[str, Any]:
    parts: list[Any] = [{"text": "hm", "thought": True}] if calls else []
    parts += [] if text is None else [{"text": text, "thoughtSignature": "c2ln"}]
    for number in range(calls):
        signed = {"thoughtSignature": "c2ln"} if number == 0 else {}
        parts.append({"functionCall": {"id": f"c{number}", "name": "look", "args": {"at": "sky"}}, **signed})
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
    return {"candidates": [{**candidate, **beside}], "usageMetadata": USAGE, "modelVersion": "gemini-x"}


def bedrock(text: str | None = "done", calls: int = 0, **beside: Any) -> dict[str, Any]:
    thought = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}}
    blocks: list[Any] = [thought] if calls else []
    blocks += [] if text is None else [{"text": text}]
    for number in range(calls):
        blocks.append({"toolUse": {"toolUseId": f"c{number}", "name": "look", "input": {"at": "sky"}}})
    message = {"role": "assistant", "content": blocks}
    stopped = {"stopReason": "tool_use" if calls else "end_turn", "metrics": {"latencyMs": 1}}
    return {"output": {"message": message}, **stopped, "usage": USAGE, **beside}


RESPONSES: dict[str, Callable[..., dict[str, Any]]] = {
    "openai": openai,
    "anthropic": anthropic,
    "openai-responses": responses,
    "gemini": gemini,
    "bedrock-converse": bedrock,
}


def ended(found: Any) -> list[tuple[str, str]]:
    return [each for each in said(found) if each[0] != "agent.reasoning"]


def test_every_format_has_a_sample_response() -> None:
    assert list(RESPONSES) == FORMATS


@pytest.mark.parametrize("mode", ["auto", "response"])
@pytest.mark.parametrize("own", FORMATS)
@pytest.mark.parametrize("format", [*FORMATS, "text"])
def test_a_response_is_accepted_only_in_its_own_format(format: str, own: str, mode: AnswerMode) -> None:
    for calls in (0, 1):
        found = read(RESPONSES[own](calls=calls), rules=AnswerRules(mode=mode, format=format))
        if format in (own, "text"):
            assert not isinstance(found, InvalidAnswer)
            assert found.usage == USAGE
            assert len(found.calls) == calls
        else:
            what = f"the output is a response of {own}, but the request has the format {format}"
            assert found == InvalidAnswer(INVALID, f"{what}: pass --format {own} for a client of {own}")


@pytest.mark.parametrize("format", FORMATS)
def test_text_is_the_deliverable(format: str) -> None:
    assert ended(answer(RESPONSES[format](), rules=AnswerRules(format=format))) == FINISHED


@pytest.mark.parametrize("format", FORMATS)
def test_all_calls_get_unused_ids(format: str) -> None:
    found = answer(RESPONSES[format](calls=3), held={"c1"}, rules=AnswerRules(format=format))
    assert ended(found)[0] == ("agent.thought", "done")
    assert [each.type for each in found.cards[-3:]] == ["tool.call"] * 3
    assert [(call.tool_name, call.input) for call in found.calls] == [("look", {"at": "sky"})] * 3
    first, second, third = (call.tool_call_id for call in found.calls)
    assert (first, third) == ("c0", "c2")
    assert second.startswith("tc_")


def test_a_gemini_call_without_an_id_gets_one() -> None:
    given = gemini(None, calls=2)
    for part in given["candidates"][0]["content"]["parts"][1:]:
        del part["functionCall"]["id"]
    found = answer(given, rules=AnswerRules(format="gemini"))
    ids = {call.tool_call_id for call in found.calls}
    assert len(ids) == 2
    assert all(each.startswith("tc_") for each in ids)


def test_a_gemini_response_in_snake_case_is_accepted() -> None:
    """As `model_dump_json` of Google's own package writes a response: with nulls for what is not there."""
    call = {"id": None, "name": "look", "args": {"at": "sky"}}
    part = {"text": None, "thought": None, "thought_signature": "c2ln", "function_call": call}
    candidate = {"content": {"parts": [part], "role": "model"}, "finish_reason": "STOP"}
    printed = {"candidates": [candidate], "prompt_feedback": None, "usage_metadata": USAGE}
    found = answer(printed, rules=AnswerRules(format="gemini"))
    assert [call.input for call in found.calls] == [{"at": "sky"}]
    assert found.usage == USAGE
    candidate["finish_reason"] = "MAX_TOKENS"
    cut_off = read(printed, rules=AnswerRules(format="gemini"))
    assert isinstance(cut_off, InvalidAnswer)
    assert cut_off.error_code == CUT_OFF


@pytest.mark.parametrize("own", ["gemini", "openai-responses", "bedrock-converse"])
def test_a_message_without_its_response_envelope_is_accepted(own: str) -> None:
    bare = {
        "gemini": gemini()["candidates"][0]["content"],
        "openai-responses": responses()["output"][1],
        "bedrock-converse": bedrock()["output"]["message"],
    }[own]
    found = answer(bare, rules=AnswerRules(format=own))
    assert (said(found), found.usage) == (FINISHED, None)


@pytest.mark.parametrize(
    ("format", "printed", "code", "what"),
    [
        ("gemini", gemini(finishReason="MAX_TOKENS"), CUT_OFF, "(MAX_TOKENS): raise the output limit"),
        ("gemini", gemini(finishReason="SAFETY", content=None), CUT_OFF, "(SAFETY)"),
        ("gemini", gemini(finishReason="MALFORMED_FUNCTION_CALL"), CUT_OFF, "MALFORMED"),
        ("gemini", {"promptFeedback": {"blockReason": "SAFETY"}}, PROVIDER, "blocked (SAFETY)"),
        ("text", {"promptFeedback": {"blockReason": "SAFETY"}}, PROVIDER, "blocked (SAFETY)"),
        ("gemini", {"candidates": [], "usageMetadata": {}}, INVALID, "no candidates[0]"),
        ("gemini", gemini(content={"role": "model"}), EMPTY, "is empty"),
        ("gemini", gemini(content={"parts": 7}), INVALID, "is not a list"),
        ("gemini", {"error": {"code": 400, "message": "bad key"}}, PROVIDER, "bad key"),
        ("gemini", [{"error": {"code": 400, "message": "bad key"}}], PROVIDER, "bad key"),
        ("gemini", [gemini(), gemini()], INVALID, "a list of responses"),
        ("openai", [gemini()], INVALID, "a list of responses"),
        (
            "gemini",
            gemini(content={"parts": [{"functionCall": {"args": {}}}]}),
            INVALID,
            "parts[0] is not a call",
        ),
        (
            "bedrock-converse",
            bedrock(stopReason="max_tokens"),
            CUT_OFF,
            "(max_tokens): raise the output limit",
        ),
        ("bedrock-converse", bedrock(stopReason="content_filtered"), CUT_OFF, "(content_filtered)"),
        ("bedrock-converse", bedrock(stopReason="guardrail_intervened"), CUT_OFF, "(guardrail_intervened)"),
        ("bedrock-converse", {"message": "The token is invalid."}, PROVIDER, "The token is invalid."),
        ("bedrock-converse", {"output": {}, "stopReason": "end_turn"}, INVALID, "no output.message"),
        ("bedrock-converse", bedrock(None), EMPTY, "is empty"),
        (
            "bedrock-converse",
            {"output": {"message": {"content": [{"toolUse": {"name": "look"}}]}}},
            INVALID,
            "content[0] is not a call",
        ),
        (
            "openai-responses",
            responses(status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
            CUT_OFF,
            "(incomplete: max_output_tokens): raise the output limit",
        ),
        ("openai-responses", responses(status="in_progress", output=[]), CUT_OFF, "(in_progress)"),
        (
            "openai-responses",
            responses(status="failed", error={"code": "server_error", "message": "busy"}),
            PROVIDER,
            "busy",
        ),
        ("openai-responses", {"object": "response", "output": 7}, INVALID, "no list of items"),
        ("openai-responses", responses(None), EMPTY, "is empty"),
        (
            "openai-responses",
            responses(
                output=[{"type": "custom_tool_call", "call_id": "c", "name": "look", "input": "x"}], text=None
            ),
            INVALID,
            "output[0] is not a call of a function",
        ),
        (
            "openai-responses",
            b'event: response.created\ndata: {"type": "response.created"}',
            INVALID,
            "event stream",
        ),
        ("gemini", b'data: {"candidates": []}', INVALID, "event stream"),
    ],
)
def test_a_response_without_an_answer_is_refused(format: str, printed: Any, code: str, what: str) -> None:
    found = read(printed, rules=AnswerRules(format=format))
    assert isinstance(found, InvalidAnswer), found
    assert found.error_code == code
    assert what in found.message


@pytest.mark.parametrize(
    "printed",
    [
        {"candidates": ["Ada", "Bob"]},
        {"candidates": [{"name": "Ada", "content": "x"}]},
        {"output": {"message": "done"}},
        {"output": [{"type": "line", "text": "done"}]},
        {"output": "done", "status": "incomplete"},
        {"type": "message", "text": "done"},
        [{"candidates": []}],
        [{"error": "none"}, {"error": "one"}],
        [{"message": "done"}],
    ],
)
@pytest.mark.parametrize("format", [*FORMATS, "text"])
def test_other_json_with_the_keys_of_a_response_is_text(format: str, printed: Any) -> None:
    text = json.dumps(printed)
    found = answer(printed, rules=AnswerRules(format=format))
    assert said(found) == [("agent.thought", text), ("task.deliverable", text)]


@pytest.mark.parametrize("format", FORMATS)
def test_a_truncated_response_is_not_an_answer(format: str) -> None:
    whole = json.dumps(RESPONSES[format](calls=1)).encode()
    for end in range(1, len(whole)):
        assert isinstance(read(whole[:end], rules=AnswerRules(format=format)), InvalidAnswer), whole[:end]


@pytest.mark.parametrize("format", FORMATS)
def test_the_number_of_calls_and_parts_is_limited(format: str) -> None:
    for calls, code in ((65, TOO_MANY), (20_000, TOO_MANY_PARTS if format != "openai" else TOO_MANY)):
        found = read(RESPONSES[format](calls=calls), rules=AnswerRules(format=format))
        assert isinstance(found, InvalidAnswer)
        assert found.error_code == code


def test_a_refusal_is_the_text_of_the_answer() -> None:
    given = responses()
    given["output"][1]["content"] = [{"type": "refusal", "refusal": "done"}]
    assert ended(answer(given, rules=AnswerRules(format="openai-responses"))) == FINISHED


def test_bedrock_text_with_citations_is_part_of_the_answer() -> None:
    cited = {"citationsContent": {"content": [{"text": "done"}], "citations": [{"title": "A"}]}}
    given = bedrock(None)
    given["output"]["message"]["content"] = [cited]
    found = answer(given, rules=AnswerRules(format="bedrock-converse"))
    assert said(found) == FINISHED
    assert found.cards[0].metadata["source_blocks"] == [cited]


# --- the next request


@pytest.fixture
def look(runtime: Runtime) -> None:
    """The clerk may call the tool `look`, which says what it was asked."""
    profile = {"name": "clerk", "worker_target": "worker_generic", "tags": [], "allowed_tools": ["look"]}
    entry = ProfileStore(runtime.database, PROJECT).save(profile, author_id="t")
    runtime.database.connection.execute(
        "UPDATE resource.project_agents SET profile_box_id = %s", [entry.profile_box_id]
    )
    ToolStore(runtime.database, PROJECT).add(LOOK, actor="t")


def parts_of(format: str, response: dict[str, Any]) -> Any:
    """What a response has that goes back as it is."""
    if format == "openai-responses":
        return response["output"]
    message = {
        "openai": lambda: response["choices"][0]["message"],
        "anthropic": lambda: response["content"],
        "gemini": lambda: response["candidates"][0]["content"]["parts"],
        "bedrock-converse": lambda: response["output"]["message"]["content"],
    }[format]()
    return [message] if format == "openai" else message


def parts_in(format: str, request: dict[str, Any]) -> list[Any]:
    """Those of a request that stand behind what the user said first."""
    key = {"openai-responses": "input", "gemini": "contents"}.get(format, "messages")
    messages = [each for each in request[key] if each.get("role") != "system"][1:]
    if format in ("openai", "openai-responses"):
        return messages
    return [part for each in messages for part in each["parts" if format == "gemini" else "content"]]


Turn = Callable[..., tuple[list[Any], str]]


@pytest.fixture
def second_request(
    runtime: Runtime, ask: Asked, run: Callable[..., RunOutcome], look: None, cbx: Cbx, tmp_path: Path
) -> Turn:
    """What a turn sends in its second step behind the user's words, when the first response called tools; and
    what the lint says of the request."""

    def go(format: str, first: dict[str, Any]) -> tuple[list[Any], str]:
        for step, response in enumerate((first, RESPONSES[format]()), start=1):
            (tmp_path / f"answer-{step}").write_text(json.dumps(response))
        ask(runtime_config={"model": "some-model"})
        client = "n=1; [ ! -e body-1.json ] || n=2; cat > body-$n.json; cat answer-$n"
        rest = run(f"cd {shlex.quote(str(tmp_path))}; {client}", format=format)
        assert rest.message == "success", rest
        body = tmp_path / "body-2.json"
        linted = cbx("card", "lint", str(body), "--from", format, "--format", format)
        return parts_in(format, json.loads(body.read_text())), linted.out + linted.err

    return go


@pytest.mark.parametrize("format", FORMATS)
def test_the_next_request_repeats_the_answer_unchanged_and_is_valid(
    second_request: Turn, format: str
) -> None:
    first = RESPONSES[format](calls=2)
    again, linted = second_request(format, first)
    answered = parts_of(format, first)
    assert again[: len(answered)] == answered
    results = again[len(answered) :]
    assert len(results) == 2
    for number, result in enumerate(results):
        assert f"c{number}" in json.dumps(result)
        assert "sky" in json.dumps(result)
    # A note says that the model is unknown.
    assert linted.endswith("nothing found\n")


def test_a_result_has_the_generated_id_of_its_gemini_call(second_request: Turn) -> None:
    first = gemini(None, calls=1)
    thought, call = first["candidates"][0]["content"]["parts"]
    del call["functionCall"]["id"]
    again, linted = second_request("gemini", first)
    made = again[1]["functionCall"].pop("id")
    assert again[:2] == [thought, call]
    assert again[2]["functionResponse"]["id"] == made
    assert again[2]["functionResponse"]["name"] == "look"
    # A note says that the model is unknown.
    assert linted.endswith("nothing found\n")
