"""What a series of requests costs: the sums are the tokens of the very requests, whatever they hold."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cardbox_cli.context.cost.account import Sent, account_of, answered_requests
from cardbox_cli.context.cost.answer import Prices, first_break, money
from cardbox_cli.context.explain import explain
from cardbox_cli.context.request import ComposeOptions, Request, RequestEntry, request_of
from cardbox_cli.model.boxes import Slot
from cardbox_cli.model.cards import Card
from cardbox_cli.providers.registry import PROVIDERS, provider_named
from tests.context.lint.cards import call, profile, result, system, thought, tools, user

openai = provider_named("openai")
CARDS = st.lists(
    st.sampled_from("uatrpsT").flatmap(lambda kind: st.tuples(st.just(kind), st.text("ab é\n", max_size=20))),
    max_size=12,
)


def card_of(kind: str, text: str, number: int) -> Card:
    key = f"{kind}{number}"
    match kind:
        case "u":
            return user(text, card_id=key)
        case "a":
            return thought(text=text, card_id=key)
        case "t":
            return thought(call(f"c{number}", "look"), text=text, card_id=key)
        case "r":
            return result(f"c{number - 1}", text, card_id=key)
        case "p":
            return profile(text or "x", model="gpt-4o")
        case "s":
            return system(text or "x", card_id=key)
    return tools("look", "never")


def request(*cards: Card, provider: str = "openai", **options: Any) -> Request:
    entries = [
        RequestEntry(slot=Slot(place, card.card_id, card, "present"), box_id="box")
        for place, card in enumerate(cards)
    ]
    return request_of(entries, ComposeOptions(**options), encode=provider_named(provider).encode)


def series(*requests: Request) -> list[Sent]:
    return [Sent(request=each, provider=openai) for each in requests]


@settings(max_examples=60, deadline=None)
@given(CARDS, st.lists(st.integers(0, 12), min_size=1, max_size=6), st.sampled_from(list(PROVIDERS)))
def test_the_totals_equal_the_tokens_of_the_requests(
    drawn: list[tuple[str, str]], lengths: list[int], provider: str
) -> None:
    cards = [card_of(kind, text, number) for number, (kind, text) in enumerate(drawn)]
    sent = [
        Sent(request=request(*cards[:length], provider=provider), provider=provider_named(provider))
        for length in lengths
    ]
    account = account_of(sent)
    explained = [explain(each.request, openai) for each in sent]
    assert [step.tokens for step in account.steps] == [each.tokens for each in explained]
    assert [step.estimated for step in account.steps] == [each.tokens_estimated for each in explained]
    for shares in account.by.values():
        assert sum(share.tokens for share in shares) == account.tokens
        assert sum(share.last for share in shares) <= account.steps[-1].tokens
    of_messages = sum(line.tokens for each in explained for line in each.messages)
    assert sum(part.total for part in account.parts) == of_messages
    for step in account.steps:
        assert step.kept + step.new == step.tokens
        assert sum(step.layers.values()) == step.tokens


@given(CARDS)
@settings(max_examples=40, deadline=None)
def test_a_box_yields_the_request_before_each_answer(drawn: list[tuple[str, str]]) -> None:
    cards = [card_of(kind, text, number) for number, (kind, text) in enumerate(drawn) if kind in "uatr"]
    found = answered_requests(request(*cards), openai)
    assert list(found[1:]) == list(found)[1:]
    for sent in found:
        length = len(sent.request.messages)
        assert sent.request.messages == request(*cards[:length]).messages
    lengths = [len(sent.request.messages) for sent in found]
    answers = [
        place
        for place in range(1, len(cards))
        if cards[place].role == "assistant" and cards[place - 1].role != "assistant"
    ]
    is_asked_again = not cards or cards[-1].role != "assistant" or not answers
    assert lengths == answers + ([len(cards)] if is_asked_again else [])


class TestCache:
    def test_a_longer_request_keeps_all_tokens_of_the_previous_one(self) -> None:
        cards = [user("one", card_id="1"), thought(text="two", card_id="2"), user("three", card_id="3")]
        account = account_of(series(request(*cards[:1]), request(*cards)))
        one, other = account.steps
        assert (one.kept, other.kept, other.breaks) == (0, one.tokens - one.layers["reply"], False)
        assert [(part.sends, part.first) for part in account.parts] == [(2, 0), (1, 1), (1, 1)]
        assert first_break(account) is None

    def test_the_cache_breaks_at_the_first_differing_character(self) -> None:
        said = [user("at 10:00 we look", card_id="1"), user("behind", card_id="2")]
        later = [user("at 10:05 we look", card_id="3"), said[1]]
        account = account_of(series(request(*said), request(*later)))
        found = first_break(account)
        assert account.steps[1].breaks
        assert account.steps[1].kept == 0
        assert found is not None
        assert (found.a_step, found.b_step, found.section, found.number) == (1, 2, "messages", 1)
        assert (found.character, found.before, found.a, found.b) == (7, "at 10:0", "0 we look", "5 we look")

    def test_a_layer_after_the_history_does_not_break_the_cache(self) -> None:
        def asked(*cards: Card) -> Request:
            return request(*cards, query="Go on.")

        account = account_of(series(asked(user("1", card_id="1")), asked(user("1", card_id="1"), user("2"))))
        assert not account.steps[1].breaks
        assert 0 < account.steps[1].kept < account.steps[0].tokens

    @pytest.mark.parametrize("other", [tools("look"), profile(model="gpt-4o"), profile("Be brief.")])
    def test_a_change_before_the_messages_breaks_the_cache(self, other: Card) -> None:
        account = account_of(series(request(user("x", card_id="1")), request(other, user("x", card_id="1"))))
        assert account.steps[1].breaks
        assert account.steps[1].kept == 0


def test_costs_are_calculated_from_the_given_prices() -> None:
    history = [profile(model="azure/gpt-4o"), user("word " * 100, card_id="1")]
    account = account_of(series(request(*history), request(*history, user("more", card_id="2"))))
    prices = Prices.build("EUR", {"gpt-4o": (Decimal(2), Decimal("0.5"))})
    found = money(account.steps, prices)
    tokens, kept = account.tokens, account.cached_tokens
    assert kept
    assert found.without_cache == Decimal(2 * tokens) / 1_000_000
    assert found.amount == (Decimal(2 * (tokens - kept)) + Decimal("0.5") * kept) / 1_000_000
    assert money(account.steps, Prices.build("EUR", {})).unpriced == ["azure/gpt-4o"]
