"""`cbx box diff` and `cbx card refs`."""

import json
from collections.abc import Callable

import pytest

from cardbox_cli.model.cards import draft_card
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from tests.cli.conftest import Shell, lines, succeed
from tests.conftest import Cbx, Result

Add = Callable[..., str]
BoxOf = Callable[..., str]

UNKNOWN = "00000000-0000-4000-8000-000000000000"


def differing(result: Result, summary: str) -> list[str]:
    """The lines on stdout of a diff that found these differences."""
    assert (result.code, result.err) == (8, f"error: the boxes differ: {summary}\n")
    return result.out.splitlines()


class TestDiff:
    def test_equal_boxes_exit_0_without_output(self, cbx: Cbx, add: Add, box_of: BoxOf) -> None:
        one = add("one")
        a, b = box_of(one, "dangles", one, title="a"), box_of(one, "dangles", one, title="b")
        for options in ((), ("-o", "id"), ("-o", "jsonl"), ("--full",)):
            result = cbx("box", "diff", a, b, *options)
            assert (result.code, result.out, result.err) == (0, "", "")
        answer = cbx("box", "diff", a, a[-8:], "-o", "json").json()
        named = {"box_id": a, "title": "a", "cards": 3}
        assert answer == {"a": named, "b": named, "equal": True, "changes": [], "patch": []}

    def test_added_removed_and_moved_cards_are_shown(self, cbx: Cbx, add: Add, box_of: BoxOf) -> None:
        add("kept", "--id", "kept-0001")
        add("also kept", "--id", "kept-0002")
        add("gone\nfor ever", "--id", "gone-0001")
        add("moved", "--id", "move-0001", type="agent.thought")
        add("came", "--id", "came-0001", type="agent.thought")
        a = box_of("kept-0001", "gone-0001", "kept-0002", "move-0001", title="before")
        b = box_of("move-0001", "kept-0001", "kept-0002", "came-0001", "dangles")
        assert differing(cbx("box", "diff", a, b), "2 added, 1 removed, 1 moved") == [
            f"--- {a[-8:]}  before",
            f"+++ {b[-8:]}",
            "> 3→0  ove-0001  agent.thought     assistant  moved",
            "- 1    one-0001  task.instruction  user       gone for ever",
            "+ 3    ame-0001  agent.thought     assistant  came",
            "+ 4    dangles   -                 -          (dangling: no such card)",
        ]
        assert differing(cbx("box", "diff", b, a), "1 added, 2 removed, 1 moved")[0] == f"--- {b[-8:]}"
        full = differing(cbx("box", "diff", a, b, "--full"), "2 added, 1 removed, 1 moved")
        assert full[3:6] == [
            "- 1    one-0001  task.instruction  user       gone for ever",
            "    gone",
            "    for ever",
        ]

    def test_a_changed_card_is_compared_word_by_word(self, cbx: Cbx, add: Add, box_of: BoxOf) -> None:
        add("Refund order 118, please", "--id", "one-00001")
        add("Refund order 119, please", "--id", "two-00002")
        a, b = box_of("one-00001"), box_of("two-00002")
        assert differing(cbx("box", "diff", a, b), "1 changed")[2:] == [
            "~ 0  ne-00001→wo-00002  task.instruction  user",
            "    Refund order [-118-]{+119+}, please",
        ]

    def test_text_far_from_a_change_is_omitted_unless_full(self, cbx: Cbx, add: Add, box_of: BoxOf) -> None:
        texts = [f"line {number}" for number in range(30)]
        one = add("\n".join(texts))
        two = add("\n".join([*texts[:15], "another line", *texts[16:]]))
        a, b = box_of(one), box_of(two)
        assert differing(cbx("box", "diff", a, b), "1 changed")[3:] == [
            "    …",
            "    line 13",
            "    line 14",
            "    [-line 15-]{+another line+}",
            "    line 16",
            "    line 17",
            "    …",
        ]
        full = differing(cbx("box", "diff", a, b, "--full"), "1 changed")[3:]
        assert [line.strip() for line in full] == [
            *texts[:15],
            "[-line 15-]{+another line+}",
            *texts[16:],
        ]

    def test_json_is_compared_line_by_line(self, cbx: Cbx, box_of: BoxOf) -> None:
        def json_card(text: str) -> str:
            return succeed(cbx("card", "add", "--type", "x", "--json", text, "-o", "id")).strip()

        a, b = (
            box_of(json_card('{"total": 1.10, "in": "EUR"}')),
            box_of(json_card('{"total": 1.20, "in": "EUR"}')),
        )
        assert differing(cbx("box", "diff", a, b, "--full"), "1 changed")[3:] == [
            "    {",
            '      "in": "EUR",',
            '      "total": [-1.10-]{+1.20+}',
            "    }",
        ]

    def test_cards_with_the_same_text_show_the_other_differences(
        self, cbx: Cbx, add: Add, box_of: BoxOf
    ) -> None:
        a, b = box_of(add("same")), box_of(add("same", "--metadata", '{"step_id": "s"}', "--ttl", "9000"))
        shown = differing(cbx("box", "diff", a, b), "1 changed")[3]
        assert shown == "    (the same text: they differ in ttl_seconds, metadata.step_id)"
        c, d = box_of(add("twin")), box_of(add("twin"))
        assert differing(cbx("box", "diff", c, d), "1 changed")[3] == (
            "    (the same text: the same card under another id)"
        )

    def test_json_output_has_the_changes_and_a_patch(self, cbx: Cbx, add: Add, box_of: BoxOf) -> None:
        one, two, three = add("one"), add("two"), add("calls", type="agent.thought")
        a, b = box_of(one, three, title="a"), box_of(two, "dangles", three)
        result = cbx("box", "diff", a, b, "-o", "json")
        answer = result.json()
        assert result.code == 8
        assert result.error["message"] == "the boxes differ: 1 added, 1 changed"
        described = {"state": "present", "type": "task.instruction", "role": "user"}
        changed = {
            "kind": "changed",
            "a": {"position": 0, "card_id": one, **described, "text": "one"},
            "b": {"position": 0, "card_id": two, **described, "text": "two"},
        }
        nothing = {"state": "dangling", "type": None, "role": None, "text": None}
        added = {"kind": "added", "a": None, "b": {"position": 1, "card_id": "dangles", **nothing}}
        assert answer == {
            "a": {"box_id": a, "title": "a", "cards": 2},
            "b": {"box_id": b, "title": None, "cards": 3},
            "equal": False,
            "changes": [changed, added],
            "patch": [
                {"op": "replace", "path": "/card_ids/0", "value": two},
                {"op": "add", "path": "/card_ids/1", "value": "dangles"},
            ],
        }
        streamed = cbx("box", "diff", a, b, "-o", "jsonl")
        assert [json.loads(line) for line in streamed.out.splitlines()] == [changed, added]

    def test_id_output_lists_only_the_added_cards(self, cbx: Cbx, add: Add, box_of: BoxOf) -> None:
        one, two, three, four = add("1"), add("2"), add("3"), add("4", type="x")
        a, b = box_of(one, two, three), box_of(three, one, four, two, one)
        result = cbx("box", "diff", a, b, "-o", "id")
        assert result.out.splitlines() == [four, one]
        assert cbx("box", "diff", b, a, "-o", "id").out == ""

    def test_only_the_first_500_differences_are_compared_unless_full(
        self, cbx: Cbx, cards: CardStore, boxes: BoxStore
    ) -> None:
        old, new = ([draft_card("x", f"{word} {number}") for number in range(502)] for word in ("old", "new"))
        cards.add_many([*old, *new])
        a, b = (boxes.create([draft.card_id for draft in drafts]).box_id for drafts in (old, new))
        result = cbx("box", "diff", a, b)
        told, error = result.err.splitlines()
        assert told == "compared only the texts of the first 500 differences; --full compares all"
        assert error == "error: the boxes differ: 502 changed"
        shown = result.out.splitlines()
        assert shown[-3].strip() == "[-old-]{+new+} 499"
        assert [line.split("  ")[-1] for line in shown[-2:]] == ["new 500", "new 501"]
        full = differing(cbx("box", "diff", a, b, "--full"), "502 changed")
        assert full[-1].strip() == "[-old-]{+new+} 501"

    def test_an_unknown_box_exits_3(self, cbx: Cbx, box_of: BoxOf) -> None:
        box = box_of()
        for pair in ((box, UNKNOWN), (UNKNOWN, box)):
            result = cbx("box", "diff", *pair)
            assert (result.code, result.out) == (3, "")
            assert result.err.startswith(f"error: no box '{UNKNOWN}' in project 'p'\n")


class TestOnATerminal:
    ODD = "Say \x1b[2J\u202e now"

    @pytest.fixture
    def pair(self, add: Add, box_of: BoxOf) -> tuple[str, str]:
        """Two boxes, in one a card that would drive the terminal, in the other its edited version."""
        gone = add("gone\nnow", type="x")
        return box_of(add(self.ODD), gone, title=self.ODD), box_of(add(self.ODD + " or\nlater"))

    def test_changed_words_are_coloured(self, pair: tuple[str, str], shell: Shell) -> None:
        shown = shell.on_terminal("box", "diff", *pair, "--full")
        assert shown.code == 8
        assert f"\x1b[1m--- {pair[0][-8:]}  Say \\x1b[2J\\u202e now\x1b[0m\n" in shown.out
        added = "\x1b[32m or\x1b[0m\n\x1b[32m    later\x1b[0m\n"
        assert f"    Say \\x1b[2J\\u202e now{added}" in shown.out
        assert "\x1b[31m    gone\x1b[0m\n\x1b[31m    now\x1b[0m\n" in shown.out
        assert ("[-" in shown.out, "{+" in shown.out) == (False, False)

    @pytest.mark.parametrize("variable", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
    def test_changed_words_are_marked_if_colours_are_disabled(
        self, variable: dict[str, str], pair: tuple[str, str], shell: Shell
    ) -> None:
        shown = shell.on_terminal("box", "diff", *pair, **variable).out
        assert "\x1b" not in shown
        assert "    Say \\x1b[2J\\u202e now{+ or\n    later+}\n" in shown


class TestRefs:
    def test_each_box_is_listed_with_the_positions_of_the_card(
        self, cbx: Cbx, add: Add, box_of: BoxOf
    ) -> None:
        card = add("one")
        one, two = box_of(card, "x", card, title="one"), box_of("x", card)
        box_of("x")
        header, *rows = lines(cbx("card", "refs", card[-8:]))
        assert header.split() == ["ID", "CARDS", "AGE", "POSITIONS", "TURNS", "TITLE"]
        ages_apart = [row.split() for row in rows]
        assert [[*cells[:2], *cells[3:]] for cells in ages_apart] == [
            [two[-8:], "2", "1", "-"],
            [one[-8:], "3", "0,", "2", "-", "one"],
        ]
        assert lines(cbx("card", "refs", card, "-o", "id")) == [two, one]
        assert lines(cbx("card", "refs", card, "-o", "id", "-n", "1")) == [two]
        cut = cbx("card", "refs", card, "-o", "id", "--latest", "2")
        assert lines(cut) == [two]
        assert cut.err == "searched the 2 most recently changed boxes; --latest 0 searches all\n"
        assert lines(cbx("card", "refs", card, "-o", "id", "--latest", "0")) == [two, one]
        answer = cbx("card", "refs", card, "-o", "json").json()
        assert [each.pop("updated_at")[-1] for each in answer] == ["Z", "Z"]
        assert answer == [
            {"box_id": two, "title": None, "positions": [1], "cards": 2, "turns": []},
            {"box_id": one, "title": "one", "positions": [0, 2], "cards": 3, "turns": []},
        ]

    def test_deleted_and_dangling_ids_are_found(self, cbx: Cbx, add: Add, box_of: BoxOf) -> None:
        gone = add("gone")
        box = box_of(gone, "nope")
        succeed(cbx("card", "delete", gone, "--yes"))
        assert lines(cbx("card", "refs", gone[-8:], "-o", "id")) == [box]
        assert lines(cbx("card", "refs", "nope", "-o", "id")) == [box]

    def test_a_card_in_no_box_exits_0_with_a_note(self, cbx: Cbx, add: Add, box_of: BoxOf) -> None:
        card = add("one")
        box_of("other")
        result = cbx("card", "refs", card)
        assert (result.code, result.out) == (0, "")
        assert result.err == f"no box in project 'p' holds card '{card}'\n"
        assert cbx("card", "refs", card, "-o", "json").json() == []
        assert cbx("card", "refs", "absent").err == "no box in project 'p' holds card 'absent'\n"

    def test_boxes_of_other_projects_are_not_listed(self, cbx: Cbx, add: Add, box_of: BoxOf) -> None:
        card = add("one")
        box_of(card, project="q")
        assert lines(cbx("card", "refs", card, "-o", "id")) == []

    def test_an_ambiguous_short_id_is_refused(self, cbx: Cbx, add: Add) -> None:
        add("x", "--id", "twin-1")
        add("x", "--id", "twin-2")
        assert cbx("card", "refs", "twin").code == 5
