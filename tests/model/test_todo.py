"""Todo lists as folds over cards: pure, so cards are made here and no database is needed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardbox_cli.errors import AmbiguousId, InvalidInput, NotFound
from cardbox_cli.model.boxes import CardState, Slot
from cardbox_cli.model.cards import Card, draft_as_card
from cardbox_cli.model.content import JsonContent, StoredContent, TextContent
from cardbox_cli.model.todo import TodoItem, find_item, new_item, replacement_card, todo_items
from tests.context.test_request import card as any_card

FATES = st.sampled_from(["present", "deleted", "expired", "dangling"])


def card(card_id: str, content: StoredContent, type: str = "todo.item", **metadata: Any) -> Card:
    return any_card(type, content, "system", card_id=card_id, metadata=metadata)


def slot(
    card_id: str, edited_from: str | None = None, *, done: bool = False, state: CardState = "present"
) -> Slot:
    """A place with an item that says its own id."""
    lineage = {} if edited_from is None else {"edited_from": edited_from}
    held = card(card_id, JsonContent({"text": card_id, "done": done}), **lineage)
    return Slot(0, card_id, None if state == "dangling" else held, state)


def said(*slots: Slot) -> list[str]:
    """The list in short: the first and the newest card of each item, and a mark on those that are done."""
    return [
        f"{item.first_card_id}{'' if item.card_id == item.first_card_id else '>' + item.card_id}"
        f"{'!' if item.done else ''}"
        for item in todo_items(slots)
    ]


A, B = slot("a"), slot("b")

FOLDS = {
    "each in its order": ([A, B], ["a", "b"]),
    "a card twice": ([A, B, A], ["a", "b"]),
    "the newest card at the first one's place": ([A, B, slot("c", "a", done=True)], ["a>c!", "b"]),
    "a chain": ([A, slot("c", "a", done=True), slot("d", "c"), B], ["a>d", "b"]),
    "the later of two that replace the same": ([A, slot("c", "a", done=True), slot("d", "a")], ["a>d"]),
    "a chain whose first card stands last": ([slot("c", "a", done=True), B, A], ["a>c!", "b"]),
    "one whose first card is elsewhere": ([slot("c", "gone", done=True)], ["c!"]),
    "without a deleted newest card": ([A, slot("c", "a", done=True, state="deleted")], ["a"]),
    "across a deleted card": ([A, slot("c", "a", state="deleted"), slot("d", "c", done=True)], ["a>d!"]),
    "without its first card": ([slot("a", state="expired"), B, slot("c", "a")], ["a>c", "b"]),
    "nothing that is not there": ([slot("a", state="deleted"), slot("b", state="dangling")], []),
    "no other type": ([Slot(0, "x", card("x", TextContent("x"), "task.instruction"), "present")], []),
    "a circle": ([slot("a", "b"), slot("b", "a")], ["b>a", "a>b"]),
    "one that replaces itself": ([slot("a", "a")], ["a"]),
}


@pytest.mark.parametrize("name", FOLDS)
def test_a_todo_list_is_built_from_its_cards_in_order(name: str) -> None:
    slots, expected = FOLDS[name]
    assert said(*slots) == expected
    assert [item.number for item in todo_items(slots)] == list(range(1, len(expected) + 1))


@pytest.mark.parametrize(
    ("content", "text", "done"),
    [
        (JsonContent({"text": " Call \n", "done": True}), "Call", True),
        (JsonContent({"text": "Call"}), "Call", False),
        (JsonContent({"text": "Call", "done": "yes"}), "Call", False),
        (JsonContent({"task": "Call"}), '{"task":"Call"}', False),
        (JsonContent(["Call"]), '["Call"]', False),
        (TextContent("Call"), "Call", False),
        ({"text": "Call", "done": True}, "Call", True),
        ({"__type__": "Todo", "what": 1}, '{"what":1}', False),
        (None, "(no text)", False),
    ],
)
def test_any_card_is_shown_and_can_be_marked_as_done(content: StoredContent, text: str, done: bool) -> None:
    old = card("a", content)
    [item] = todo_items([Slot(0, "a", old, "present")])
    assert (item.text, item.done) == (text, done)
    new = draft_as_card(replacement_card(old, done=not done, author_id="t"), "p")
    [item] = todo_items([Slot(0, "a", old, "present"), Slot(1, new.card_id, new, "present")])
    assert (item.number, item.text, item.done, item.first_card_id) == (1, text, not done, "a")


def test_a_replacement_keeps_the_metadata_of_the_item_only() -> None:
    old = card(
        "a", JsonContent({"text": "Call", "done": False, "due": "today"}), area="x", agent_turn_id="t1"
    )
    new = replacement_card(old, done=True, author_id="clerk", agent_turn_id="t2")
    assert new.content == JsonContent({"text": "Call", "done": True, "due": "today"})
    assert new.metadata == {
        "type": "todo.item",
        "role": "system",
        "author_id": "clerk",
        "area": "x",
        "edited_from": "a",
        "agent_turn_id": "t2",
    }
    assert "agent_turn_id" not in replacement_card(old, done=True, author_id="t").metadata


def test_a_blank_item_is_refused() -> None:
    assert new_item(" Call ", author_id="t").content == JsonContent({"text": "Call", "done": False})
    with pytest.raises(InvalidInput, match=r"the todo item ' \\n' is blank"):
        new_item(" \n", author_id="t")


class TestItemSearch:
    ITEMS = todo_items([slot("00001234"), slot("00005678"), slot("99991111", "00001234"), slot("2")])

    @pytest.mark.parametrize(
        ("typed", "number"),
        [
            ("1", 1),
            ("2", 2),
            ("00001234", 1),
            ("0000123", 1),
            ("1234", 1),
            ("9999", 1),
            ("5678", 2),
            ("3", 3),
        ],
    )
    def test_an_item_is_found_by_number_or_part_of_an_id(self, typed: str, number: int) -> None:
        assert find_item(self.ITEMS, typed, "b").number == number

    @pytest.mark.parametrize("typed", ["0", "4", "567", "nope", "-1", "", "9" * 5000])
    def test_an_unknown_item_is_refused(self, typed: str) -> None:
        with pytest.raises(NotFound) as caught:
            find_item(self.ITEMS, typed, "b")
        assert caught.value.message == f"no todo item {typed!r} in box b"
        assert caught.value.hint == "`cbx todo list b` shows the numbers and ids"

    def test_an_ambiguous_item_is_refused(self) -> None:
        with pytest.raises(AmbiguousId) as caught:
            find_item(self.ITEMS, "0000", "b")
        assert caught.value.message == "'0000' is ambiguous; it matches 2 todo items: 99991111, 00005678"


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcdef"),
            st.none() | st.sampled_from("abcdefg"),
            st.booleans(),
            FATES,
        ),
        unique_by=lambda each: each[0],
    )
)
def test_each_item_of_any_list_has_its_own_card(
    cards: list[tuple[str, str | None, bool, CardState]],
) -> None:
    slots = [slot(card_id, older, done=done, state=state) for card_id, older, done, state in cards]
    items: list[TodoItem] = todo_items(slots)
    present = {each.card_id for each in slots if each.state == "present"}
    newest = [item.card_id for item in items]
    assert set(newest) <= present
    assert len(set(newest)) == len(items) == len({item.first_card_id for item in items})
    assert bool(items) == bool(present)
