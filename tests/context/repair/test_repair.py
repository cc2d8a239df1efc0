"""Repairing: whatever a box holds, what comes out is a box that the lint finds no error in."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cardbox_cli.context.repair.changes import Change, drafts_of, entries_of
from cardbox_cli.context.repair.repair import RepairOutcome, RepairRequest, repair
from cardbox_cli.model.cards import Card, card_text
from cardbox_cli.providers.registry import providers
from tests.context.lint.cards import (
    blocks,
    call,
    check,
    message,
    placed,
    places,
    result,
    system,
    thinking,
    thought,
    tools,
    user,
)
from tests.context.test_request import card


def repaired(*cards: Any, synthesizes: bool = True, **options: Any) -> RepairOutcome:
    return repair(
        RepairRequest(
            project_id="p",
            box_id="b",
            entries=places(*cards),
            providers=list(providers()),
            synthesizes=synthesizes,
            author_id="t",
            **options,
        )
    )


def shown(changes: list[Change]) -> list[tuple[str, int | None, str]]:
    return [(change.kind, change.position, change.rule) for change in changes]


def test_a_dangling_place_is_dropped() -> None:
    found = repaired(user(), placed(user(), state="dangling"))
    assert shown(found.changes) == [("dropped", 1, "card-missing")]


def test_a_result_without_a_call_is_dropped() -> None:
    assert shown(repaired(user(), result("x")).changes) == [("dropped", 1, "result-without-call")]


def test_missing_results_of_parallel_calls_follow_the_existing_ones() -> None:
    found = repaired(user(), thought(call("a"), call("b")), result("b"), user("go on"))
    assert [place.slot.card.tool_call_id for place in found.places if place.slot.card] == [
        None,
        None,
        "b",
        "a",
        None,
    ]
    assert shown(found.changes) == [("added", None, "call-without-result")]


def test_only_the_call_without_a_result_is_dropped() -> None:
    found = repaired(user(), thought(call("a"), call("b")), result("b"), synthesizes=False)
    [draft] = drafts_of(found.places)
    assert draft.tool_calls == [call("b")]
    assert (draft.metadata["edited_from"], shown(found.changes)) == (
        "k1",
        [("rewritten", 1, "call-without-result")],
    )


def test_calls_on_a_user_card_are_dropped_with_their_results() -> None:
    """However their results are turned around, they are behind no call of the assistant's."""
    asked = user("u", tool_calls=[call("a"), call("b")])
    found = repaired(user(), asked, result("a"), result("b"), thought(text="ok"))
    assert found.left == []
    assert shown(found.changes) == [
        ("dropped", 1, "block-on-wrong-side"),
        ("dropped", 2, "result-without-call"),
        ("dropped", 3, "result-without-call"),
    ]


def test_invalid_arguments_become_an_object() -> None:
    found = repaired(user(), thought(call("a", arguments="nope")), result("a"))
    [draft] = drafts_of(found.places)
    assert draft.tool_calls == [call("a", arguments='{"_raw":"nope"}')]


def test_repeated_ids_get_new_ones_in_calls_and_results() -> None:
    found = repaired(user(), thought(call("a"), call("a")), result("a", "one"), result("a", "two"))
    [made] = [draft for draft in drafts_of(found.places) if draft.tool_calls]
    ids = [each["id"] for each in made.tool_calls or []]
    answered = [place.slot.card.tool_call_id for place in found.places[2:] if place.slot.card]
    assert (len(set(ids)), answered) == (2, ids)


def test_trailing_white_space_is_removed_from_the_last_message() -> None:
    [draft] = drafts_of(repaired(user(), thought(text="Done.\n")).places)
    assert card_text(draft.content) == "Done."


def test_an_awaited_call_stays_open() -> None:
    assert repaired(user(), thought(call("a")), awaited={"a"}).changes == []


def test_cards_of_other_boxes_are_not_repaired() -> None:
    broken = placed(thought(call("x"), card_id="other"), box_id="a")
    assert repaired(result("c"), before=[placed(user(), box_id="a"), broken]).changes != []
    assert repaired(user("u"), before=[placed(user(), box_id="a"), broken]).changes == []


def test_an_error_that_belongs_to_no_card_is_left() -> None:
    found = repaired(user(), tools("f", "f"))
    assert {each.rule for each in found.left} == {"tool-repeated"}


IDS = st.sampled_from(["a", "b", "", None, "x" * 50])
CALLS = st.builds(call, IDS, st.sampled_from(["f", "f g"]), st.sampled_from(["{}", "nope", "[1]", None]))
CARDS = st.lists(
    st.one_of(
        st.builds(user, st.sampled_from(["hi", "", "x"])),
        st.builds(
            lambda calls, text: thought(*calls, text=text),
            st.lists(CALLS, max_size=3),
            st.sampled_from(["", "ok ", "t\n"]),
        ),
        st.builds(result, IDS),
        # Imported, or another program's: a call of somebody who makes none.
        st.builds(lambda calls: user("u", tool_calls=calls), st.lists(CALLS, max_size=3)),
        st.sampled_from(
            [
                system("s"),
                thinking(),
                thinking(signature=None),
                blocks({"type": "image"}),
                blocks({"type": "tool_use", "id": "q"}),
                # Other programs write roles that no type of ours allows.
                card("chat.message", user().content, None),  # type: ignore[arg-type]
                card("chat.message", user().content, "robot"),  # type: ignore[arg-type]
                message({"role": "assistant", "content": None}, "agent.thought", "assistant"),
            ]
        ),
    ),
    max_size=12,
)


@settings(max_examples=200, deadline=None)
@given(cards=CARDS, synthesizes=st.booleans())
def test_repaired_cards_have_no_errors_for_any_provider(cards: list[Card], synthesizes: bool) -> None:
    found = repaired(*cards, synthesizes=synthesizes)
    errors = {
        each.rule
        for provider in providers()
        for each in check(entries_of(found.places, "b"), provider.name)
        if each.severity == "error"
    }
    # Where nobody said anything, no box of this one can be sent.
    assert errors <= {"no-messages"}
    assert errors == {each.rule for each in found.left}
    held = {f"k{number}" for number in range(len(cards))}
    for draft in drafts_of(found.places):
        assert draft.metadata.get("edited_from", "k0") in held
    assert {change.card_id for change in found.changes if change.position is not None} <= held
    again = places(*(place.slot.card for place in found.places if place.slot.card is not None))
    if not errors:
        assert repair_again(again).changes == []


def repair_again(entries: Any) -> RepairOutcome:
    return repair(
        RepairRequest(
            project_id="p",
            box_id="b",
            entries=entries,
            providers=list(providers()),
            synthesizes=True,
            author_id="t",
        )
    )
