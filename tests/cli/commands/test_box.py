"""`cbx box`: making, showing, changing, verifying and deleting boxes."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cardbox_cli.model.ids import hash_ids
from cardbox_cli.store.connection.database import Database
from tests.cli.conftest import Shell, lines, succeed
from tests.conftest import Cbx, Result

Feed = Callable[[str | bytes], None]
Add = Callable[..., str]
BoxOf = Callable[..., str]

PROFILE = "name: clerk\nsystem_prompt: You are a clerk.\n"
UNKNOWN = "00000000-0000-4000-8000-000000000000"


def shown(cbx: Cbx, box: str, *options: str) -> Any:
    """A box, as JSON."""
    return json.loads(succeed(cbx("box", "show", box, *options, "-o", "json")))


def refusal(result: Result) -> tuple[int, str]:
    """The exit code of a failed command, and the first line of what it said."""
    assert result.out == ""
    return result.code, result.err.splitlines()[0].removeprefix("error: ")


class TestCreate:
    def test_a_new_box_keeps_the_given_order_and_repeated_cards(self, cbx: Cbx, add: Add) -> None:
        one, two = add("one"), add("two")
        made = cbx("box", "create", two, one, two, "--title", "both", "-o", "json").json()
        assert made["card_ids"] == [two, one, two]
        assert (made["project_id"], made["title"], made["parent_ids"]) == ("p", "both", [])

    def test_card_ids_are_read_from_standard_input(self, cbx: Cbx, add: Add, feed: Feed) -> None:
        ids = [add(text) for text in ("one", "two", "three")]
        feed(f"{ids[0]}\n\n  {ids[1]}  \n")
        made = cbx("box", "create", ids[2], "-", ids[2], "-o", "json").json()
        assert made["card_ids"] == [ids[2], ids[0], ids[1], ids[2]]

    def test_short_card_ids_are_accepted(self, cbx: Cbx, add: Add) -> None:
        add("one", "--id", "aaaa-1")
        add("two", "--id", "bbbb-2")
        assert cbx("box", "create", "aaaa", "bb-2", "-o", "json").json()["card_ids"] == ["aaaa-1", "bbbb-2"]

    def test_a_box_created_without_cards_is_empty(self, cbx: Cbx) -> None:
        [box] = lines(cbx("box", "create", "-o", "id"))
        assert shown(cbx, box)["card_ids"] == []
        assert "cards    0, ~0 tokens" in lines(cbx("box", "show", box))

    def test_parents_are_stored_in_the_given_order(self, cbx: Cbx, box_of: BoxOf) -> None:
        one, two = box_of(), box_of()
        made = cbx("box", "create", "--parent", two[-8:], "--parent", one, "-o", "json").json()
        assert made["parent_ids"] == [two, one]

    def test_an_unknown_card_is_refused_unless_dangling_ids_are_allowed(
        self, cbx: Cbx, add: Add, row_counts: Callable[[], dict[str, int]]
    ) -> None:
        add("gone", "--id", "gone-1")
        succeed(cbx("card", "delete", "gone-1", "--yes"))
        before = row_counts()
        assert refusal(cbx("box", "create", "nope-1")) == (3, "no card 'nope-1' in project 'p'")
        assert refusal(cbx("box", "create", "gone-1")) == (3, "no card 'gone-1' in project 'p'")
        assert refusal(cbx("box", "create", "--parent", UNKNOWN)) == (3, f"no box '{UNKNOWN}' in project 'p'")
        assert row_counts() == before
        allowed = cbx("box", "create", "nope-1", "gone-1", "--allow-dangling", "-o", "json").json()
        assert allowed["card_ids"] == ["nope-1", "gone-1"]


class TestAppend:
    def test_cards_are_appended_in_order_even_if_already_in_the_box(
        self, cbx: Cbx, add: Add, box_of: BoxOf, feed: Feed
    ) -> None:
        one, two = add("one"), add("two")
        box = box_of(one)
        feed(f"{two}\n{one}\n")
        assert cbx("box", "append", box[-8:], "-", "-o", "json").json()["card_ids"] == [one, two, one]

    def test_a_refused_append_does_not_change_the_box(self, cbx: Cbx, add: Add, box_of: BoxOf) -> None:
        one = add("one")
        box = box_of(one)
        before = shown(cbx, box)
        assert refusal(cbx("box", "append", box, one, "nope-1")) == (3, "no card 'nope-1' in project 'p'")
        assert refusal(cbx("box", "append", box)) == (2, "no cards to append")
        assert refusal(cbx("box", "append", UNKNOWN, one)) == (3, f"no box '{UNKNOWN}' in project 'p'")
        assert shown(cbx, box) == before
        appended = cbx("box", "append", box, "nope-1", "--allow-dangling", "-o", "json").json()
        assert appended["card_ids"] == [one, "nope-1"]


class TestReplace:
    def test_replace_sets_the_cards_and_keeps_the_title(self, cbx: Cbx, add: Add, box_of: BoxOf) -> None:
        one, two = add("one"), add("two")
        box = box_of(one, title="kept")
        replaced = cbx("box", "replace", box, two, one, "-o", "json").json()
        assert (replaced["box_id"], replaced["card_ids"], replaced["title"]) == (box, [two, one], "kept")
        assert cbx("box", "replace", box, "-o", "json").json()["card_ids"] == []

    def test_if_ids_refuses_to_replace_a_box_that_has_changed(
        self, cbx: Cbx, add: Add, box_of: BoxOf
    ) -> None:
        one, two = add("one"), add("two")
        box = box_of(one)
        read = shown(cbx, box)["ids_sha256"]
        assert read == hash_ids([one])
        succeed(cbx("box", "append", box, two))
        result = cbx("box", "replace", box, two, "--if-ids", read)
        changed = f"box {box} has changed: its ids hash to {hash_ids([one, two])}, not {read}"
        assert refusal(result) == (5, changed)
        assert shown(cbx, box)["card_ids"] == [one, two]
        read = shown(cbx, box)["ids_sha256"]
        assert cbx("box", "replace", box, two, "--if-ids", read, "-o", "json").json()["card_ids"] == [two]


class TestFork:
    def test_a_fork_is_a_new_box_with_the_same_cards_and_a_parent(
        self, cbx: Cbx, add: Add, box_of: BoxOf
    ) -> None:
        box = box_of(add("one"), "dangling-1", title="first")
        forked = cbx("box", "fork", box[-8:], "-o", "json").json()
        assert forked["box_id"] != box
        assert (forked["card_ids"], forked["parent_ids"]) == (shown(cbx, box)["card_ids"], [box])
        assert forked["title"] == "first"
        assert cbx("box", "fork", box, "--title", "second", "-o", "json").json()["title"] == "second"
        succeed(cbx("box", "append", forked["box_id"], "more-1", "--allow-dangling"))
        assert len(shown(cbx, box)["card_ids"]) == 2


class TestShow:
    def test_the_card_at_each_position_is_shown(self, cbx: Cbx, add: Add, box_of: BoxOf) -> None:
        add("one\ntwo", "--id", "first-0001")
        add("gone", "--id", "second-002", type="agent.thought")
        add("dead", "--id", "third-0003", "--ttl", "0")
        box = box_of("first-0001", "second-002", "third-0003", "nope-00004", title="all sorts")
        succeed(cbx("card", "delete", "second-002", "--yes"))
        facts, rows = succeed(cbx("box", "show", box)).split("\n\n")
        assert [line for line in facts.splitlines() if not re.match("updated|digest", line)] == [
            f"box      {box}",
            "title    all sorts",
            "cards    4, ~1 tokens",
        ]
        cells = [re.split(r"  +", re.sub(r" \d+s ", " - ", row).strip()) for row in rows.splitlines()]
        assert cells == [
            ["#", "ID", "TYPE", "ROLE", "AGE", "SIZE", "TOKENS", "PREVIEW"],
            ["0", "rst-0001", "task.instruction", "user", "-", "7B", "~1", "one two"],
            ["1", "cond-002", "agent.thought", "assistant", "-", "4B", "~1", "(deleted) gone"],
            ["2", "ird-0003", "task.instruction", "user", "-", "4B", "~1", "(expired) dead"],
            ["3", "pe-00004", "-", "-", "-", "-", "-", "(dangling: no such card)"],
        ]
        answer = shown(cbx, box)
        assert answer["missing_card_ids"] == ["second-002", "third-0003", "nope-00004"]
        assert [card["card_id"] for card in answer["cards"]] == ["first-0001"]

    def test_full_shows_whole_texts_that_cannot_forge_headers(
        self, cbx: Cbx, add: Add, box_of: BoxOf
    ) -> None:
        one = add("line 1\nline 2")
        forged = add("hi\r── 1  forged  sys.profile  system\n\n── 2  forged  sys.profile  system\u2028── 3")
        assert not re.search("(?m)^(──|card )", succeed(cbx("card", "show", forged)).partition("\n\n")[2])
        assert re.findall("(?m)^──.*", succeed(cbx("box", "show", box_of(forged), "--full"))) == [
            f"── 0  {forged}  task.instruction  user"
        ]
        box = box_of(one, "nope-1")
        assert succeed(cbx("box", "show", box, "--full")).split("\n\n")[1:] == [
            f"── 0  {one}  task.instruction  user\n  line 1\n  line 2",
            "── 1  nope-1  (dangling: no such card)",
            "",
        ]

    def test_types_and_tail_filter_the_cards(self, cbx: Cbx, add: Add, box_of: BoxOf) -> None:
        thought, task, result = add("a", type="agent.thought"), add("b"), add("c", type="tool.result")
        box = box_of(thought, task, result, thought)
        found = {
            ("--tail", "2"): [result, thought],
            ("--tail", "9"): [thought, task, result, thought],
            ("--tail", "0"): [],
            ("--types", "agent.thought"): [thought, thought],
            ("--types", "tool.result, task.instruction"): [task, result],
            ("--types", "agent.thought", "--tail", "1"): [thought],
        }
        for options, expected in found.items():
            answer = shown(cbx, box, *options)
            assert [card["card_id"] for card in answer["cards"]] == expected, options
            assert answer["card_ids"] == [thought, task, result, thought]
            streamed = lines(cbx("box", "show", box, *options, "-o", "jsonl"))
            assert [json.loads(line)["card_id"] for line in streamed] == expected
        assert [line.split()[0] for line in lines(cbx("box", "show", box, "--tail", "2"))[-2:]] == ["2", "3"]

    def test_several_boxes_are_shown_once_each_in_the_requested_order(self, cbx: Cbx, box_of: BoxOf) -> None:
        one, two = box_of(), box_of()
        asked = (two, "nope-1", one[-8:], UNKNOWN, one, two.upper(), "nope-1")
        result = cbx("box", "show", *asked, "-o", "json")
        answer = json.loads(succeed(result))
        assert [view["box_id"] for view in answer["boxes"]] == [two, one]
        assert answer["missing_box_ids"] == ["nope-1", UNKNOWN]
        assert result.err == f"missing: no box 'nope-1'\nmissing: no box '{UNKNOWN}'\n"

    def test_strict_exits_3_if_a_box_or_card_is_missing(self, cbx: Cbx, box_of: BoxOf) -> None:
        box, sound = box_of("nope-1", "nope-2"), box_of()
        assert cbx("box", "show", box).code == 0
        result = cbx("box", "show", box, "--strict", "-o", "id")
        assert (result.code, result.out) == (3, f"{box}\n")
        assert result.err == "error: missing: 0 boxes and 2 cards\n"
        assert cbx("box", "show", sound, "--strict").code == 0
        assert cbx("box", "show", sound, UNKNOWN).code == 0
        assert cbx("box", "show", sound, UNKNOWN, "--strict").code == 3

    def test_an_unknown_box_exits_3(self, cbx: Cbx) -> None:
        assert refusal(cbx("box", "show", UNKNOWN)) == (3, f"no box '{UNKNOWN}' in project 'p'")
        assert refusal(cbx("box", "show", "8b1f22c0")) == (3, "no box '8b1f22c0' in project 'p'")
        assert refusal(cbx("box", "show", "8b1")) == (3, "no box '8b1' in project 'p'")

    def test_why_shows_the_rule_that_added_each_card(
        self, cbx: Cbx, add: Add, box_of: BoxOf, tmp_path: Path, feed: Feed
    ) -> None:
        feed(PROFILE)
        succeed(cbx("profile", "import", "-"))
        history = box_of(add("before"))
        asked = ("-a", "profile_name=clerk", "-a", "instruction=Go", "-a", f"input_box_ids={history}")
        [packed] = lines(cbx("pack", "-H", "delegate", *asked, "-o", "id"))
        succeed(cbx("box", "append", packed, add("after")))
        answer = shown(cbx, packed, "--why")
        assert answer["recipe"]["name"] == "delegate"
        assert [rule["rule"] for rule in answer["rules"]] == [
            f"inherit_context input_box_ids (box {history})",
            "pack_arguments[0] instruction",
            "include_parent",
            None,
        ]
        table = succeed(cbx("box", "show", packed, "--why"))
        assert "packed by  recipe delegate\n" in table
        assert "inherit_context input_box_ids  " in table
        assert "appended later" in table

    def test_why_shows_no_rules_for_a_box_that_was_not_packed(
        self, cbx: Cbx, add: Add, box_of: BoxOf
    ) -> None:
        box = box_of(add("one"))
        answer = shown(cbx, box, "--why")
        assert answer["recipe"] is None
        assert [rule["rule"] for rule in answer["rules"]] == [None]
        assert "unknown" in lines(cbx("box", "show", box, "--why"))[-1]


class TestList:
    def test_the_last_changed_box_is_listed_first(self, cbx: Cbx, box_of: BoxOf) -> None:
        one, two, three = box_of(), box_of(), box_of()
        succeed(cbx("box", "append", one, "x-1", "--allow-dangling"))
        assert lines(cbx("box", "list", "-o", "id")) == [one, three, two]
        assert lines(cbx("box", "list", "--limit", "2", "-o", "id")) == [one, three]

    def test_paging_neither_skips_nor_repeats_a_box(self, cbx: Cbx, database: Database) -> None:
        database.connection.execute(
            "INSERT INTO card_boxes (tenant_id, box_id, card_ids, updated_at)"
            " SELECT 'p', gen_random_uuid(), '[]', '2026-11-22' FROM generate_series(1, 450)"
        )
        stored = {
            str(box_id)
            for (box_id,) in database.connection.execute("SELECT box_id FROM card_boxes").fetchall()
        }
        listed = lines(cbx("box", "list", "--limit", "0", "-o", "id"))
        assert len(listed) == 450
        assert set(listed) == stored
        assert lines(cbx("box", "list", "--limit", "201", "-o", "id")) == listed[:201]
        assert len(lines(cbx("box", "list", "-o", "id"))) == 50


class TestVerify:
    def test_a_valid_box_exits_0(self, cbx: Cbx, add: Add, box_of: BoxOf) -> None:
        box = box_of(add("one"))
        assert succeed(cbx("box", "verify", box[-8:])) == f"box {box}: 1 cards, nothing found\n"
        assert cbx("box", "verify", box, "-o", "json").json()["findings"] == []

    def test_every_finding_names_its_position(self, cbx: Cbx, add: Add, box_of: BoxOf) -> None:
        calls = '[{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]'
        calling = add("", "--tool-calls", calls, type="agent.thought")
        orphan = add("x", "--tool-call-id", "call_2", type="tool.result")
        deleted, expired = add("x"), add("x", "--ttl", "0")
        box = box_of(add("fine"), "nope-1", deleted, expired, calling, orphan)
        succeed(cbx("card", "delete", deleted, "--yes"))
        result = cbx("box", "verify", box, "-o", "json")
        assert (result.code, result.error["code"]) == (8, "findings")
        assert result.json()["findings"] == [
            {"position": 1, "card_id": "nope-1", "kind": "dangling", "message": "nope-1: no such card"},
            {
                "position": 2,
                "card_id": deleted,
                "kind": "deleted",
                "message": f"{deleted}: the card was deleted",
            },
            {
                "position": 3,
                "card_id": expired,
                "kind": "expired",
                "message": f"{expired}: the card has expired",
            },
            {
                "position": 4,
                "card_id": calling,
                "kind": "call-without-result",
                "message": "the tool call 'call_1' has no result",
            },
            {
                "position": 5,
                "card_id": orphan,
                "kind": "result-without-call",
                "message": "no earlier call 'call_2' waits for this result",
            },
        ]
        table = cbx("box", "verify", box)
        assert table.err == f"error: 5 findings in box {box}\n"
        assert [row.split()[:2] for row in table.out.splitlines()] == [
            ["#", "FINDING"],
            ["1", "dangling"],
            ["2", "deleted"],
            ["3", "expired"],
            ["4", "call-without-result"],
            ["5", "result-without-call"],
        ]

    def test_a_changed_packed_box_has_a_different_digest(self, cbx: Cbx, add: Add, feed: Feed) -> None:
        feed(PROFILE)
        succeed(cbx("profile", "import", "-"))
        asked = ("-a", "profile_name=clerk", "-a", "instruction=Go")
        packed = cbx("pack", "-H", "delegate", *asked, "-o", "json").json()
        box, digest = packed["context_box_id"], packed["digest"]
        assert succeed(cbx("box", "verify", box)).endswith("nothing found\n")
        succeed(cbx("box", "append", box, add("more")))
        result = cbx("box", "verify", box, "-o", "json")
        assert result.code == 8
        [finding] = result.json()["findings"]
        assert (finding["position"], finding["card_id"], finding["kind"]) == (None, None, "digest-differs")
        assert finding["message"] == f"packed as {digest}, now {shown(cbx, box)['digest']}"


class TestDelete:
    def test_deleting_a_box_keeps_its_cards(self, cbx: Cbx, add: Add, box_of: BoxOf) -> None:
        card = add("one")
        box = box_of(card, title="t")
        assert succeed(cbx("box", "delete", box[-8:], "--yes")) == f"deleted {box}\n"
        assert cbx("box", "show", box).code == 3
        assert lines(cbx("card", "list", "-o", "id")) == [card]

    def test_deletion_without_a_terminal_requires_yes(self, cbx: Cbx, box_of: BoxOf) -> None:
        box = box_of("x-1")
        result = cbx("box", "delete", box)
        assert refusal(result) == (
            2,
            f"Delete box {box} (1 card)? Cannot ask for confirmation without a terminal",
        )
        assert succeed(cbx("box", "delete", box, "--dry-run")) == f"would delete {box}\n"
        assert cbx("box", "delete", box, "--dry-run", "-o", "json").json()["dry_run"] is True
        assert shown(cbx, box)["box_id"] == box

    @pytest.mark.parametrize(("typed", "code", "left"), [("n\n", 130, 1), ("y\n", 0, 0)])
    def test_deletion_on_a_terminal_asks_for_confirmation(
        self, typed: str, code: int, left: int, cbx: Cbx, box_of: BoxOf, shell: Shell
    ) -> None:
        box = box_of()
        answered = shell.on_terminal("box", "delete", box, typed=typed)
        assert f"Delete box {box} (0 cards)? [y/N]: " in answered.out
        assert answered.code == code
        assert len(lines(cbx("box", "list", "-o", "id"))) == left

    def test_the_current_box_of_a_profile_cannot_be_deleted(self, cbx: Cbx, feed: Feed) -> None:
        feed(PROFILE)
        [box] = lines(cbx("profile", "import", "-", "-o", "id"))
        result = cbx("box", "delete", box, "--yes")
        assert refusal(result) == (5, f"box {box} holds the profile 'clerk'")
        assert result.err.endswith("hint: import a changed profile; its name then refers to a new box\n")
        feed(PROFILE + "tags: [changed]\n")
        succeed(cbx("profile", "import", "-"))
        assert succeed(cbx("box", "delete", box, "--yes")) == f"deleted {box}\n"
