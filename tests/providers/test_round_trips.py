"""From one provider's form to the other's and back: calls, results, order and text stay; the rest is reported."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest
from anthropic.types.message_create_params import MessageCreateParamsBase
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat.completion_create_params import CompletionCreateParamsBase

from cardbox_cli.context.losses import losses
from cardbox_cli.context.request import Request, RequestEntry, request_of
from cardbox_cli.conversations.conversation import Conversation
from cardbox_cli.conversations.conversation_cards import drafts_of
from cardbox_cli.conversations.formats.registry import choose_format, find_format
from cardbox_cli.model import exact_json
from cardbox_cli.model.boxes import Slot
from cardbox_cli.model.cards import draft_as_card
from cardbox_cli.providers.anthropic.request import SAME_PARAMETERS
from cardbox_cli.providers.openai.request import PARAMETERS, TOOL_PARAMETERS
from cardbox_cli.providers.registry import provider_named
from tests import jsonb_values
from tests.conversations.reading import documents_in, entries_of

# What is said, in order: ("user" or "assistant" or "system", text), ("call", name, arguments), and
# ("result", which call of all it answers, text).
Said = list[tuple[Any, ...]]


def request(conversation: Conversation, provider: str) -> Request:
    """The request that an import of a conversation makes."""
    cards = [draft_as_card(draft, "p") for drafted in drafts_of(conversation, "p") for draft in drafted.cards]
    slots = [Slot(place, card.card_id, card, "present") for place, card in enumerate(cards)]
    entries = [RequestEntry(slot=slot, box_id="b") for slot in slots]
    return request_of(entries, encode=provider_named(provider).encode)


def whole_request(conversation: Conversation, provider: str) -> Request:
    """The same with what the file has beside its messages."""
    return request_of(entries_of(conversation), encode=provider_named(provider).encode)


def body(conversation: Conversation, provider: str) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(
        exact_json.encode(provider_named(provider).body(request(conversation, provider)))
    )
    return made


def sent_as(provider: str, conversation: Conversation) -> Conversation:
    """The conversation that the request of another reads as, once it was imported from the request's body."""
    made = provider_named(provider).body(request(conversation, provider))
    [read] = find_format(provider).read(documents_in(exact_json.encode(made)))
    return read


def said(conversation: Conversation) -> Said:
    """What the request for OpenAI says. Texts that one speaker says in a row are one, empty ones are none."""
    calls: dict[str, list[int]] = {}
    events: Said = []
    for event in _events(body(conversation, "openai")["messages"], calls):
        if event[0] in _SPEAKERS and not event[1].strip():
            continue
        if event[0] in _SPEAKERS and events and events[-1][0] == event[0]:
            event = (event[0], f"{events.pop()[1]}\n{event[1]}")
        events.append(event)
    return events


_SPEAKERS = ("system", "user", "assistant")


def _events(messages: list[dict[str, Any]], calls: dict[str, list[int]]) -> Iterator[tuple[Any, ...]]:
    number = 0
    for message in messages:
        if message["role"] == "tool":
            yield "result", calls[message["tool_call_id"]].pop(), _text(message["content"])
            continue
        yield message["role"], _text(message["content"])
        for call in message.get("tool_calls") or []:
            calls.setdefault(call["id"], []).append(number)
            number += 1
            arguments = call["function"]["arguments"]
            yield "call", call["function"]["name"], exact_json.canonical(arguments.encode())


def _text(content: Any) -> str:
    return "\n".join(part["text"] for part in content) if isinstance(content, list) else content or ""


def conversations(file: Path) -> list[Conversation]:
    documents = documents_in(file.read_bytes())
    return list(choose_format(None, documents).format.read(documents))


def test_real_openai_conversations_survive_a_round_trip_to_anthropic(real_data: Path) -> None:
    [file] = real_data.glob("tau-bench*.json")
    for conversation in conversations(file):
        assert said(sent_as("anthropic", conversation)) == said(conversation)
        lost = {loss.what for loss in losses(request(conversation, "anthropic"), provider_named("anthropic"))}
        assert lost <= {"the message's 'name' is not sent"}


def test_real_anthropic_conversations_lose_only_the_reported_content(real_data: Path) -> None:
    [file] = real_data.glob("claude-code*.jsonl")
    reported: set[str] = set()
    for conversation in conversations(file):
        assert said(sent_as("openai", conversation)) == said(conversation)
        reported |= {loss.what for loss in losses(request(conversation, "openai"), provider_named("openai"))}
    assert reported == {"that the tool failed is not sent"}


_texts = (st.sampled_from(["hi", "a\nb", " lead"]) | jsonb_values.texts).filter(
    lambda text: text.strip() != ""
)
_calls = st.lists(
    st.tuples(
        st.sampled_from(["f", "g"]),
        jsonb_values.objects.map(lambda value: exact_json.encode(value).decode()),
        st.text("ab.", max_size=3),
        jsonb_values.texts,
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda call: call[2],
)


def _exchange(words: str, calls: list[tuple[str, str, str, str]]) -> list[dict[str, Any]]:
    made = [
        {"id": f"c{call_id}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for name, arguments, call_id, _ in calls
    ]
    results = [
        {"role": "tool", "tool_call_id": f"c{call_id}", "content": answer} for _, _, call_id, answer in calls
    ]
    return [{"role": "assistant", "content": words or None, "tool_calls": made}, *results]


_turns = st.one_of(
    st.builds(
        lambda role, text: [{"role": role, "content": text}], st.sampled_from(["user", "assistant"]), _texts
    ),
    st.builds(_exchange, st.just("") | _texts, _calls),
)


@settings(max_examples=60, deadline=None)
@given(turns=st.lists(_turns, min_size=1, max_size=6))
def test_generated_openai_conversations_survive_a_round_trip_to_anthropic(
    turns: list[list[dict[str, Any]]],
) -> None:
    messages = [{"role": "user", "content": "Begin."}, *(message for turn in turns for message in turn)]
    text = exact_json.encode({"messages": messages})
    [conversation] = find_format("openai").read(documents_in(text))
    assert said(sent_as("anthropic", conversation)) == said(conversation)


def test_parameters_match_the_types_of_the_provider() -> None:
    known = get_type_hints(CompletionCreateParamsBase).keys() - {
        "messages",
        "model",
        "tools",
        "stream_options",
    }
    assert {*PARAMETERS, *TOOL_PARAMETERS} == known
    known = get_type_hints(MessageCreateParamsBase).keys() - {"messages", "model", "system", "tools"}
    sampling = {"temperature", "top_p", "top_k"}
    assert {*SAME_PARAMETERS} == known - {"max_tokens", "tool_choice"} | sampling


@pytest.mark.parametrize(
    ("target", "lost"),
    [("openai", {"stream_options", "top_k", "foo"}), ("anthropic", {"stream_options", "n", "store", "foo"})],
)
def test_each_key_of_the_llm_config_is_sent_or_reported(target: str, lost: set[str]) -> None:
    """But for those that steer the sender, what is null, and what is about tools where there are none."""
    silent = {"model": "m", "stream": True, "provider_options": {}, "save_reasoning_content": True}
    silent |= {"seed": None, "tool_choice": "auto", "parallel_tool_calls": False}
    sent = {"temperature": 0.1, "metadata": {}, "max_tokens": 4096, "service_tier": "auto"}
    other = {"stream_options": {}, "top_k": 1, "n": 2, "store": False, "foo": 1}
    [conversation] = find_format("openai").read(documents_in('{"messages": []}'))
    asked = msgspec.structs.replace(request(conversation, target), config={**silent, **sent, **other})
    named = {loss.what for loss in losses(asked, provider_named(target))}
    assert named == {f"the parameter {name!r} is not sent" for name in lost}
    body = provider_named(target).body(asked)
    assert body.items() >= sent.items()
    assert not body.keys() & (lost | silent.keys()) - {"model", "seed"}


FILE = {"type": "file", "file": {"file_id": "f-1"}}
RESULT = {"type": "tool_result", "tool_use_id": "c", "content": "ok"}
CALL = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
CITED = {"type": "text", "text": "a", "citations": [{"type": "char_location", "cited_text": "a"}]}


@pytest.mark.parametrize(
    ("source", "message", "lost"),
    [
        ("openai", {"role": "user", "content": "a", "name": "ann"}, ["the message's 'name' is not sent"]),
        ("openai", {"role": "assistant", "content": None, "refusal": "No."}, ["'refusal' is sent as text"]),
        ("openai", {"role": "assistant", "content": None, "audio": {"id": "a"}}, ["the message's 'audio' is not sent"]),
        ("openai", {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
         ["'function_call' is sent as text"]),
        ("openai", {"role": "function", "name": "f", "content": "a"}, ["the result of a function without an id is sent as text"]),
        ("openai", {"role": "tool", "tool_call_id": "c", "name": "f", "content": "a"}, ["the message's 'name' is not sent"]),
        ("openai", {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
         ["the key 'cache_control' of a part of type 'text' is not sent"]),
        ("openai", {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "custom", "custom": {}}]},
         ["a tool call that is not a function's is sent as text"]),
        ("openai", {"role": "user", "content": [{"type": "text", "text": "a"}, FILE]}, ["a part of type 'file' is sent as text"]),
        ("openai", {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://h/p", "detail": "low"}}]},
         ["the 'detail' of an image is not sent"]),
        ("openai", {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://h/p"}}]}, []),
        ("anthropic", {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, CITED]},
         ["thinking is left out", "citations are not sent"]),
        ("anthropic", {"role": "assistant", "content": [{"type": "server_tool_use", "id": "s", "name": "f", "input": {}}]},
         ["blocks that only Anthropic knows are left out"]),
        ("anthropic", {"role": "user", "content": [{**RESULT, "is_error": True}]}, ["that the tool failed is not sent"]),
        ("anthropic", {"role": "user", "content": [{**RESULT, "content": [IMAGE]}]},
         ["a block of type 'image' in a tool result is sent as text"]),
        ("anthropic", {"role": "user", "content": [IMAGE]}, []),
        ("anthropic", {"role": "user", "content": [{**IMAGE, "cache_control": {"type": "ephemeral"}}]},
         ["the file's 'cache_control' is not sent"]),
        ("anthropic", {"role": "assistant", "id": "msg_1", "content": [{**CALL, "caller": {"type": "direct"}}]},
         ["the message's 'id' is not sent", "the call's 'caller' is not sent"]),
        ("anthropic", {"role": "user", "content": [{**RESULT, "cache_control": {"type": "ephemeral"}}]},
         ["the result's 'cache_control' is not sent"]),
        ("anthropic", {"role": "user", "content": [{"type": "container_upload", "file_id": "f"}]},
         ["a block of type 'container_upload' is sent as text"]),
    ],
)  # fmt: skip
def test_content_that_the_other_format_lacks_is_reported(
    source: str, message: dict[str, Any], lost: list[str]
) -> None:
    target = "anthropic" if source == "openai" else "openai"
    [conversation] = find_format(source).read(documents_in(json.dumps({"messages": [message]})))
    assert [loss.what for loss in losses(request(conversation, target), provider_named(target))] == lost
    assert losses(request(conversation, source), provider_named(source)) == []


def test_other_keys_of_a_request_are_sent_or_reported() -> None:
    """Anthropic's parameters and keys of tools that OpenAI does not have."""
    tool = {
        "name": "f",
        "input_schema": {"type": "object"},
        "defer_loading": True,
        "input_examples": [{"a": 1}],
    }
    beside = {"container": "c", "mcp_servers": [{"name": "m"}], "context_management": {"edits": []}}
    body = {
        "model": "claude-opus-4-6",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [tool, {"type": "web_search_20250305", "name": "web_search"}],
        "output_config": {"effort": "low"},
        **beside,
    }
    [conversation] = find_format("anthropic").read(documents_in(json.dumps(body)))
    assert {
        loss.what for loss in losses(whole_request(conversation, "openai"), provider_named("openai"))
    } == {
        "the 'defer_loading' of the tool 'f' is not sent",
        "the 'input_examples' of the tool 'f' is not sent",
        "the tool 'web_search' is not sent",
        *(f"the parameter {name!r} is not sent" for name in (*beside, "output_config")),
    }
