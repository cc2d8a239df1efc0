"""The lint as a whole: real conversations, any cards at all, and what the renaming of tool calls keeps."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cardbox_cli.context.explain import explain
from cardbox_cli.context.lint.rule import Subject, lint
from cardbox_cli.context.losses import losses
from cardbox_cli.context.messages import Message
from cardbox_cli.context.provider import RenamedCall
from cardbox_cli.context.request import ComposeOptions, RequestEntry, request_of
from cardbox_cli.conversations.conversation_cards import drafts_of
from cardbox_cli.conversations.formats.registry import choose_format
from cardbox_cli.model import exact_json
from cardbox_cli.model.boxes import Slot
from cardbox_cli.model.card_types import CARD_TYPES
from cardbox_cli.model.cards import draft_as_card
from cardbox_cli.model.content import (
    AudioFileContent,
    FieldSchema,
    FieldsSchemaContent,
    FileContent,
    ImageFileContent,
    JsonContent,
    MultiFileContent,
    PdfFileContent,
    TextContent,
    ToolCallContent,
    ToolContent,
    ToolResultContent,
)
from cardbox_cli.model.pairing import pair_calls
from cardbox_cli.providers.anthropic.blocks import allowed_ids, ensure_blocks, make_ids_unique
from cardbox_cli.providers.anthropic.blocks import conversation as sent_conversation
from cardbox_cli.providers.anthropic.model_rules import SentMessages
from cardbox_cli.providers.formats import text
from cardbox_cli.providers.registry import PROVIDERS, provider_named, providers
from tests import jsonb_values
from tests.context.lint.cards import call, check, places, result, thought, user
from tests.context.test_request import card
from tests.conversations import anthropic_messages
from tests.conversations.reading import documents_in
from tests.provider_types import CHECK_BODY
from tests.providers.test_anthropic import messages as sent

anthropic, openai = provider_named("anthropic"), provider_named("openai")


@pytest.fixture(scope="module")
def conversations(real_data: Path) -> list[list[RequestEntry]]:
    """Every conversation of every file, as places of a box."""
    boxes = []
    for file in sorted([*real_data.glob("claude-code_*"), *real_data.glob("tau-bench_*")]):
        documents = documents_in(file.read_bytes())
        for conversation in choose_format(None, documents).format.read(documents):
            drafts = [each for drafted in drafts_of(conversation, "p") for each in drafted.cards]
            slots = [
                Slot(place, draft.card_id, draft_as_card(draft, "p"), "present")
                for place, draft in enumerate(drafts)
            ]
            boxes.append([RequestEntry(slot=slot, box_id="b") for slot in slots])
    assert len(boxes) > 40
    return boxes


class TestRealConversations:
    @pytest.mark.parametrize("provider", PROVIDERS)
    def test_real_conversations_have_no_errors(
        self, conversations: list[list[RequestEntry]], provider: str
    ) -> None:
        findings = [found for entries in conversations for found in check(entries, provider)]
        assert [found for found in findings if found.severity == "error"] == []

    @pytest.mark.parametrize("provider", PROVIDERS)
    def test_the_types_of_each_provider_accept_real_conversations(
        self, conversations: list[list[RequestEntry]], provider: str
    ) -> None:
        for entries in conversations:
            dialect = provider_named(provider)
            body = dialect.body(request_of(entries, ComposeOptions(model="m"), encode=dialect.encode))
            CHECK_BODY[provider](json.loads(exact_json.encode(body)))

    def test_anthropic_ids_become_unique_and_pairs_stay_together(
        self, conversations: list[list[RequestEntry]]
    ) -> None:
        repeated = 0
        for entries in conversations:
            request = request_of(entries, ComposeOptions(model="m"), encode=anthropic.encode)
            messages, renamed = make_ids_unique(
                list(sent_conversation(request.messages, anthropic.facts("m")))
            )
            repeated += bool(renamed)
            called = [block["id"] for block in _blocks(messages, "tool_use")]
            answered = [block["tool_use_id"] for block in _blocks(messages, "tool_result")]
            assert len(set(called)) == len(called)
            assert answered == called[: len(answered)]
        assert repeated == 11


def _blocks(messages: list[Message], kind: str) -> list[Any]:
    return [
        block
        for message in messages
        for block in ensure_blocks(message.body["content"])
        if block["type"] == kind
    ]


class TestRepeatedIds:
    def test_a_call_and_its_result_get_the_same_new_id(self) -> None:
        pairs = [
            msgspec.structs.replace(each, card_id=str(number))
            for number, each in enumerate([user(), *[thought(call()), result()] * 3])
        ]
        made = sent(*pairs)
        assert [message["content"][0].get("id") for message in made[1::2]] == ["c", "c_2", "c_3"]
        assert [message["content"][0].get("tool_use_id") for message in made[2::2]] == ["c", "c_2", "c_3"]

    @pytest.mark.parametrize(
        ("calls", "results", "renamed"),
        [
            (["a"], ["a"], []),
            (["a", "a"], ["a", "a_2"], [("a", "a_2")]),
            (["a", "a_2", "a"], ["a", "a_2", "a_3"], [("a", "a_3")]),
            (["a", "a", "a_2"], ["a", "a_3", "a_2"], [("a", "a_3")]),
            (["a.b", "a_b"], ["a_b_2", "a_b"], [("a.b", "a_b_2")]),
            (
                ["a.b", "a:b", "a.b"],
                ["a_b", "a_b_2", "a_b_3"],
                [("a.b", "a_b"), ("a:b", "a_b_2"), ("a.b", "a_b_3")],
            ),
        ],
    )
    def test_repeated_ids_in_one_message_are_matched_in_order(
        self, calls: list[str], results: list[str], renamed: list[tuple[str, str]]
    ) -> None:
        made = [{"type": "tool_use", "id": call_id, "name": "f", "input": {}} for call_id in calls]
        answers = [{"type": "tool_result", "tool_use_id": call_id, "content": "ok"} for call_id in calls]
        asked = Message(layer="x", body={"role": "assistant", "content": made}, card_id="k")
        answered = Message(layer="x", body={"role": "user", "content": answers})
        [asks, replies], changes = make_ids_unique([asked, answered])
        assert [block["id"] for block in asks.body["content"]] == results
        assert [block["tool_use_id"] for block in replies.body["content"]] == results
        assert changes == [RenamedCall(card_id="k", old=old, new=new) for old, new in renamed]

    @given(ids=st.lists(st.text(alphabet="c_.:2", min_size=1, max_size=5)))
    def test_different_ids_stay_different_after_encoding(self, ids: list[str]) -> None:
        others = allowed_ids(ids)
        spelled = {call_id: others.get(call_id, call_id) for call_id in ids}
        assert len(set(spelled.values())) == len(spelled)
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]+", each) for each in spelled.values())
        assert all(call_id in others or re.fullmatch(r"[a-zA-Z0-9_-]+", call_id) for call_id in ids)
        assert not any(re.fullmatch(r"[a-zA-Z0-9_-]+", call_id) for call_id in others)

    def test_an_unchanged_message_stays_the_same_object(self) -> None:
        message = Message(layer="x", body={"role": "user", "content": [{"type": "text", "text": "a"}]})
        assert make_ids_unique([message])[0][0] is message


_ids = st.sampled_from(["a", "b", "a.b", "", "x" * 41]) | st.none()
_texts = st.sampled_from(["", " ", "hi", "It is 2026-11-22 08:30. ", "x" * 400]) | jsonb_values.texts
_calls = st.builds(
    call, _ids, st.sampled_from(["f", "g", "x y", ""]), st.sampled_from(["{}", "{", "", "[]"]) | st.none()
)
_known_metadata = st.fixed_dictionaries(
    {},
    optional={
        "source_group": st.sampled_from(["g", "h"]),
        "source_format": st.sampled_from(["openai", "anthropic", "claude-code"]),
        "source_blocks": st.lists(anthropic_messages.blocks, max_size=3),
        "source_message": st.fixed_dictionaries({"role": st.sampled_from(["user", "tool", "x"])}),
        "signature": _texts,
        "covers": st.lists(st.sampled_from(["k0", "k1"]), max_size=2) | st.none(),
        "edited_from": st.just("x"),
    },
)
# What other programs may have written under the names that cbx knows.
_strange_metadata = st.dictionaries(
    st.sampled_from(
        [
            *("source_group", "source_format", "source_blocks", "source_message", "signature", "covers"),
            *("layer", "edited_from", "unreadable", "function_name", "x"),
        ]
    ),
    jsonb_values.values,
    max_size=3,
)
_metadata = _known_metadata | _strange_metadata
_strange_profiles = st.dictionaries(
    st.sampled_from(["llm_config", "system_prompt", "layers", "layout", "process", "allowed_tools"]),
    jsonb_values.values
    | st.dictionaries(
        st.sampled_from(
            [
                *("model", "thinking", "stop", "tool_choice", "response_format", "cache_control"),
                *("temperature", "top_p", "max_tokens", "reasoning_effort", "n", "foo"),
            ]
        ),
        jsonb_values.values
        | st.sampled_from([{"type": "enabled", "budget_tokens": 0.5}, {"type": "json_object"}, "o1"]),
        max_size=2,
    ),
    max_size=4,
)
_files = st.sampled_from([FileContent, ImageFileContent, PdfFileContent, AudioFileContent]).map(
    lambda sort: sort(uri="s3://b/k", checksum="c")
)
_contents = st.one_of(
    st.builds(TextContent, _texts),
    st.builds(JsonContent, _strange_profiles),
    st.builds(
        ToolResultContent, status=st.just("success"), after_execution=st.just("suspend"), result=jsonb_values.values
    ),
    st.builds(
        ToolResultContent,
        status=st.just("failed"),
        after_execution=st.just("terminate"),
        error=jsonb_values.objects.map(lambda more: {"code": "c", "message": "m", **more}),
    ),
    st.builds(ToolCallContent, tool_name=_texts, arguments=jsonb_values.objects, status=_texts),
    st.just(FieldsSchemaContent([FieldSchema("f", "g")])),
    _files,
    st.lists(_files, min_size=1, max_size=2).map(MultiFileContent),
    jsonb_values.objects.map(lambda more: {**more, "__type__": "New"}),
    st.builds(JsonContent, jsonb_values.objects),
    st.builds(ToolContent, st.lists(jsonb_values.objects, max_size=2)),
    st.none(),
    st.just(
        JsonContent({"llm_config": {"model": "claude-opus-4-6", "thinking": {"type": "enabled"}}, "system_prompt": " "})
    ),
)  # fmt: skip
_cards = st.builds(
    card,
    st.sampled_from([*CARD_TYPES, "x"]),
    _contents,
    st.sampled_from(["user", "assistant", "system", "tool", "developer", "function", "x", None]),
    card_id=st.sampled_from([f"k{number}" for number in range(12)]),
    tool_calls=st.none() | st.lists(_calls | jsonb_values.values, max_size=3) | jsonb_values.values,
    tool_call_id=_ids,
    metadata=_metadata,
)


def _entries_of(most: int) -> st.SearchStrategy[list[RequestEntry]]:
    """Up to so many places of a box."""
    return st.lists(
        st.builds(
            lambda each, state, rule: (each, state, rule),
            _cards,
            st.sampled_from(["present", "present", "present", "dangling", "deleted", "expired"]),
            st.sampled_from([None, "inherit_context a (box 1)"]),
        ),
        max_size=most,
    ).map(
        lambda drawn: [
            RequestEntry(slot=Slot(place, each.card_id, None if state == "dangling" else each, state), box_id="b", rule=rule)
            for place, (each, state, rule) in enumerate(drawn)
        ]
    )  # fmt: skip


_entries = _entries_of(10)


@settings(max_examples=60, deadline=None)
@given(entries=_entries, provider=st.sampled_from(sorted(PROVIDERS)), model=st.sampled_from([None, "gpt-4o"]))
def test_a_check_is_repeatable_and_changes_no_cards(
    entries: list[RequestEntry], provider: str, model: str | None
) -> None:
    before = exact_json.encode(entries)
    findings = check(entries, provider, model=model)
    assert check(entries, provider, model=model) == findings
    assert exact_json.encode(entries) == before
    for found in findings:
        assert found.position is None or entries[found.position].slot.card_id == found.card_id


@settings(max_examples=60, deadline=None)
@given(entries=_entries)
def test_any_cards_can_be_encoded_in_every_format(entries: list[RequestEntry]) -> None:
    before = exact_json.encode(entries)
    for dialect in providers():
        request = request_of(entries, encode=dialect.encode)
        exact_json.encode(dialect.body(request))
        explain(request, dialect)
    assert isinstance(text(request_of(entries, encode=openai.encode)), str)
    assert exact_json.encode(entries) == before


def test_an_invalid_tool_calls_value_is_shown() -> None:
    strange = card("agent.thought", TextContent("Hm."), "assistant", tool_calls=1)
    assert text(request_of(places(strange), encode=openai.encode)) == "── 1 assistant ──\n  Hm.\n→ 1\n"


@settings(max_examples=40, deadline=None)
@given(entries=_entries)
def test_rules_check_the_same_turns_that_are_sent(entries: list[RequestEntry]) -> None:
    request = request_of(entries, encode=anthropic.encode)
    turns = Subject(anthropic, entries, request).view(SentMessages).merged
    assert [{"role": turn.role, "content": [block for block, _ in turn.blocks]} for turn in turns] == [
        {**message, "content": ensure_blocks(message["content"])}
        for message in anthropic.body(request)["messages"]
    ]
    lint(entries, request, anthropic)


@settings(max_examples=60, deadline=None)
@given(entries=_entries, provider=st.sampled_from(sorted(PROVIDERS)))
def test_the_history_index_matches_its_cards(entries: list[RequestEntry], provider: str) -> None:
    request = request_of(entries, encode=provider_named(provider).encode)
    subject = Subject(provider_named(provider), entries, request)
    cards = [card for _, card in subject.cards]
    assert subject.types == {card.type for card in cards}
    assert subject.roles == {card.role for card in cards}
    assert subject.classes == {type(card.content) for card in cards}
    said = [card for _, card, _ in subject.history.messages]
    assert sorted(card.card_id for card in cards) == sorted(
        [card.card_id for card in said] + [card.card_id for _, card in subject.cards_without_message]
    )
    told, all_pairs = subject.history.pairing, pair_calls(said)
    assert told.unanswered == [(place, call_id) for place, call_id in all_pairs.unanswered if call_id]
    assert told.orphans == [place for place in all_pairs.orphans if said[place].tool_call_id]
    assert told.results == {
        place: call for place, call in all_pairs.results.items() if said[place].tool_call_id
    }


# Of few cards, because one that must be asked makes the lint ask all of them.
@settings(max_examples=200, deadline=None)
@given(entries=_entries_of(2), provider=st.sampled_from(sorted(PROVIDERS)))
def test_not_expressible_findings_match_the_rendering_losses(
    entries: list[RequestEntry], provider: str
) -> None:
    request = request_of(entries, encode=provider_named(provider).encode)
    lost = Counter((loss.card_id, loss.what) for loss in losses(request, provider_named(provider)))
    # What moves is told by a rule of its own.
    lost -= Counter(provider_named(provider).losses_in_request(request))
    findings = lint(entries, request, provider_named(provider))
    assert lost == Counter(
        (each.card_id, each.message) for each in findings if each.rule == "not-expressible"
    )
