"""Comparing id lists: what is kept, moved, removed and added, and the patch that leads across."""

import random
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardbox_cli.model.boxes import Box
from cardbox_cli.model.cards import Card
from cardbox_cli.model.content import TextContent
from cardbox_cli.model.diff import BoxDiff, Pair, compare_boxes, diff_ids, json_patch

# Few different ids, so that they repeat and most are in both lists.
id_lists = st.lists(st.sampled_from("abcdefg"), max_size=12)


def applied(card_ids: list[str], steps: list[dict[str, Any]]) -> list[str]:
    """What RFC 6902 makes of `{"card_ids": card_ids}`: each operation on the outcome of the one before."""
    row = list(card_ids)

    def place(pointer: str) -> int:
        name, index = pointer.removeprefix("/").split("/")
        assert name == "card_ids"
        return int(index)

    for step in steps:
        target = place(step["path"])
        match step["op"]:
            case "remove":
                del row[target]
            case "replace":
                assert target < len(row)
                row[target] = step["value"]
            case "add":
                assert target <= len(row)
                row.insert(target, step["value"])
            case other:
                pytest.fail(f"no operation of RFC 6902: {other!r}")
    return row


def longest_common(a: list[str], b: list[str]) -> int:
    """The length of the longest common subsequence, by the textbook."""
    lengths = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, one in enumerate(a):
        for j, other in enumerate(b):
            lengths[i + 1][j + 1] = (
                lengths[i][j] + 1 if one == other else max(lengths[i][j + 1], lengths[i + 1][j])
            )
    return lengths[-1][-1]


class TestIdDiff:
    @pytest.mark.parametrize(
        ("a", "b", "kept", "moved", "removed", "added"),
        [
            ("", "", [], [], [], []),
            ("abc", "abc", [(0, 0), (1, 1), (2, 2)], [], [], []),
            ("abc", "ac", [(0, 0), (2, 1)], [], [1], []),
            ("ac", "abc", [(0, 0), (1, 2)], [], [], [1]),
            ("abcd", "dabc", [(0, 1), (1, 2), (2, 3)], [(3, 0)], [], []),
            ("abc", "xbc", [(1, 1), (2, 2)], [], [0], [0]),
            ("aba", "ba", [(1, 0), (2, 1)], [], [0], []),
            ("aa", "aaa", [(0, 0), (1, 1)], [], [], [2]),
        ],
    )
    def test_a_diff_lists_kept_moved_removed_and_added_positions(
        self, a: str, b: str, kept: Any, moved: Any, removed: Any, added: Any
    ) -> None:
        assert diff_ids(list(a), list(b)) == (kept, moved, removed, added)

    @given(id_lists, id_lists)
    def test_every_position_has_one_outcome_and_most_are_kept(self, a: list[str], b: list[str]) -> None:
        found = diff_ids(a, b)
        pairs = found.kept + found.moved
        assert sorted([pair.a for pair in pairs] + found.removed) == list(range(len(a)))
        assert sorted([pair.b for pair in pairs] + found.added) == list(range(len(b)))
        assert all(a[pair.a] == b[pair.b] for pair in pairs)
        assert not {a[place] for place in found.removed} & {b[place] for place in found.added}
        assert len(found.kept) == longest_common(a, b)
        assert all(
            one.a < other.a and one.b < other.b
            for one, other in zip(found.kept, found.kept[1:], strict=False)
        )

    def test_a_massively_repeated_id_is_compared_from_both_ends(self) -> None:
        a, b = ["x"] * 3000 + ["y"] + ["x"] * 10, ["x"] * 2990 + ["y"] + ["x"] * 10
        found = diff_ids(a, b)
        assert (len(found.kept), found.moved, len(found.removed), found.added) == (3001, [], 10, [])


class TestJsonPatch:
    @given(id_lists, id_lists)
    def test_the_patch_turns_the_first_list_into_the_second(self, a: list[str], b: list[str]) -> None:
        found = diff_ids(a, b)
        steps = json_patch(a, b, found.kept + found.moved)
        assert applied(a, steps) == b
        assert len(steps) <= 2 * len(found.moved) + len(found.removed) + len(found.added)
        assert (steps == []) == (a == b)

    @given(st.data(), id_lists, id_lists)
    def test_the_patch_works_for_any_pairs_of_positions(
        self, data: st.DataObject, a: list[str], b: list[str]
    ) -> None:
        places = st.permutations(range(len(a))), st.permutations(range(len(b)))
        number = data.draw(st.integers(0, min(len(a), len(b))))
        one, other = (data.draw(each)[:number] for each in places)
        steps = json_patch(a, b, [Pair(*pair) for pair in zip(one, other, strict=True)])
        assert applied(a, steps) == b

    def test_a_shuffled_long_box_can_be_patched(self) -> None:
        a = [f"card-{number}" for number in range(3000)]
        b = [*random.Random(7).sample(a, 2500), "new"]
        found = diff_ids(a, b)
        assert applied(a, json_patch(a, b, found.kept + found.moved)) == b

    def test_a_reversed_long_box_can_be_patched(self) -> None:
        a = [str(number) for number in range(20_000)]
        found = diff_ids(a, a[::-1])
        steps = json_patch(a, a[::-1], found.kept + found.moved)
        assert len(steps) == 2 * 19_999
        assert applied(a, steps) == a[::-1]


def card(card_id: str, card_type: str = "task.instruction", **metadata: Any) -> Card:
    return Card(
        card_id=card_id,
        project_id="p",
        type=card_type,
        role="user",
        author_id=None,
        content=TextContent(card_id),
        tool_calls=None,
        tool_call_id=None,
        ttl_seconds=None,
        metadata=metadata,
        created_at=datetime.now(UTC),
        expires_at=None,
        deleted_at=None,
    )


def compared(a: list[str], b: list[str], *cards: Card) -> BoxDiff:
    def box(ids: list[str]) -> Box:
        return Box(box_id="", project_id="p", title=None, card_ids=ids, parent_ids=[], updated_at=None)

    known = {each.card_id: (each, "present") for each in cards}
    return compare_boxes(box(a), box(b), diff_ids(a, b), known)


def told(found: BoxDiff) -> list[tuple[str, int | None, int | None]]:
    return [
        (each.kind, each.a.position if each.a else None, each.b.position if each.b else None)
        for each in found.changes
    ]


class TestBoxChanges:
    def test_a_new_card_of_the_same_type_and_place_is_a_change(self) -> None:
        found = compared(["k", "old", "l"], ["k", "new", "l"], card("old"), card("new"))
        assert told(found) == [("changed", 1, 1)]
        assert found.patch == [{"op": "replace", "path": "/card_ids/1", "value": "new"}]

    def test_a_card_of_another_type_is_removed_and_added(self) -> None:
        found = compared(["k", "old", "l"], ["k", "new", "l"], card("old"), card("new", "agent.thought"))
        assert told(found) == [("removed", 1, None), ("added", None, 1)]
        assert found.patch == [
            {"op": "remove", "path": "/card_ids/1"},
            {"op": "add", "path": "/card_ids/1", "value": "new"},
        ]

    def test_a_card_elsewhere_is_changed_only_if_edited_from_the_old_one(self) -> None:
        a, b = ["old", "k", "l"], ["k", "l", "new"]
        assert told(compared(a, b, card("old"), card("new"))) == [("removed", 0, None), ("added", None, 2)]
        edited = compared(a, b, card("old"), card("new", "agent.thought", edited_from="old"))
        assert told(edited) == [("changed", 0, 2)]
        assert applied(a, edited.patch) == b

    def test_an_edited_card_is_paired_before_one_at_the_same_place(self) -> None:
        found = compared(
            ["old"], ["other", "new"], card("old"), card("other"), card("new", edited_from="old")
        )
        assert told(found) == [("added", None, 0), ("changed", 0, 1)]

    def test_changes_follow_the_order_of_the_second_box(self) -> None:
        found = compared(
            ["gone", "k", "o", "moved", "l", "last"],
            ["moved", "k", "o", "l", "new", "m"],
            *map(card, ["gone", "moved", "last"]),
            card("new", "agent.thought"),
            card("m", "agent.thought"),
        )
        assert told(found) == [
            ("removed", 0, None),
            ("moved", 3, 0),
            ("removed", 5, None),
            ("added", None, 4),
            ("added", None, 5),
        ]

    def test_an_id_without_a_card_is_dangling(self) -> None:
        [change] = compared([], ["nope"]).changes
        assert (change.kind, change.b and change.b.state, change.b and change.b.card) == (
            "added",
            "dangling",
            None,
        )
