"""Whole requests of every provider: in and out without a difference, and sent to every other provider."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cardbox_cli.context.losses import losses
from cardbox_cli.context.request import RequestEntry, request_of
from cardbox_cli.conversations.formats.registry import choose_format, find_exporter, find_format
from cardbox_cli.conversations.importing import import_conversations
from cardbox_cli.model import exact_json
from cardbox_cli.providers.registry import PROVIDERS, provider_named
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.connection.database import Database
from tests import jsonb_values
from tests.conversations.conftest import Export, ImportText
from tests.conversations.reading import documents_in, entries_of
from tests.conversations.requests import REQUESTS
from tests.provider_types import CHECK_BODY

APIS = {
    "openai-chat-completions": "openai",
    "anthropic-messages": "anthropic",
    "openai-responses": "openai-responses",
    "google-generate-content": "gemini",
    "bedrock-converse": "bedrock-converse",
}
# Requests that their own provider took, and that its package has no types for: assistant's messages without an
# id as content parts, and its answers with `annotations` sent back.
_BEYOND_TYPES = {"openai": 1, "openai-responses": 3}


def back(entries: list[RequestEntry], name: str) -> Any:
    cards = [entry.slot.card for entry in entries if entry.slot.card is not None]
    return exact_json.read("".join(find_exporter(name)(cards)))


def same(one: Any, other: Any) -> bool:
    return exact_json.are_equal(one, other)


def sent(entries: list[RequestEntry], provider: str) -> dict[str, Any]:
    record = provider_named(provider)
    body: dict[str, Any] = json.loads(
        exact_json.encode(record.body(request_of(entries, encode=record.encode)))
    )
    return {"model": "m", **body} if provider in ("openai", "anthropic", "openai-responses") else body


def read_one(request: Any, name: str) -> list[RequestEntry]:
    [conversation] = find_format(name).read(documents_in(exact_json.encode(request)))
    return entries_of(conversation)


@pytest.mark.parametrize("key", ["system", "instructions", "systemInstruction"])
def test_a_system_prompt_under_a_foreign_key_survives_a_round_trip(
    key: str, import_text: ImportText, export: Export
) -> None:
    request = {key: "Be brief.", "messages": [{"role": "tool", "tool_call_id": "c", "content": "y"}]}
    [box] = import_text("openai", json.dumps(request))
    assert same(exact_json.read(export(box.box_id, "openai")), request)


@pytest.mark.parametrize(
    "beside",
    [
        {"prompt": {"id": "pmpt_1", "version": "2", "variables": {"city": "Bern"}}},
        {"conversation": "conv_1"},
        {"conversation": {"id": "conv_1"}},
        {"reasoning": {"effort": "low"}},
        {"text": {"verbosity": "low"}},
        {"background": True},
        {"max_tool_calls": 2},
    ],
)
@pytest.mark.parametrize("given", ["x", [{"role": "user", "content": "x"}]])
def test_a_responses_request_is_recognized_without_a_model(
    import_text: ImportText, export: Export, beside: dict[str, Any], given: Any
) -> None:
    text = json.dumps({**beside, "input": given})
    assert choose_format(None, documents_in(text)).format.name == "openai-responses"
    [box] = import_text("openai-responses", text)
    assert json.loads(export(box.box_id, "openai-responses")) == {**beside, "input": given}


_ONE_PART = {"text": "Hi"}


@pytest.mark.parametrize(
    "request_body",
    [
        {"system_instruction": {"parts": {"text": "Be kind."}}, "contents": {"parts": _ONE_PART}},
        {"contents": {"role": "user", "parts": [_ONE_PART]}, "generationConfig": {"topK": 3}},
        {"contents": {"parts": [_ONE_PART, {"text": "there"}]}},
        {"contents": [{"role": "user", "parts": _ONE_PART}, {"role": "model", "parts": {"text": "Ho"}}]},
        {"contents": {"parts": {"functionCall": {"name": "f", "args": {}}}, "x": 1}},
    ],
)
def test_gemini_objects_in_place_of_lists_survive_a_round_trip(
    import_text: ImportText, export: Export, request_body: dict[str, Any]
) -> None:
    text = json.dumps(request_body)
    assert choose_format(None, documents_in(text)).format.name == "gemini"
    [box] = import_text("gemini", text)
    assert json.loads(export(box.box_id, "gemini")) == request_body
    entries = read_one(request_body, "gemini")
    if "text" in str(request_body["contents"]):
        assert [each for each in sent(entries, "openai")["messages"] if each["content"].startswith("Hi")]
    given = request_body["contents"]
    count = len(given) if isinstance(given, list) else 1
    assert len(sent(entries, "gemini")["contents"]) == count
    [conversation] = find_format("gemini").read(
        documents_in(json.dumps({"body": request_body})), at="body.contents"
    )
    assert same(back(entries_of(conversation), "gemini"), request_body)


def test_a_call_in_both_content_and_tool_calls_survives_a_round_trip(
    import_text: ImportText, export: Export
) -> None:
    block = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = {"messages": [{"role": "assistant", "content": [block], "tool_calls": [call]}]}
    [box] = import_text("openai", json.dumps(messages))
    assert json.loads(export(box.box_id, "openai")) == messages


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_is_recognized_and_survives_a_round_trip(
    import_text: ImportText, export: Export, name: str
) -> None:
    text = json.dumps(REQUESTS[name])
    assert choose_format(None, documents_in(text)).format.name == name
    [box] = import_text(name, text)
    assert json.loads(export(box.box_id, name)) == REQUESTS[name]
    [again] = import_text(name, text)
    assert (again.box_id, again.cards, again.new_cards) == (box.box_id, box.cards, 0)


@pytest.mark.parametrize("target", PROVIDERS)
@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_matches_the_types_of_every_provider(name: str, target: str) -> None:
    body = sent(read_one(REQUESTS[name], name), target)
    CHECK_BODY[target](body)
    assert "Oslo" in json.dumps(body)
    assert "Rain." in json.dumps(body)
    assert "Be brief." in json.dumps(body)
    assert "weather" in json.dumps(body)


@pytest.mark.parametrize("name", ["openai-responses", "gemini", "bedrock-converse"])
def test_a_request_loses_no_message_in_its_own_format(name: str) -> None:
    request = request_of(read_one(REQUESTS[name], name), encode=provider_named(name).encode)
    assert losses(request, provider_named(name)) == []
    body = json.loads(exact_json.encode(provider_named(name).body(request)))
    keys = {"openai-responses": "input", "gemini": "contents", "bedrock-converse": "messages"}
    given = REQUESTS[name][keys[name]]
    if name == "gemini":
        given = [{"role": "user", **content} for content in given]
    assert body[keys[name]] == given


LOST = {
    "openai-responses": {
        "thinking is left out",
        "parts that only OpenAI knows are left out",
        "the tool 'web_search' is not sent",
        "the 'defer_loading' of the tool 'late' is not sent",
        "the parameter 'include' is not sent",
        "the parameter 'reasoning.summary' is not sent",
    },
    "gemini": {
        "thinking is left out",
        "parts that only Gemini knows are left out",
        "a part of the kind 'fileData' is sent as text",
        "that the tool failed is not sent",
        "the thought's signature is not sent",
        "the tool 'googleSearch' is not sent",
        "the 'response' of the tool 'late' is not sent",
        "the parameter 'generationConfig.responseModalities' is not sent",
        "the parameter 'top_k' is not sent",
    },
    "bedrock-converse": {
        "thinking is left out",
        "a block of the kind 'guardContent' is sent as text",
        "that the tool failed is not sent",
        "the tool 'cachePoint' is not sent",
        "the parameter 'additionalModelRequestFields' is not sent",
    },
}


@pytest.mark.parametrize("name", LOST)
def test_content_that_openai_cannot_express_is_reported_lost(name: str) -> None:
    request = request_of(read_one(REQUESTS[name], name), encode=provider_named("openai").encode)
    assert {loss.what for loss in losses(request, provider_named("openai"))} == LOST[name]


# --- anything that looks like a message of theirs


_values = jsonb_values.values
_texts = jsonb_values.texts
_objects = jsonb_values.objects


def _gemini_parts() -> st.SearchStrategy[Any]:
    call = st.fixed_dictionaries({"name": _texts}, optional={"args": _objects | _values, "id": _texts})
    answer = st.fixed_dictionaries({"name": _texts}, optional={"response": _values, "id": _texts})
    return st.one_of(
        st.fixed_dictionaries(
            {"text": _texts}, optional={"thought": st.booleans(), "thoughtSignature": _texts}
        ),
        st.fixed_dictionaries({"functionCall": call | _values}),
        st.fixed_dictionaries({"functionResponse": answer | _values}),
        st.fixed_dictionaries({"inlineData": _values}),
        _objects.filter(lambda value: "type" not in value),
    )


def _bedrock_blocks() -> st.SearchStrategy[Any]:
    call = st.fixed_dictionaries(
        {"toolUseId": _texts, "name": _texts}, optional={"input": _objects | _values}
    )
    answer = st.fixed_dictionaries({"toolUseId": _texts}, optional={"content": _values, "status": _values})
    return st.one_of(
        st.fixed_dictionaries({"text": _texts | _values}),
        st.fixed_dictionaries({"toolUse": call | _values}),
        st.fixed_dictionaries({"toolResult": answer | _values}),
        st.fixed_dictionaries({"reasoningContent": _values}),
        _objects.filter(lambda value: "type" not in value),
    )


def _items() -> st.SearchStrategy[Any]:
    call = {"type": st.just("function_call"), "call_id": _texts, "name": _texts, "arguments": _texts}
    answer = {"type": st.just("function_call_output"), "call_id": _texts | _values, "output": _values}
    role = st.sampled_from(["user", "assistant", "system", "developer"])
    return st.one_of(
        st.fixed_dictionaries({"role": role, "content": _texts | _values}, optional={"id": _texts}),
        st.fixed_dictionaries(call, optional={"id": _values}),
        st.fixed_dictionaries(answer),
        st.fixed_dictionaries(
            {"type": st.sampled_from(["reasoning", "web_search_call", "compaction"])},
            optional={"summary": _values},
        ),
    )


_roles = {"gemini": ["user", "model"], "bedrock-converse": ["user", "assistant"]}
_documents = st.one_of(
    st.tuples(
        st.just("gemini"),
        st.fixed_dictionaries(
            {"contents": st.lists(st.fixed_dictionaries({"role": st.sampled_from(_roles["gemini"]), "parts": st.lists(_gemini_parts(), max_size=3)}, optional={"x": _values}), max_size=3)},
            optional={"systemInstruction": _values, "generationConfig": _values, "tools": _values},
        ),
    ),
    st.tuples(
        st.just("bedrock-converse"),
        st.fixed_dictionaries(
            {"messages": st.lists(st.fixed_dictionaries({"role": st.sampled_from(_roles["bedrock-converse"]), "content": st.lists(_bedrock_blocks(), max_size=3) | _values.filter(lambda value: not isinstance(value, str | list))}), max_size=3)},
            optional={"system": _values, "inferenceConfig": _values, "toolConfig": _values},
        ),
    ),
    st.tuples(
        st.just("openai-responses"),
        st.fixed_dictionaries(
            {"input": st.lists(_items(), max_size=4)},
            optional={"instructions": _values, "text": _values, "tools": _values, "tool_choice": _values},
        ),
    ),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(document=_documents)
def test_any_request_survives_a_round_trip_and_has_every_format(document: tuple[str, dict[str, Any]]) -> None:
    name, request = document
    [conversation] = find_format(name).read(documents_in(exact_json.encode(request)))
    entries = entries_of(conversation)
    given_back = back(entries, name)
    # Nothing says of a request without messages and parameters what it would hold.
    assert same(given_back, request)
    for provider in PROVIDERS:
        record = provider_named(provider)
        made = request_of(entries, encode=record.encode)
        assert exact_json.encode(record.body(made))
        assert all(isinstance(loss.what, str) for loss in losses(made, record))
        back(entries, provider)


# --- what providers really took


@pytest.fixture(scope="module")
def accepted(real_data: Path) -> list[tuple[str, dict[str, Any]]]:
    """The requests that their providers took, with the names of their formats."""
    lines = map(json.loads, (real_data / "recorded-requests.jsonl").read_text().splitlines())
    return [(APIS[line["api"]], line["request"]) for line in lines if line["status"] == 200]


def test_each_accepted_request_survives_a_round_trip(
    database: Database, boxes: BoxStore, accepted: list[tuple[str, dict[str, Any]]]
) -> None:
    assert len(accepted) == 398
    for name, request in accepted:
        documents = documents_in(json.dumps(request))
        taken = choose_format(None, documents)
        # Plain messages to a model of nobody's known name are the same in both.
        assert taken.format.name in (name, *(["openai"] if name == "anthropic" else []))
        for new in (True, False):
            conversations = find_format(name).read(documents)
            [box] = import_conversations(database, "p", conversations).boxes
            assert new or box.new_cards == 0
        exported = "".join(find_exporter(name)(boxes.view(box.box_id).cards))
        assert json.loads(exported) == request


def test_each_accepted_request_matches_the_types_of_every_provider(
    accepted: list[tuple[str, dict[str, Any]]],
) -> None:
    beyond = {
        name: sum(not _is_typed(body, name) for body in _own_bodies(accepted, name)) for name in PROVIDERS
    }
    assert {name: number for name, number in beyond.items() if number} == _BEYOND_TYPES
    for name, request in accepted:
        entries = read_one(request, name)
        for target in PROVIDERS:
            if target != name:
                CHECK_BODY[target](sent(entries, target))


def _own_bodies(accepted: list[tuple[str, dict[str, Any]]], name: str) -> Iterator[dict[str, Any]]:
    return (sent(read_one(request, name), name) for own, request in accepted if own == name)


def _is_typed(body: dict[str, Any], name: str) -> bool:
    try:
        CHECK_BODY[name](body)
    except (AssertionError, ValueError):
        return False
    return True


def test_each_text_of_an_accepted_request_is_sent_or_reported_lost(
    accepted: list[tuple[str, dict[str, Any]]],
) -> None:
    for name, request in accepted:
        entries = read_one(request, name)
        for target in PROVIDERS:
            made = request_of(entries, encode=provider_named(target).encode)
            if not losses(made, provider_named(target)):
                body = exact_json.encode(provider_named(target).body(made)).decode()
                assert [text for text in _said(request) if not _is_in(text, body)] == []


def _is_in(text: str, body: str) -> bool:
    """Whether a text is in a body, as such or within JSON that is a text there."""
    once = json.dumps(text, ensure_ascii=False)[1:-1]
    return once in body or json.dumps(once, ensure_ascii=False)[1:-1] in body


def _said(value: Any) -> Iterator[str]:
    """What is said in a request: the values of its keys for text, under whatever key these stand."""
    if isinstance(value, list):
        for each in value:
            yield from _said(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            if isinstance(each, str) and key in ("text", "content", "instructions", "refusal", "output"):
                yield each.strip()
            else:
                yield from _said(each)
