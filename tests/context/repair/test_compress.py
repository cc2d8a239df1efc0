"""Compressing and expanding lists: what comes back is what was there, in its place."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cardbox_cli.context.explain import explain
from cardbox_cli.context.repair.fit import (
    SummaryBudget,
    expand_summary,
    insert_summary,
    select_covered,
    select_covered_to_fit,
    summary_card,
)
from cardbox_cli.context.request import RequestEntry, request_of
from cardbox_cli.errors import InvalidInput
from cardbox_cli.model.boxes import digest
from cardbox_cli.model.cards import Card, draft_as_card
from cardbox_cli.model.pairing import pair_calls
from cardbox_cli.providers.registry import provider_named
from tests.context.lint.cards import call, places, result, system, thought, user

CARDS = st.lists(
    st.one_of(
        st.builds(user, st.sampled_from(["hi", "x"])),
        st.builds(
            lambda ids: thought(*map(call, ids), text="x"), st.lists(st.sampled_from("abc"), max_size=3)
        ),
        st.builds(result, st.sampled_from("abc")),
        st.builds(system, st.just("rules")),
    ),
    min_size=1,
    max_size=14,
)


def ids_of(entries: list[RequestEntry]) -> list[str]:
    return [entry.slot.card_id for entry in entries]


def summed(entries: list[RequestEntry], keep: int) -> tuple[list[str], Card]:
    found = select_covered(entries, keep)
    draft = summary_card("in short", ids_of(entries), found.places, "t")
    return insert_summary(ids_of(entries), found.places, draft.card_id), draft_as_card(draft, "p")


@settings(max_examples=200, deadline=None)
@given(cards=CARDS, keep=st.integers(0, 6), doubles=st.lists(st.integers(0, 13), max_size=2))
def test_expanding_a_summary_restores_the_same_digest(
    cards: list[Card], keep: int, doubles: list[int]
) -> None:
    entries: Any = places(*cards)
    for double in doubles:
        entries.insert(double, entries[double % len(entries)])
    entries = [
        msgspec.structs.replace(entry, slot=msgspec.structs.replace(entry.slot, position=place))
        for place, entry in enumerate(entries)
    ]
    try:
        ids, summary = summed(entries, keep)
    except InvalidInput:
        return
    by_id = {entry.slot.card_id: entry.slot.card for entry in entries}
    back = expand_summary(ids, summary)
    assert back == ids_of(entries)
    assert digest(map(by_id.get, back)) == digest(entry.slot.card for entry in entries)
    assert expand_summary([*ids, "later"], summary) == [*ids_of(entries), "later"]
    gone = {place for place, card_id in enumerate(ids_of(entries)) if card_id not in ids}
    pairs = pair_calls([entry.slot.card for entry in first_places(entries)])
    for answer, caller in pairs.results.items():
        assert (answer in gone) == (caller in gone)


@settings(max_examples=100, deadline=None)
@given(cards=CARDS, most=st.integers(1, 60))
def test_the_cards_next_to_a_summary_fit_the_token_budget(cards: list[Card], most: int) -> None:
    entries, openai = places(*cards), provider_named("openai")
    try:
        gone = select_covered_to_fit(entries, SummaryBudget(most, None, openai)).places
    except InvalidInput:
        return
    rest = [entry for entry in entries if entry.slot.position not in gone]
    assert explain(request_of(rest, encode=openai.encode), openai).tokens <= most
    if gone:
        assert explain(request_of(entries, encode=openai.encode), openai).tokens > most
        roles = [entry.slot.card.role for entry in rest if entry.slot.card is not None]
        assert next((role for role in roles if role != "system"), "user") == "user"


def first_places(entries: list[RequestEntry]) -> list[Any]:
    """The places; of an id that stands twice only the first has its card."""
    seen: set[str] = set()
    shown = []
    for entry in entries:
        is_first = entry.slot.card_id not in seen
        seen.add(entry.slot.card_id)
        slot = entry.slot if is_first else msgspec.structs.replace(entry.slot, card=None)
        shown.append(msgspec.structs.replace(entry, slot=slot))
    return shown


def test_a_list_compressed_twice_can_be_expanded_twice() -> None:
    entries = places(user("a"), thought(text="b"), user("c"), thought(text="d"), user("e"))
    once, first = summed(entries, 3)
    known = {entry.slot.card_id: entry for entry in entries}
    again = [
        msgspec.structs.replace(
            known[card_id], slot=msgspec.structs.replace(known[card_id].slot, position=place)
        )
        for place, card_id in enumerate(once)
        if card_id in known
    ]
    found = select_covered(again, 1)
    draft = summary_card("shorter", once, found.places, "t")
    twice = insert_summary(once, found.places, draft.card_id)
    assert twice == [first.card_id, draft.card_id, "k4"]
    assert expand_summary(expand_summary(twice, draft_as_card(draft, "p")), first) == ids_of(entries)


def test_a_changed_list_gets_all_cards_back_at_the_summary_position() -> None:
    entries = places(user("a"), thought(text="b"), system("rules"), thought(text="c"), user("d"))
    ids, summary = summed(entries, 1)
    assert ids == [summary.card_id, "k2", "k4"]
    assert expand_summary(["new", *ids], summary) == ["new", "k0", "k1", "k3", "k2", "k4"]


def test_open_calls_and_open_questions_are_not_compressed() -> None:
    entries = places(user("a"), thought(text="b"), user("c"), thought(call("x")))
    assert summed(entries, 0)[0][1:] == ["k2", "k3"]
    with pytest.raises(InvalidInput, match="cbx cannot summarize any message before"):
        select_covered(places(user("a"), thought(call("x"))), 0)


def test_a_retained_result_retains_its_call_and_its_question() -> None:
    talk = [user("first"), thought(text="yes"), user("a"), thought(call("x")), result("x"), user("b")]
    assert select_covered(places(*talk), 2).places == [0, 1]
