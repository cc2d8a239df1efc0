"""Fitting: never more than what is allowed, and no pair is torn."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cardbox_cli.context.explain import explain
from cardbox_cli.context.lint.rule import lint
from cardbox_cli.context.repair.fit import STRATEGIES, FittedRequest, Strategy, fit
from cardbox_cli.context.request import RequestEntry, request_of
from cardbox_cli.errors import InvalidInput
from cardbox_cli.model.cards import Card
from cardbox_cli.model.pairing import pair_calls
from cardbox_cli.providers.registry import provider_named, providers
from tests.context.lint.cards import call, places, profile, result, system, thought, tools, user


def fitted(
    *cards: Card, most: int, strategy: Strategy = "oldest", provider: str = "openai"
) -> tuple[FittedRequest, list[RequestEntry]]:
    entries = places(*cards)
    record = provider_named(provider)
    request = request_of(entries, encode=record.encode)
    return fit(request, most, strategy, provider=record, author_id="t"), entries


def sent(found: FittedRequest) -> list[str]:
    return [message.card_id or message.layer for message in found.request.messages]


openai = provider_named("openai")
LONG = "word " * 200
TALK = (
    profile(),
    user("first"),
    thought(call("c1")),
    result("c1", LONG),
    user("second"),
    thought(call("c2"), call("c3")),
    result("c2", LONG),
    result("c3", "short"),
    user("last"),
)


def tokens(*cards: Card) -> int:
    return explain(request_of(places(*cards), encode=openai.encode), openai).tokens


def test_a_request_within_the_budget_is_unchanged() -> None:
    found, _ = fitted(*TALK, most=tokens(*TALK))
    assert (found.changes, found.before) == ([], found.after)


def test_the_oldest_cards_are_dropped_and_a_user_message_comes_first() -> None:
    found, _ = fitted(*TALK, most=tokens(*TALK) - 1)
    assert sent(found) == ["system_prompt", "k4", "k5", "k6", "k7", "k8"]
    assert [(change.kind, change.card_id) for change in found.changes] == [
        ("dropped", "k1"),
        ("dropped", "k2"),
        ("dropped", "k3"),
    ]
    assert {left.card_id for left in found.request.left_out} >= {"k1", "k2", "k3"}


def test_system_text_and_the_last_question_are_never_dropped() -> None:
    most = tokens(profile(), user("last"))
    found, _ = fitted(*TALK, most=most)
    assert sent(found) == ["system_prompt", "k8"]
    with pytest.raises(
        InvalidInput, match=rf"the parts of the request that cbx must keep take ~{most} tokens"
    ):
        fitted(*TALK, most=most - 1)


def test_cards_from_recipe_arguments_are_never_dropped() -> None:
    asked = user("instruction")
    entries = places(asked, user("first"), thought(text=LONG), user("last"))
    entries[0] = msgspec.structs.replace(entries[0], rule="pack_arguments[0] instruction")
    request = request_of(entries, encode=openai.encode)
    found = fit(request, 30, "oldest", provider=openai, author_id="t")
    assert sent(found) == ["k0", "k3"]


def test_a_note_replaces_the_largest_result() -> None:
    found, _ = fitted(*TALK, most=tokens(*TALK) - 100, strategy="largest-results")
    [change] = found.changes
    assert (change.kind, change.card_id) == ("rewritten", "k3")
    body = found.request.messages[3].body
    assert (body["tool_call_id"], body["content"]) == ("c1", body["content"])
    assert body["content"].endswith("tokens left out: the result is card k3]")
    assert found.notes["k3"].metadata["edited_from"] == "k3"


def test_a_duplicate_result_becomes_a_note() -> None:
    found, _ = fitted(*TALK, most=tokens(*TALK) - 100, strategy="duplicates")
    assert [change.card_id for change in found.changes] == ["k3"]
    assert found.request.messages[3].body["content"] == "[left out: said again below, by card k6]"


def test_tool_definitions_count_toward_the_budget() -> None:
    with_tools = (tools("f", "g"), *TALK)
    found, _ = fitted(*with_tools, most=tokens(*with_tools) - 1)
    assert found.after == explain(found.request, openai).tokens < found.before


CARDS = st.lists(
    st.one_of(
        st.builds(user, st.sampled_from(["hi", LONG])),
        st.builds(
            lambda ids: thought(*map(call, ids), text="x"), st.lists(st.sampled_from("abc"), max_size=3)
        ),
        st.builds(result, st.sampled_from("abc"), st.sampled_from(["ok", LONG, "other " + LONG])),
        st.builds(system, st.just("rules")),
    ),
    max_size=14,
)


@settings(max_examples=150, deadline=None)
@given(
    cards=CARDS,
    share=st.floats(0, 1),
    strategy=st.sampled_from(STRATEGIES),
    provider=st.sampled_from([each.name for each in providers()]),
)
def test_fitting_never_exceeds_the_budget_or_splits_a_pair(
    cards: list[Card], share: float, strategy: Strategy, provider: str
) -> None:
    entries = places(*cards)
    record = provider_named(provider)
    request = request_of(entries, encode=record.encode)
    most = max(1, int(explain(request, openai).tokens * share))
    try:
        found = fit(request, most, strategy, provider=record, author_id="t")
    except InvalidInput:
        return
    assert explain(found.request, openai).tokens == found.after <= most
    gone = {change.card_id for change in found.changes if change.kind == "dropped"}
    assert {message.card_id for message in found.request.messages}.isdisjoint(gone)
    before = [card for entry in entries if (card := entry.slot.card) is not None]
    for result_at, call_at in pair_calls(before).results.items():
        assert (before[result_at].card_id in gone) == (before[call_at].card_id in gone)
    errors = torn(entries, provider)
    kept = [entry for entry in entries if entry.slot.card_id not in gone]
    assert torn(kept, provider) <= errors


def torn(entries: list[RequestEntry], provider: str) -> set[str | None]:
    """The cards of torn exchanges that the lint finds."""
    found = lint(
        entries, request_of(entries, encode=provider_named(provider).encode), provider_named(provider)
    )
    rules = ("call-without-result", "result-without-call", "result-repeated", "result-not-after-call")
    return {each.card_id for each in found if each.rule in rules}
