from datetime import UTC, datetime
from typing import Any

from cardbox_cli.model.cards import Card
from cardbox_cli.model.content import TextContent
from cardbox_cli.model.pairing import exchanges, pair_calls


def card(card_type: str, *, calls: list[str] | None = None, answers: str | None = None) -> Card:
    tool_calls: list[Any] | None = [{"id": call_id} for call_id in calls] if calls else None
    return Card(
        card_id="c",
        project_id="p",
        type=card_type,
        role=None,
        author_id=None,
        content=TextContent(""),
        tool_calls=tool_calls,
        tool_call_id=answers,
        ttl_seconds=None,
        metadata={},
        created_at=datetime.now(UTC),
        expires_at=None,
        deleted_at=None,
    )


def thought(*calls: str) -> Card:
    return card("agent.thought", calls=list(calls))


def result(call_id: str) -> Card:
    return card("tool.result", answers=call_id)


def test_a_repeated_id_is_paired_with_the_nearest_unanswered_call() -> None:
    pairing = pair_calls([thought("a"), result("a"), thought("a"), result("a")])
    assert pairing.results == {1: 0, 3: 2}
    assert pairing.unanswered == []


def test_a_result_answers_the_nearest_of_two_open_calls() -> None:
    pairing = pair_calls([thought("a"), thought("a"), result("a")])
    assert pairing.results == {2: 1}
    assert pairing.unanswered == [(0, "a")]


def test_a_result_without_a_call_is_an_orphan() -> None:
    assert pair_calls([result("a"), thought("a")]).orphans == [0]


def test_unreadable_cards_are_not_paired() -> None:
    assert pair_calls([None, result("a")]).orphans == [1]


def test_an_exchange_holds_its_parallel_calls_and_their_scheduling() -> None:
    cards = [
        thought(),
        thought("a", "b"),
        card("tool.call", answers="a"),
        result("b"),
        thought(),
        result("a"),
    ]
    assert exchanges(cards) == [[0], [1, 2, 3, 5], [4]]


def test_a_scheduled_call_without_its_thought_is_a_call() -> None:
    pairing = pair_calls([card("tool.call", answers="a"), result("a")])
    assert pairing.results == {1: 0}
    assert pairing.unanswered == []
