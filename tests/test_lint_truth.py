"""The mutations of `make lint-truth`, made of small requests, and the small requests that providers judged."""

import copy
import json
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cardbox_cli.errors import CbxError
from cardbox_cli.providers.registry import HOSTS, provider_named
from tests.lint_truth.checking import UNREADABLE, errors, findings, provider_of
from tests.lint_truth.mutations import mutations_of
from tests.lint_truth.mutations.mutation import Mutation
from tests.lint_truth.recorded import PROVIDERS as APIS
from tests.lint_truth.recorded import SENSES

Body = dict[str, Any]

_OBJECT = {"type": "object", "properties": {"city": {"type": "string"}}}
_CALL = {"id": "call_0", "type": "function", "function": {"name": "f", "arguments": "{}"}}
_USE = {"type": "tool_use", "id": "toolu_0", "name": "f", "input": {}}

# Sound requests to each provider: each mutation breaks one of them at least.
SOUND: dict[str, list[Body]] = {
    "openai": [
        {
            "model": "gpt-4o",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "How warm is it?"},
                {"role": "assistant", "content": None, "tool_calls": [_CALL]},
                {"role": "tool", "tool_call_id": "call_0", "content": "12"},
            ],
            "tools": [{"type": "function", "function": {"name": "f", "parameters": _OBJECT}}],
            "temperature": 0.5,
        },
        {
            "model": "gpt-4",
            "messages": [{"role": "user", "content": "How warm is it?"}],
            "functions": [{"name": "f", "parameters": _OBJECT}],
        },
    ],
    "anthropic": [
        {
            "model": "claude-sonnet-4-5",
            "max_tokens": 64,
            "system": "Be brief.",
            "messages": [
                {"role": "user", "content": "How warm is it?"},
                {"role": "assistant", "content": [_USE]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_0", "content": "12"}]},
            ],
            "tools": [{"name": "f", "input_schema": _OBJECT}],
        },
    ],
    "openai-responses": [
        {
            "model": "gpt-4.1",
            "instructions": "Be brief.",
            "input": [
                {"role": "user", "content": "How warm is it?"},
                {"type": "function_call", "call_id": "call_0", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "call_0", "output": "12"},
            ],
            "tools": [{"type": "function", "name": "f", "parameters": _OBJECT, "strict": False}],
        },
        {"model": "gpt-4.1", "input": [{"role": "user", "content": "How warm is it?"}]},
    ],
    "gemini": [
        {
            "contents": [
                {"role": "user", "parts": [{"text": "How warm is it?"}]},
                {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]},
                {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"output": "12"}}}]},
            ],
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
            "tools": [{"functionDeclarations": [{"name": "f", "parameters": {"type": "object"}}]}],
            "generation_config": {"temperature": 0.5, "max_output_tokens": 64},
        },
        {"contents": [{"parts": [{"text": "How warm is it?"}]}], "generationConfig": {"topK": 5}},
    ],
    "bedrock-converse": [
        {
            "system": [{"text": "Be brief."}],
            "messages": [
                {"role": "user", "content": [{"text": "How warm is it?"}]},
                {"role": "assistant", "content": [{"toolUse": {"toolUseId": "t0", "name": "f", "input": {}}}]},
                {"role": "user", "content": [{"toolResult": {"toolUseId": "t0", "content": [{"text": "12"}]}}]},
            ],
            "toolConfig": {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": _OBJECT}}}]},
            "inferenceConfig": {"temperature": 0.5},
        },
    ],
}  # fmt: skip
# What providers take, beside all that.
_MCP: Body = {"type": "url", "url": "https://h/mcp", "name": "m"}
TAKEN: list[tuple[str, Body]] = [
    ("anthropic", {**SOUND["anthropic"][0], "mcp_servers": [_MCP], "tools": [
        {"name": "f", "input_schema": _OBJECT}, {"type": "mcp_toolset", "mcp_server_name": "m"}]}),
    ("gemini", {**SOUND["gemini"][1], "generationConfig": {"imageConfig": {"aspectRatio": "16:9"}}}),
    ("bedrock-converse", {**SOUND["bedrock-converse"][0], "modelId": "us.anthropic.claude-sonnet-4-5-20250929-v1:0"}),
    ("openai-responses", {"model": "gpt-5-codex", "input": [
        {"role": "user", "content": "Patch it."},
        {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "*", "status": "completed"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "done"}]}),
]  # fmt: skip
# What no request shows: without a model it is no request, but messages.
MISSED = {("openai", "no model")}

EACH = [
    pytest.param(provider, mutation, id=f"{provider}-{mutation.name}")
    for provider in SOUND
    for mutation in mutations_of(provider)
]
CASES = [
    json.loads(line)
    for line in (Path(__file__).parent / "lint-cases.jsonl").read_text(encoding="utf-8").splitlines()
]

# What may stand anywhere, and at the top.
KEYS = (
    "type",
    "text",
    "role",
    "content",
    "parts",
    "name",
    "function",
    "id",
    "source",
    "input",
    "json",
    "tools",
)
PARAMETERS = {name: sorted(schema.keys) for name in SOUND if (schema := provider_named(name).schema)}


def rules_found(provider: str) -> set[str]:
    """The rules that find an error in what mutations make of sound requests."""
    broken = [each for mutation in mutations_of(provider) for each in _broken(provider, mutation)]
    return {rule for each in broken for rule in errors(each, provider)} - {UNREADABLE}


def _broken(provider: str, mutation: Mutation) -> list[Body]:
    return [each for request in SOUND[provider] if (each := mutation.of(request)) is not None]


@pytest.mark.parametrize(
    ("provider", "request_body"), [(name, each) for name in SOUND for each in SOUND[name]]
)
def test_the_unmutated_requests_are_valid(provider: str, request_body: Body) -> None:
    assert errors(request_body, provider) == {}
    assert provider_of(request_body) == provider


@pytest.mark.parametrize(("provider", "request_body"), TAKEN)
def test_accepted_requests_have_no_errors(provider: str, request_body: Body) -> None:
    assert errors(request_body, provider) == {}


@pytest.mark.parametrize(("provider", "mutation"), EACH)
def test_every_mutation_is_found_unless_listed_as_missed(provider: str, mutation: Mutation) -> None:
    broken = _broken(provider, mutation)
    assert broken
    found = [bool(errors(each, provider)) for each in broken]
    assert found == [(provider, mutation.name) not in MISSED] * len(broken)


@pytest.mark.parametrize("provider", SOUND)
def test_there_are_sixty_mutations_with_unique_names_and_sources(provider: str) -> None:
    names = [mutation.name for mutation in mutations_of(provider)]
    assert len(names) == len(set(names)) >= 60
    assert all(mutation.source for mutation in mutations_of(provider))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["why"])
def test_small_requests_get_the_verdict_of_their_provider(case: dict[str, Any]) -> None:
    provider = APIS[case["api"]]
    found = {SENSES.get(rule, rule) for rule in errors(case["request"], provider)}
    assert found == set(case["expected"])


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from(["", " ", "a", "type", "text", "data:,"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=2),
    max_leaves=4,
)


def _places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places within a value, itself not among them."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [each for key, item in items for each in ((*place, key), *_places(item, (*place, key)))]


@pytest.mark.parametrize("provider", SOUND)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_value_in_a_request_can_be_linted(provider: str, data: st.DataObject) -> None:
    request = copy.deepcopy(data.draw(st.sampled_from(SOUND[provider])))
    *above, key = data.draw(st.sampled_from(_places(request)))
    holder = request
    for step in above:
        holder = holder[step]
    holder[key] = data.draw(JSON)
    if data.draw(st.booleans()):
        request[data.draw(st.sampled_from(PARAMETERS[provider]))] = data.draw(JSON)
    for rules_of in (provider, *HOSTS, *SOUND):
        with suppress(CbxError):  # no conversation of the format
            assert all(each.message for each in findings(request, provider, rules_of=rules_of))


def test_missing_recorded_requests_are_reported_as_a_failure(tmp_path: Path) -> None:
    elsewhere = tmp_path / "a" / "b" / "c"
    shutil.copytree(Path(__file__).with_name("lint_truth"), elsewhere / "tests" / "lint_truth")
    (elsewhere / "tests" / "__init__.py").touch()
    run = subprocess.run(
        [sys.executable, "-m", "tests.lint_truth"],
        cwd=elsewhere,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.returncode, run.stdout) == (77, "")
    assert run.stderr.startswith("lint-truth: the recorded requests are missing: no ")
