"""Formats of files that are no provider's: LangChain's messages, ShareGPT's turns, OpenTelemetry's spans."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.load import dumpd
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    messages_from_dict,
    messages_to_dict,
)

from cardbox_cli.context.losses import losses
from cardbox_cli.context.request import RequestEntry, request_of
from cardbox_cli.conversations.formats.registry import choose_format, find_exporter, find_format, format_names
from cardbox_cli.errors import InvalidCard, InvalidConversation, UsageError
from cardbox_cli.model import exact_json
from cardbox_cli.providers.registry import PROVIDERS, provider_named
from tests import jsonb_values
from tests.conversations.conftest import Export, ImportText
from tests.conversations.reading import documents_in, entries_of
from tests.conversations.requests import OPENAI, REQUESTS
from tests.provider_types import CHECK_BODY


def chat(entries: list[RequestEntry]) -> dict[str, Any]:
    """What is sent to OpenAI of it."""
    record = provider_named("openai")
    body: dict[str, Any] = json.loads(
        exact_json.encode(record.body(request_of(entries, encode=record.encode)))
    )
    CHECK_BODY["openai"]({"model": "m", **body})
    return body


def read(document: Any, name: str) -> list[list[RequestEntry]]:
    text = document if isinstance(document, str) else json.dumps(document)
    assert choose_format(None, documents_in(text)).format.name == name
    return [entries_of(each) for each in find_format(name).read(documents_in(text))]


# --- LangChain

CALL = {"name": "weather", "args": {"city": "Oslo"}, "id": "c1"}
MESSAGES: list[BaseMessage] = [
    SystemMessage("Be brief."),
    HumanMessage([{"type": "text", "text": "Where?"}, {"type": "image_url", "image_url": {"url": "https://h/p.png"}}], id="1"),
    AIMessage("", tool_calls=[CALL], invalid_tool_calls=[{"name": "f", "args": "{", "id": "c2", "error": None}]),
    ToolMessage("Rain.", tool_call_id="c1", name="weather"),
    ToolMessage("No.", tool_call_id="c2", status="error", artifact={"a": 1}),
    AIMessage("In Oslo.", usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}),
    HumanMessage("Thanks.", name="ann"),
]  # fmt: skip
FORMS = {
    "messages_to_dict": messages_to_dict(MESSAGES),
    "dumpd": [dumpd(each) for each in MESSAGES],
    "fields": [each.model_dump(mode="json") for each in MESSAGES],
    "functions": messages_to_dict([HumanMessage("a"), FunctionMessage("b", name="f")]),
    "a role": messages_to_dict(
        [ChatMessage("a", role="user"), AIMessage(["b", {"type": "text", "text": "c"}])]
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_langchain_messages_survive_a_round_trip(import_text: ImportText, export: Export, form: str) -> None:
    given = json.loads(json.dumps(FORMS[form]))
    for document in (given, {"values": {"messages": given}}):
        text = json.dumps(document)
        assert choose_format(None, documents_in(text)).format.name == "langchain"
        [box] = import_text("langchain", text)
        assert json.loads(export(box.box_id, "langchain")) == given
        assert import_text("langchain", text)[0].new_cards == 0


@pytest.mark.parametrize("form", ["messages_to_dict", "dumpd", "fields"])
def test_a_failed_langchain_tool_is_marked_or_reported_lost(form: str) -> None:
    [entries] = read(FORMS[form], "langchain")
    marks = {
        "anthropic": '"is_error": true',
        "gemini": '{"error": "No."}',
        "bedrock-converse": '"status": "error"',
    }
    for name in PROVIDERS:
        record = provider_named(name)
        request = request_of(entries, encode=record.encode)
        body = json.dumps(json.loads(exact_json.encode(record.body(request))))
        assert body.count(marks.get(name, '"No."')) == 1
        lost = "that the tool failed is not sent" in {loss.what for loss in losses(request, record)}
        assert lost == (name not in marks)


def test_only_a_failed_result_changes_its_card_id() -> None:
    """What was imported before cbx knew of failures keeps the ids that it had, and is no conflict."""
    call = AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "c"}])
    ids = {}
    for status in ("success", "error"):
        answer = ToolMessage("b", tool_call_id="c", status=status)
        [entries] = read(messages_to_dict([HumanMessage("a"), call, answer]), "langchain")
        ids[status] = [entry.slot.card_id for entry in entries]
    assert ids["success"] == [
        "a83f4151023c512ab1128be3a1f38e7f",
        "b7a9161b067a5725baa0ecfd66fb73bd",
        "86b6db21c967588fbc7f323cdbc7dae3",
    ]
    assert ids["error"][:2] == ["d6bbbceb46315607ab7f1f0933aa76e4", "6027dc2716435ffd8c9872fca00dc98f"]
    assert ids["error"][2] != "95198390059b544da61805f6eff183be"  # under which there is no word of it


@pytest.mark.parametrize(
    ("name", "request_"),
    [
        ("anthropic", {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "no", "is_error": True}]}]}),
        ("gemini", {"contents": [{"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"error": "no"}}}]}]}),
        ("bedrock-converse", {"messages": [{"role": "user", "content": [{"toolResult": {"toolUseId": "c", "content": [{"text": "no"}], "status": "error"}}]}]}),
    ],
)  # fmt: skip
def test_a_failed_tool_has_the_langchain_status_error(name: str, request_: dict[str, Any]) -> None:
    [conversation] = find_format(name).read(documents_in(json.dumps(request_)))
    cards = [entry.slot.card for entry in entries_of(conversation) if entry.slot.card is not None]
    [message] = messages_from_dict(json.loads("".join(find_exporter("langchain")(cards))))
    assert isinstance(message, ToolMessage)
    assert message.status == "error"
    assert "no" in message.content


@pytest.mark.parametrize("form", ["messages_to_dict", "dumpd", "fields"])
def test_langchain_messages_are_sent_to_openai(form: str) -> None:
    [entries] = read(FORMS[form], "langchain")
    messages = chat(entries)["messages"]
    assert [message["role"] for message in messages] == [
        "system", "user", "assistant", "tool", "tool", "assistant", "user"
    ]  # fmt: skip
    assert messages[1]["content"][1]["image_url"]["url"] == "https://h/p.png"
    assert [call["function"] for call in messages[2]["tool_calls"]] == [
        {"name": "weather", "arguments": '{"city":"Oslo"}'},
        {"name": "f", "arguments": "{"},
    ]
    assert messages[3]["content"] == "Rain."


@pytest.mark.parametrize("name", REQUESTS)
def test_langchain_reads_exports_of_any_format(name: str) -> None:
    [conversation] = find_format(name).read(documents_in(json.dumps(REQUESTS[name])))
    cards = [entry.slot.card for entry in entries_of(conversation) if entry.slot.card is not None]
    exported = json.loads("".join(find_exporter("langchain")(cards)))
    messages = messages_from_dict(exported)
    assert messages[0].content == "Be brief." or name == "openai-responses"
    assert "Rain." in [message.content for message in messages]


def test_calls_with_invalid_json_become_langchain_invalid_tool_calls() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{"}}
    document = {"messages": [{"role": "assistant", "content": None, "tool_calls": [call]}]}
    [conversation] = find_format("openai").read(documents_in(json.dumps(document)))
    cards = [entry.slot.card for entry in entries_of(conversation) if entry.slot.card is not None]
    [message] = messages_from_dict(json.loads("".join(find_exporter("langchain")(cards))))
    assert isinstance(message, AIMessage)
    assert [(each["name"], each["args"]) for each in message.invalid_tool_calls] == [("f", "{")]


# --- ShareGPT

SHAREGPT = {
    "id": "identity_0",
    "system": "Be brief.",
    "tools": json.dumps([{"name": "weather", "description": "The weather.", "parameters": {"type": "object", "properties": {}}}]),
    "conversations": [
        {"from": "human", "value": "Where?"},
        {"from": "function_call", "value": '{"name": "weather", "arguments": {"city": "Oslo"}}'},
        {"from": "observation", "value": "Rain."},
        {"from": "gpt", "value": "In Oslo."},
    ],
}  # fmt: skip


def test_sharegpt_turns_become_messages() -> None:
    [entries] = read(SHAREGPT, "sharegpt")
    call = {"name": "weather", "arguments": '{"city":"Oslo"}'}
    body = chat(entries)
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Where?"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "call", "type": "function", "function": call}]},
        {"role": "tool", "tool_call_id": "call", "content": "Rain."},
        {"role": "assistant", "content": "In Oslo."},
    ]  # fmt: skip
    assert [tool["function"]["name"] for tool in body["tools"]] == ["weather"]
    for provider in PROVIDERS:
        record = provider_named(provider)
        made = json.loads(exact_json.encode(record.body(request_of(entries, encode=record.encode))))
        needs_model = provider in ("openai", "anthropic", "openai-responses")
        CHECK_BODY[provider]({"model": "m", **made} if needs_model else made)


def test_several_sharegpt_conversations_are_read_from_lists_and_lines() -> None:
    other = {"conversations": [{"from": "user", "value": "Hi"}, {"from": "assistant", "value": "Ho"}]}
    for text in (json.dumps([SHAREGPT, other]), f"{json.dumps(SHAREGPT)}\n{json.dumps(other)}\n"):
        found = read(text, "sharegpt")
        assert [len(each) for each in found] == [6, 2]


def test_an_unknown_speaker_in_sharegpt_is_refused() -> None:
    document = {"conversations": [{"from": "human", "value": "a"}, {"from": "narrator", "value": "b"}]}
    with pytest.raises(InvalidConversation) as raised:
        read(document, "sharegpt")
    assert str(raised.value) == "f: message 1: unknown speaker 'narrator' for format sharegpt"


# --- OpenTelemetry

ATTRIBUTES = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "gpt-4o",
    "gen_ai.request.temperature": 0.5,
    "gen_ai.system_instructions": [{"type": "text", "content": "Be brief."}],
    "gen_ai.tool.definitions": [{"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}],
    "gen_ai.input.messages": [
        {"role": "user", "parts": [
            {"type": "text", "content": "Where?"},
            {"type": "blob", "modality": "image", "mime_type": "image/png", "content": "AAAA"},
        ]},
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "weather", "arguments": {"city": "Oslo"}}]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": {"sky": "Rain."}}]},
    ],
    "gen_ai.output.messages": [
        {"role": "assistant", "finish_reason": "stop", "parts": [
            {"type": "reasoning", "content": "Hm."}, {"type": "text", "content": "In Oslo."}
        ]},
    ],
}  # fmt: skip
IN_TEXTS = {key: json.dumps(value) if isinstance(value, list) else value for key, value in ATTRIBUTES.items()}


def otlp(value: Any) -> dict[str, Any]:
    """A value as OTLP's JSON writes it."""
    if isinstance(value, list):
        return {"arrayValue": {"values": [otlp(each) for each in value]}}
    if isinstance(value, dict):
        pairs = [{"key": key, "value": otlp(each)} for key, each in value.items()]
        return {"kvlistValue": {"values": pairs}}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": value}


def exported(attributes: dict[str, Any]) -> dict[str, Any]:
    """A file of a collector: a span without messages, and one with."""
    spans = [
        {"name": "tool", "attributes": [{"key": "gen_ai.tool.name", "value": {"stringValue": "weather"}}]},
        {
            "name": "chat",
            "attributes": [{"key": key, "value": otlp(each)} for key, each in attributes.items()],
        },
    ]
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": spans}]}]}


@pytest.mark.parametrize(
    "document",
    [
        ATTRIBUTES,
        {"name": "chat", "attributes": ATTRIBUTES},
        {"name": "chat", "attributes": IN_TEXTS},
        exported(ATTRIBUTES),
        exported(IN_TEXTS),
        json.dumps({"name": "db", "attributes": {}}) + "\n" + json.dumps({"attributes": IN_TEXTS}),
    ],
)
def test_an_opentelemetry_span_becomes_a_conversation(document: Any) -> None:
    [entries] = read(document, "otel")
    body = chat(entries)
    assert (body["model"], body["temperature"], len(body["tools"])) == ("gpt-4o", 0.5, 1)
    assert [message["role"] for message in body["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert body["messages"][1]["content"][1]["image_url"]["url"] == "data:image/png;base64,AAAA"
    assert body["messages"][3]["content"] == '{"sky":"Rain."}'
    assert body["messages"][4]["content"] == "In Oslo."


def test_an_opentelemetry_span_refuses_a_message_key() -> None:
    with pytest.raises(UsageError):
        list(find_format("otel").read(documents_in(json.dumps(ATTRIBUTES)), at="messages"))


# --- anything at all

_KEYS = (
    *("messages", "contents", "input", "parts", "content", "role", "type", "from", "value", "data"),
    *("conversations", "attributes", "gen_ai.input.messages", "spans", "lc", "kwargs", "system", "model"),
)
_documents = st.recursive(
    jsonb_values.values,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(_KEYS),
            inner | st.sampled_from(["user", "assistant", "human", "ai", "text", "function_call"]),
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=120, deadline=None)
@given(documents=st.lists(_documents, min_size=1, max_size=3))
def test_readers_accept_any_file_or_refuse_it_with_its_position(documents: list[Any]) -> None:
    """Whatever a file holds: conversations, or one error that names the place."""
    text = b"\n".join(map(exact_json.encode, documents))
    for name in (None, *format_names()):
        refusal = refusal_of(text, name)
        assert refusal is None or refusal.startswith("f")


def refusal_of(text: bytes, name: str | None) -> str | None:
    """What reading a file says against it; None where that makes cards."""
    try:
        found = choose_format(name, documents_in(text)).format
        for conversation in found.read(documents_in(text)):
            entries_of(conversation)
    except (InvalidConversation, InvalidCard) as refusal:
        return refusal.message
    return None


def test_an_openai_request_is_detected_as_openai() -> None:
    assert choose_format(None, documents_in(json.dumps(OPENAI))).format.name == "openai"
