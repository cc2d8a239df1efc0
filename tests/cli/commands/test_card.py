"""`cbx card`: adding, showing, listing, searching and deleting cards, importing and exporting them."""

import json
import os
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cardbox_cli.model.cards import draft_card
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database
from tests.cli.conftest import Shell, lines, succeed
from tests.conftest import Cbx, Result

Feed = Callable[[str | bytes], None]
Add = Callable[..., str]

ADD = ("card", "add", "--type", "task.instruction")


def shown(cbx: Cbx, card_id: str, *options: str) -> Any:
    """A card, as JSON."""
    return json.loads(succeed(cbx("card", "show", card_id, *options, "-o", "json")))


def refusal(result: Result) -> tuple[int, str]:
    """The exit code of a failed command, and the first line of what it said."""
    assert result.out == ""
    return result.code, result.err.splitlines()[0].removeprefix("error: ")


class TestAdd:
    def test_the_content_comes_from_an_option_a_file_or_standard_input(
        self, cbx: Cbx, feed: Feed, tmp_path: Path
    ) -> None:
        (tmp_path / "text").write_text("tüxt\n")
        (tmp_path / "json").write_text('{"a": [1]}')
        feed("from stdin")
        contents = {
            ("--text", ""): {"__type__": "TextContent", "text": ""},
            ("--file", str(tmp_path / "text")): {"__type__": "TextContent", "text": "tüxt\n"},
            ("--file", "-"): {"__type__": "TextContent", "text": "from stdin"},
            ("--json", '{"a": 1}'): {"__type__": "JsonContent", "data": {"a": 1}},
            ("--json", f"@{tmp_path / 'json'}"): {"__type__": "JsonContent", "data": {"a": [1]}},
            ("--json", '{"__type__": "TextContent", "text": "t"}'): {"__type__": "TextContent", "text": "t"},
        }
        for options, content in contents.items():
            [card_id] = lines(cbx(*ADD, *options, "-o", "id"))
            assert shown(cbx, card_id)["content"] == content, options

    def test_the_content_class_fits_the_type(self, cbx: Cbx) -> None:
        tools = '[{"type": "function", "function": {"name": "f"}}]'
        fields = '[{"name": "total", "description": "in EUR"}]'
        for type_, value, content in (
            ("sys.tools", tools, {"__type__": "ToolContent", "tools": json.loads(tools)}),
            ("task.result_fields", fields, {"__type__": "FieldsSchemaContent", "fields": json.loads(fields)}),
        ):
            result = cbx("card", "add", "--type", type_, "--json", value, "-o", "json")
            assert json.loads(succeed(result))["content"] == content

    @pytest.mark.parametrize("json_", ['{"tools": [%s]}', "[%s]"], ids=["object", "list"])
    def test_tools_in_either_shape_are_offered(self, cbx: Cbx, json_: str) -> None:
        tool = {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}
        card = cbx(
            "card", "add", "--type", "sys.tools", "--json", json_ % json.dumps(tool), "-o", "json"
        ).json()
        assert card["content"] == {"__type__": "ToolContent", "tools": [tool]}
        asked = cbx("card", "add", "--type", "task.instruction", "--text", "Hi", "-o", "id").out.strip()
        box = cbx("box", "create", card["card_id"], asked, "-o", "id").out.strip()
        assert cbx("render", "--box", box).json()["tools"] == [tool]

    def test_tools_that_another_program_stored_as_json_are_offered(
        self, cbx: Cbx, database: Database
    ) -> None:
        tool = {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}
        added = ("card", "add", "--type", "sys.tools", "--json", json.dumps([tool]), "-o", "id")
        card = cbx(*added).out.strip()
        stored = json.dumps({"__type__": "JsonContent", "data": {"tools": [tool]}})
        database.connection.execute("UPDATE public.cards SET content = %s", [stored])
        asked = cbx("card", "add", "--type", "task.instruction", "--text", "Hi", "-o", "id").out.strip()
        box = cbx("box", "create", card, asked, "-o", "id").out.strip()
        assert cbx("render", "--box", box).json()["tools"] == [tool]

    @pytest.mark.parametrize(
        ("json_", "content"),
        [
            ('{"status": "success", "result": [1, 2]}',
             {"status": "success", "after_execution": "suspend", "result": [1, 2]}),
            ('{"status": "failed", "error": {"code": "e", "message": "m"}, "after_execution": "terminate"}',
             {"status": "failed", "after_execution": "terminate", "error": {"code": "e", "message": "m"}}),
        ],
    )  # fmt: skip
    def test_a_result_in_the_shape_of_the_documents_is_a_result(
        self, cbx: Cbx, json_: str, content: dict[str, object]
    ) -> None:
        card = cbx("card", "add", "--type", "tool.result", "--json", json_, "-o", "json").json()
        assert card["content"] == {"__type__": "ToolResultContent", **content}

    @pytest.mark.parametrize(
        "data",
        [
            {"status": "ok", "result": 1},
            {"status": "success"},
            {"status": "success", "result": 1, "n": 2},
            [1],
        ],
        ids=json.dumps,
    )
    def test_any_other_result_stays_as_it_is(self, cbx: Cbx, data: object) -> None:
        card = cbx("card", "add", "--type", "tool.result", "--json", json.dumps(data), "-o", "json").json()
        assert card["content"] == {"__type__": "JsonContent", "data": data}

    @pytest.mark.parametrize("option", ["--text", "--file"])
    @pytest.mark.parametrize("card_type", ["task.result_fields", "sys.tools"])
    def test_text_is_refused_for_cards_that_hold_a_list(
        self, cbx: Cbx, tmp_path: Path, card_type: str, option: str, row_counts: Callable[[], dict[str, int]]
    ) -> None:
        (tmp_path / "abc").write_text("abc")
        before = row_counts()
        given = "abc" if option == "--text" else str(tmp_path / "abc")
        result = cbx("card", "add", "--type", card_type, option, given)
        assert (result.code, result.out) == (4, "")
        assert result.err.startswith(f"error: the content of a {card_type} card must be a list of ")
        assert row_counts() == before

    @pytest.mark.parametrize("json_", ['{"tool": []}', '{"tools": 1}', '["search"]', '{"tools": [], "x": 1}'])
    def test_tools_in_another_shape_are_refused(self, offline: Cbx, json_: str) -> None:
        result = offline("card", "add", "--type", "sys.tools", "--json", json_)
        assert (result.code, result.err.startswith("error: --json: must be a list of tools")) == (4, True)

    def test_all_other_fields_of_a_card_have_options(self, cbx: Cbx) -> None:
        calls = '[{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]'
        options = ("--role", "assistant", "--author", "me", "--id", "card-1", "--ttl", "3600")
        more = ("--metadata", '{"trace_id": "t1"}', "--tool-calls", calls, "--tool-call-id", "call_0")
        succeed(cbx(*ADD, "--text", "x", *options, *more))
        card = shown(cbx, "card-1")
        assert (card["role"], card["author_id"], card["ttl_seconds"]) == ("assistant", "me", 3600)
        assert (card["tool_calls"], card["tool_call_id"]) == (json.loads(calls), "call_0")
        assert card["metadata"]["trace_id"] == "t1"
        times = [datetime.fromisoformat(card[name]) for name in ("created_at", "expires_at")]
        assert times[1] - times[0] == timedelta(hours=1)

    def test_role_author_and_id_have_defaults(self, cbx: Cbx) -> None:
        [thought] = lines(cbx("card", "add", "--type", "agent.thought", "--text", "x", "-o", "id"))
        card = shown(cbx, thought)
        assert (card["role"], card["author_id"]) == ("assistant", "sys.operator")
        assert len(thought) == 32

    def test_adding_the_same_card_again_changes_nothing(
        self, cbx: Cbx, row_counts: Callable[[], dict[str, int]]
    ) -> None:
        command = (*ADD, "--text", "x", "--id", "card-1", "-o", "id")
        assert cbx(*command).err == ""
        before = shown(cbx, "card-1"), row_counts()
        again = cbx(*command)
        assert (again.code, again.out, again.err) == (0, "card-1\n", "unchanged: card-1\n")
        assert (shown(cbx, "card-1"), row_counts()) == before

    def test_a_different_card_with_a_used_id_is_refused_unless_repair_is_given(
        self, cbx: Cbx, add: Add
    ) -> None:
        add("one", "--id", "card-1")
        two = (*ADD, "--text", "two", "--id", "card-1")
        assert refusal(cbx(*two)) == (5, "the card id 'card-1' is taken")
        assert shown(cbx, "card-1")["content"]["text"] == "one"
        repaired = cbx(*two, "--repair", "-o", "id")
        assert (repaired.code, repaired.out, repaired.err) == (0, "card-1\n", "repaired: card-1\n")
        assert shown(cbx, "card-1")["content"]["text"] == "two"

    def test_only_repair_restores_a_deleted_card(self, cbx: Cbx, add: Add) -> None:
        add("one", "--id", "card-1")
        succeed(cbx("card", "delete", "card-1", "--yes"))
        command = (*ADD, "--text", "one", "--id", "card-1")
        assert refusal(cbx(*command)) == (5, "the card id 'card-1' belongs to a deleted card")
        succeed(cbx(*command, "--repair"))
        assert shown(cbx, "card-1")["deleted_at"] is None

    def test_repair_cannot_change_a_card_of_another_project(self, cbx: Cbx, add: Add) -> None:
        add("theirs", "--id", "card-1", "-p", "other")
        assert refusal(cbx(*ADD, "--text", "ours", "--id", "card-1", "--repair")) == (
            5,
            "the card id 'card-1' is taken",
        )
        assert shown(cbx, "card-1", "-p", "other")["content"]["text"] == "theirs"

    def test_a_dry_run_writes_nothing(self, cbx: Cbx, row_counts: Callable[[], dict[str, int]]) -> None:
        before = row_counts()
        result = cbx(*ADD, "--text", "x", "--id", "card-1", "--dry-run", "-o", "json")
        card = json.loads(succeed(result))
        assert (card["card_id"], card["content"]["text"], card["created_at"]) == ("card-1", "x", None)
        assert result.err == "dry run: nothing was written\n"
        assert row_counts() == before

    def test_a_dry_run_refuses_invalid_content(self, offline: Cbx) -> None:
        assert offline(*ADD, "--json", '{"a": NaN}', "--dry-run").code == 4

    def test_invalid_cards_are_refused_without_a_database(self, offline: Cbx) -> None:
        for words, refused in (
            (("--type", "x"), "a card takes exactly one of --text, --json and --file"),
            (
                ("--type", "x", "--text", "a", "--json", "{}"),
                "a card takes exactly one of --text, --json and --file",
            ),
            (("--text", "a"), "--type is required"),
            (("--card", "-", "--text", ""), "--card and --text cannot be combined"),
            (("--card", "-", "--id", "x"), "--card and --id cannot be combined"),
            (("--card", "-", "--author", "x"), "--card and --author cannot be combined"),
            (
                ("--type", "x", "--text", "a", "--ttl", "-1"),
                "Invalid value for '--ttl': -1 is not in the range x>=0.",
            ),
        ):
            assert refusal(offline("card", "add", *words)) == (2, refused)
        for words, refused in (
            (("--type", " ", "--text", "a"), "a card needs a non-empty type"),
            (("--type", "x", "--json", "1"), "--json must be an object or a list, not a number"),
            (("--type", "x", "--text", "a", "--id", ""), "the card id '' must have 1 to 255 characters"),
            (
                ("--type", "x", "--text", "a", "--id", "@last"),
                "--id: '@last' begins with @, which is reserved for names like @last",
            ),
            (("--type", "x", "--text", "a", "--id", " \t"), "--id: ' \\t' is blank"),
            (
                ("--type", "x", "--text", "a", "--id", "two\nlines"),
                "--id: 'two\\nlines' contains the invisible character '\\n'",
            ),
            (
                ("--type", "x", "--text", "a", "--id", "red\x1b[31m"),
                "--id: 'red\\x1b[31m' contains the invisible character '\\x1b'",
            ),
            (("--type", "x", "--text", "a", "--id", "-x"), "--id: '-x' begins with -, like an option"),
            (
                ("--type", "x", "--text", "a", "--id", "tag\U000e0041"),
                "--id: 'tag\\U000e0041' contains the invisible character '\\U000e0041'",
            ),
            (
                ("--type", "x", "--text", "a", "--id", "\u3164"),
                "--id: '\\u3164' contains the invisible character '\\u3164'",
            ),
            (("--type", "x", "--text", "a", "--metadata", "[]"), "--metadata must be an object, not a list"),
            (
                ("--type", "x", "--text", "a", "--tool-calls", "{}"),
                "--tool-calls must be a list, not an object",
            ),
            (
                ("--type", "task.result_fields", "--json", '[{"name": "n"}]'),
                "--json: [0] needs 'description' as a string",
            ),
            (
                ("--type", "x", "--json", '{"__type__": "TxtContent"}'),
                "content of class 'TxtContent' is invalid: Invalid value 'TxtContent' - at `$.__type__`",
            ),
        ):
            assert refusal(offline("card", "add", *words)) == (4, refused)

    def test_an_unreadable_file_is_named_in_the_error(self, offline: Cbx, feed: Feed, tmp_path: Path) -> None:
        absent = str(tmp_path / "absent")
        assert refusal(offline(*ADD, "--file", absent)) == (3, f"no file {absent!r}")
        assert refusal(offline(*ADD, "--file", str(tmp_path))) == (
            4,
            f"cannot read {str(tmp_path)!r}: Is a directory",
        )
        feed(b"caf\xe9")
        assert refusal(offline(*ADD, "--file", "-")) == (4, "standard input is not UTF-8 (byte 3)")


UNSTORABLE = {
    "NaN": "is nan, which JSON cannot represent",
    "Infinity": "is inf, which JSON cannot represent",
    "-Infinity": "is -inf, which JSON cannot represent",
    '"ab\\u0000"': "holds a NUL character at offset 2",
    '"a\\ud800"': "holds a lone surrogate at offset 1",
    "1e200000": "is a number of more than 1000 digits, written out without an exponent",
}


class TestWhatJsonbCannotHold:
    """It is refused before anything is written; the card and the place are named."""

    @pytest.mark.parametrize(("value", "reason"), UNSTORABLE.items())
    def test_unstorable_values_are_refused_in_every_field(
        self, value: str, reason: str, offline: Cbx
    ) -> None:
        command = (*ADD, "--id", "card-1")
        in_content = offline(*command, "--json", f'{{"a": [{{"b": {value}}}]}}')
        assert refusal(in_content) == (4, f"card 'card-1': content.data.a[0].b: {reason}")
        in_metadata = offline(*command, "--text", "x", "--metadata", f'{{"m": {value}}}')
        assert refusal(in_metadata) == (4, f"card 'card-1': metadata.m: {reason}")
        in_calls = offline(*command, "--text", "x", "--tool-calls", f"[{value}]")
        assert refusal(in_calls) == (4, f"card 'card-1': tool_calls[0]: {reason}")

    def test_invalid_utf_8_on_the_command_line_is_refused(self, offline: Cbx) -> None:
        result = offline(*ADD, "--id", "card-1", "--text", os.fsdecode(b"caf\xe9"))
        assert refusal(result) == (4, "card 'card-1': content.text: holds a lone surrogate at offset 3")

    def test_a_nul_character_in_a_conversation_is_refused(self, cbx: Cbx, feed: Feed) -> None:
        feed('[{"role": "user", "content": "fine"}, {"role": "user", "content": "\\u0000"}]')
        message = "standard input: message 1: content: holds a NUL character at offset 0"
        assert refusal(cbx("card", "import", "-")) == (4, message)

    def test_one_invalid_card_stops_the_whole_batch(
        self, cbx: Cbx, feed: Feed, row_counts: Callable[[], dict[str, int]]
    ) -> None:
        before = row_counts()
        good = '{"type": "x", "card_id": "good", "content": {"__type__": "TextContent", "text": "x"}}'
        bad = '{"type": "x", "card_id": "bad", "content": {"__type__": "JsonContent", "data": [NaN]}}'
        feed(f"{good}\n\n{bad}\n")
        message = "standard input:3: card 'bad': content.data[0]: is nan, which JSON cannot represent"
        assert refusal(cbx("card", "add", "--card", "-")) == (4, message)
        assert row_counts() == before


class TestAddingWholeCards:
    """`card show -o json` is what `card add --card` takes."""

    def test_a_card_is_copied_to_another_project_without_loss(self, cbx: Cbx, feed: Feed) -> None:
        data = '{"total": 1.10, "order": 123456789012345678901234567890}'
        more = ("--metadata", '{"trace_id": "t"}', "--ttl", "3600", "--tool-call-id", "call_1")
        [card_id] = lines(cbx("card", "add", "--type", "tool.result", "--json", data, *more, "-o", "id"))
        printed = succeed(cbx("card", "show", card_id, "-o", "json"))
        feed(printed.replace(f'"{card_id}"', "null", 1))
        [copy_id] = lines(cbx("-p", "other", "card", "add", "--card", "-", "-o", "id"))
        assert copy_id != card_id
        copy = succeed(cbx("-p", "other", "card", "show", copy_id, "-o", "json"))
        assert "1.10" in copy
        assert what_was_said(copy) == what_was_said(printed)

    def test_a_card_cannot_keep_its_id_in_another_project(self, cbx: Cbx, add: Add, feed: Feed) -> None:
        add("x", "--id", "card-1")
        feed(succeed(cbx("card", "show", "card-1", "-o", "json")))
        assert refusal(cbx("-p", "other", "card", "add", "--card", "-")) == (
            5,
            "the card id 'card-1' is taken",
        )

    def test_a_card_added_to_its_own_project_is_unchanged(self, cbx: Cbx, add: Add, feed: Feed) -> None:
        add("x", "--id", "card-1", "--metadata", '{"step_id": "s"}', "--ttl", "60")
        feed(succeed(cbx("card", "show", "card-1", "-o", "json")))
        assert cbx("card", "add", "--card", "-").err == "unchanged: card-1\n"

    def test_several_cards_are_added_in_order_from_json_or_jsonl(
        self, cbx: Cbx, add: Add, feed: Feed
    ) -> None:
        ids = [add(f"text {number}") for number in range(3)]
        for output, project in (("jsonl", "one"), ("json", "two")):
            listed = succeed(cbx("card", "list", "-o", output))
            for card_id in ids:
                listed = listed.replace(card_id, f"{project}-{card_id}")
            feed(listed)
            added = lines(cbx("-p", project, "card", "add", "--card", "-", "-o", "id"))
            assert added == [f"{project}-{card_id}" for card_id in reversed(ids)]

    def test_an_empty_list_adds_no_cards(self, cbx: Cbx, feed: Feed) -> None:
        feed("[]")
        result = cbx("card", "add", "--card", "-")
        assert (result.code, result.out) == (0, "")

    def test_the_old_name_of_metadata_is_refused(self, offline: Cbx, feed: Feed) -> None:
        feed('{"type": "x", "content": {"__type__": "TextContent", "text": "x"}, "meta": {}}')
        assert offline("card", "add", "--card", "-").err == (
            "error: standard input: the key 'meta' is the old name of 'metadata'\n"
            "hint: rename it to 'metadata'\n"
        )

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "standard input is empty"),
            (" \n", "standard input is empty"),
            ("@/etc/hostname", "standard input:1:1: not JSON: Expecting value"),
            ('{"type": "x",\n "content": }', "standard input:2:13: not JSON: Expecting value"),
            ('{"type": "x"}\n{"type": }', "standard input:2:10: not JSON: Expecting value"),
            ("[1]", "standard input[0]: a card must be a JSON object"),
            ('{"content": {}}', "standard input: a card needs a type"),
            ('{"type": "x"}', "standard input: content must be an object with the key '__type__'"),
            ('{"type": "x", "colour": 1}', "standard input: a card has no key 'colour'"),
            (
                '{"type": "x", "content": {"__type__": "TextContent", "text": "x"}, "ttl_seconds": "1"}',
                "standard input: the card is invalid: Expected `int | null`, got `str` - at `$.ttl_seconds`",
            ),
        ],
    )
    def test_an_invalid_card_is_refused_with_its_position(
        self, text: str, message: str, offline: Cbx, feed: Feed
    ) -> None:
        feed(text)
        assert refusal(offline("card", "add", "--card", "-")) == (4, message)


def what_was_said(card: str) -> dict[str, Any]:
    """A card without what the database and the project decide."""
    given = json.loads(card)
    for name in ("card_id", "project_id", "created_at", "expires_at"):
        del given[name]
    for name in ("project_id", "created_at"):
        del given["metadata"][name]
    return dict(given)


class TestShow:
    def test_a_card_is_found_by_its_whole_id_or_its_beginning_or_end(self, cbx: Cbx, add: Add) -> None:
        add("x", "--id", "aaaa-middle-zzzz")
        add("y", "--id", "bbbb-middle-yyyy")
        for typed in ("aaaa-middle-zzzz", "aaaa", "aaaa-mid", "zzzz", "middle-zzzz"):
            assert shown(cbx, typed)["card_id"] == "aaaa-middle-zzzz"
        for typed in ("middle", "zzzz-", "AAAA", "aaa%", "____"):
            assert refusal(cbx("card", "show", typed)) == (3, f"no card {typed!r} in project 'p'")
        assert cbx("card", "show", "aaa").err.endswith("hint: type at least 4 characters of the id\n")

    def test_an_exact_id_is_preferred_to_longer_ids(self, cbx: Cbx, add: Add) -> None:
        add("x", "--id", "card")
        add("y", "--id", "card-2")
        assert shown(cbx, "card")["card_id"] == "card"

    def test_several_cards_are_shown_once_each_in_the_requested_order(self, cbx: Cbx, add: Add) -> None:
        for name in ("aaaa-1", "bbbb-2", "cccc-3"):
            add("x", "--id", name)
        asked = ("cccc", "nope-1", "aaaa-1", "cccc-3", "nope-2", "bbbb", "nope-1")
        result = cbx("card", "show", *asked, "-o", "json")
        answer = json.loads(succeed(result))
        assert [card["card_id"] for card in answer["cards"]] == ["cccc-3", "aaaa-1", "bbbb-2"]
        assert answer["missing_card_ids"] == ["nope-1", "nope-2"]
        assert result.err == "missing: no card 'nope-1'\nmissing: no card 'nope-2'\n"

    def test_missing_cards_are_listed_in_the_requested_order(self, cbx: Cbx, add: Add) -> None:
        add("x", "--id", "gone-1")
        succeed(cbx("card", "delete", "gone-1", "--yes"))
        for asked in (("nope-1", "gone-1"), ("gone-1", "nope-1")):
            assert cbx("card", "show", *asked, "-o", "json").json()["missing_card_ids"] == list(asked)

    def test_strict_exits_3_but_shows_the_existing_cards(self, cbx: Cbx, add: Add) -> None:
        add("x", "--id", "aaaa-1")
        result = cbx("card", "show", "aaaa", "nope-1", "nope-1", "--strict", "-o", "id")
        assert (result.code, result.out) == (3, "aaaa-1\n")
        assert result.err.endswith("error: 1 of 2 cards are missing\n")

    def test_deleted_and_expired_cards_are_shown_only_with_deleted(self, cbx: Cbx, add: Add) -> None:
        add("x", "--id", "deleted-1")
        succeed(cbx("card", "delete", "deleted-1", "--yes"))
        add("x", "--id", "expired-1", "--ttl", "0")
        for card_id in ("deleted-1", "expired-1"):
            assert refusal(cbx("card", "show", card_id)) == (3, f"no card {card_id!r} in project 'p'")
            assert shown(cbx, card_id, "--deleted")["card_id"] == card_id

    def test_content_of_an_unknown_class_is_shown_raw_with_a_warning(
        self, cbx: Cbx, database: Database
    ) -> None:
        database.connection.execute(
            "INSERT INTO cards (tenant_id, card_id, content, metadata) VALUES"
            """ ('p', 'odd-1', '{"__type__": "HologramContent", "beam": [1.10]}', '{"type": "x"}')"""
        )
        table = cbx("card", "show", "odd-1")
        assert '{"beam":[1.10]}' in succeed(table)
        assert table.err == ("warning: card odd-1 has content of an unknown class; it is shown as stored\n")
        assert shown(cbx, "odd-1")["content"] == {"__type__": "HologramContent", "beam": [1.10]}

    def test_the_table_shows_the_fields_of_the_card(self, cbx: Cbx, add: Add) -> None:
        calls = '[{"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]'
        add("first\nsecond", "--id", "aaaa-1", "--tool-calls", calls, "--metadata", '{"step_id": "s1"}')
        table = lines(cbx("card", "show", "aaaa-1"))
        assert [line for line in table if not line.startswith("created")] == [
            "card      aaaa-1",
            "type      task.instruction",
            "role      user",
            "author    sys.operator",
            "calls     call_1",
            'metadata  {"step_id":"s1"}',
            "",
            "  first",
            "  second",
            "  → look({})",
        ]


class TestList:
    def test_each_filter_keeps_the_matching_cards(self, cbx: Cbx, add: Add) -> None:
        add("x", "--id", "typed", type="agent.thought")
        add("x", "--id", "spoken", "--role", "developer")
        add("x", "--id", "written", "--author", "worker-1")
        add("x", "--id", "turned", "--metadata", '{"agent_turn_id": "turn_1"}')
        add("x", "--id", "stepped", "--metadata", '{"step_id": "step_1"}')
        add("x", "--id", "traced", "--metadata", '{"trace_id": "trace_1"}')
        add("x", "--id", "answering", "--tool-call-id", "call_1", type="tool.result")
        found = {
            ("--type", "agent.thought"): ["typed"],
            ("--type", "agent.thought", "--type", "tool.result"): ["answering", "typed"],
            ("--type", "agent.thought", "--role", "user"): [],
            ("--role", "developer"): ["spoken"],
            ("--author", "worker-1"): ["written"],
            ("--turn", "turn_1"): ["turned"],
            ("--step", "step_1"): ["stepped"],
            ("--trace", "trace_1"): ["traced"],
            ("--tool-call-id", "call_1"): ["answering"],
            ("--limit", "2"): ["answering", "traced"],
            (): ["answering", "traced", "stepped", "turned", "written", "spoken", "typed"],
        }
        for options, expected in found.items():
            assert lines(cbx("card", "list", *options, "-o", "id")) == expected, options

    def test_since_is_inclusive_and_until_is_exclusive(self, cbx: Cbx, add: Add, database: Database) -> None:
        for day in (1, 2, 3):
            add("x", "--id", f"day-{day}")
            database.connection.execute(
                "UPDATE cards SET created_at = make_timestamptz(2026, 11, %s, 12, 0, 0, 'UTC')"
                " WHERE card_id = %s",
                (day, f"day-{day}"),
            )
        found = {
            ("--since", "2026-11-02T12:00:00Z"): ["day-3", "day-2"],
            ("--until", "2026-11-02T12:00:00Z"): ["day-1"],
            ("--since", "2026-11-02", "--until", "2026-11-03"): ["day-2"],
            ("--since", "2026-11-02T13:00:00+02:00", "--until", "2026-11-02T14:00:01+02:00"): ["day-2"],
        }
        for options, expected in found.items():
            assert lines(cbx("card", "list", *options, "-o", "id")) == expected, options

    def test_deleted_and_expired_cards_are_listed_only_with_deleted(self, cbx: Cbx, add: Add) -> None:
        add("x", "--id", "kept")
        add("x", "--id", "deleted")
        add("x", "--id", "expired", "--ttl", "0")
        succeed(cbx("card", "delete", "deleted", "--yes"))
        assert lines(cbx("card", "list", "-o", "id")) == ["kept"]
        assert lines(cbx("card", "list", "--deleted", "-o", "id")) == ["expired", "deleted", "kept"]

    def test_paging_is_complete_even_if_all_cards_have_the_same_time(
        self, cbx: Cbx, cards: CardStore, database: Database
    ) -> None:
        ids = [f"card-{number:04}" for number in range(2100)]
        cards.add_many(draft_card("x", "same words", card_id=card_id) for card_id in ids)
        database.connection.execute("UPDATE cards SET created_at = '2026-11-22'")
        newest_first = ids[::-1]
        assert lines(cbx("card", "list", "--limit", "0", "-o", "id")) == newest_first
        assert lines(cbx("card", "list", "--limit", "1001", "-o", "id")) == newest_first[:1001]
        assert lines(cbx("card", "search", "words", "--limit", "2001", "-o", "id")) == newest_first[:2001]
        assert len(lines(cbx("card", "list"))) == 1 + 50

    def test_invalid_times_and_limits_are_refused(self, offline: Cbx) -> None:
        assert refusal(offline("card", "list", "--since", "yesterday")) == (
            2,
            "--since: invalid time 'yesterday'",
        )
        assert offline("card", "list", "--limit", "-1").code == 2

    @pytest.mark.parametrize("noun", ["card", "box"])
    @pytest.mark.parametrize(
        ("since", "until"), [("2026-11-03", "2026-11-02T23:00:00-00:30"), ("30m", "1h"), ("59m", "1h")]
    )
    def test_a_since_later_than_until_is_refused(
        self, since: str, until: str, noun: str, offline: Cbx
    ) -> None:
        result = offline(noun, "list", "--since", since, "--until", until)
        assert (result.code, result.err) == (
            2,
            f"error: --since {since!r} is later than --until {until!r}\n"
            "hint: pass the earlier time to --since\n",
        )
        assert offline(noun, "list", "--since", until, "--until", since).code == 7

    @pytest.mark.parametrize("command", [("card", "list"), ("box", "list"), ("box", "show", "8b1f22c0")])
    def test_an_interval_without_watch_is_refused(self, command: tuple[str, ...], offline: Cbx) -> None:
        result = offline(*command, "--interval", "1")
        assert (result.code, result.err) == (
            2,
            "error: --interval requires --watch\nhint: add --watch, or remove --interval\n",
        )


TEXTS = {
    "plain": "The Payment gateway timed out twice",
    "swapped": "gateway of the payment",
    "upper": "PAYMENT RECEIVED",
    "chinese": "支付网关超时,请稍后重试",
    "japanese": "決済がタイムアウトしました",
    "korean": "결제 시간이 초과되었습니다",
    "percent": "折扣50%",
    "fifty": "折扣50元",
}
FOUND = {
    "payment": ["upper", "swapped", "plain"],
    "PAYMENT": ["upper", "swapped", "plain"],
    "gateway payment": ["swapped", "plain"],
    '"payment gateway"': ["plain"],
    "payment -received": ["swapped", "plain"],
    "twice or received": ["upper", "plain"],
    "pay": [],
    "超时": ["chinese"],
    "网关 重试": ["chinese"],
    "网关 折扣": [],
    "超時": [],
    "タイムアウト": ["japanese"],
    "決済": ["japanese"],
    "초과": ["korean"],
    "시간이 결제": ["korean"],
    "折扣50%": ["percent"],
    "折扣_0": [],
    "折扣": ["fifty", "percent"],
    # not the keys of JSON, not the names of classes
    "beacon": ["keyed"],
    "lighthouse": [],
    "灯塔": [],
    "TextContent": [],
    "JsonContent": [],
    "__type__": [],
    # what a call says
    "lookup": ["calling"],
    "订单": ["calling"],
    # not what is gone, or elsewhere
    "deleted": [],
    "elsewhere": [],
    "!!!": [],
}


class TestSearch:
    def test_search_finds_the_same_cards_with_and_without_the_index(self, cbx: Cbx, add: Add) -> None:
        for name, text in TEXTS.items():
            add(text, "--id", name)
        keyed = '{"lighthouse": {"灯塔": ["beacon"]}}'
        succeed(cbx("card", "add", "--type", "x", "--json", keyed, "--id", "keyed"))
        calls = '[{"function": {"name": "lookup", "arguments": "{\\"q\\": \\"订单\\"}"}}]'
        add("", "--id", "calling", "--tool-calls", calls, type="agent.thought")
        add("deleted", "--id", "gone")
        succeed(cbx("card", "delete", "gone", "--yes"))
        add("elsewhere", "--id", "theirs", "-p", "other")

        def found() -> dict[str, list[str]]:
            return {query: lines(cbx("card", "search", query, "-o", "id")) for query in FOUND}

        assert found() == FOUND
        succeed(cbx("db", "index-text"))
        assert found() == FOUND

    def test_type_and_limit_filter_the_matches(self, cbx: Cbx, add: Add) -> None:
        add("a word", "--id", "one")
        add("a word", "--id", "two", type="agent.thought")
        add("a word", "--id", "three")
        assert lines(cbx("card", "search", "word", "--type", "task.instruction", "-o", "id")) == [
            "three",
            "one",
        ]
        assert lines(cbx("card", "search", "word", "--limit", "1", "-o", "id")) == ["three"]

    def test_an_empty_search_text_is_refused(self, offline: Cbx) -> None:
        assert refusal(offline("card", "search", " ")) == (2, "the search text is empty")


class TestDelete:
    def test_a_deleted_card_is_hidden_and_missing_from_its_boxes(
        self, cbx: Cbx, add: Add, box_of: Callable[..., str]
    ) -> None:
        box = box_of(add("x", "--id", "aaaa-1"))
        deleted = cbx("card", "delete", "aaaa", "aaaa-1", "--yes", "-o", "json").json()
        assert deleted == {"deleted_card_ids": ["aaaa-1"], "dry_run": False}
        assert lines(cbx("card", "list", "-o", "id")) == []
        assert cbx("box", "show", box, "-o", "json").json()["missing_card_ids"] == ["aaaa-1"]

    def test_deletion_without_a_terminal_requires_yes(self, cbx: Cbx, add: Add) -> None:
        add("x", "--id", "aaaa-1")
        result = cbx("card", "delete", "aaaa-1")
        assert (result.code, result.out) == (2, "")
        assert result.err == (
            "error: Delete 1 card (aaaa-1)? Cannot ask for confirmation without a terminal\n"
            "hint: pass --yes\n"
        )
        assert lines(cbx("card", "list", "-o", "id")) == ["aaaa-1"]

    def test_a_dry_run_deletes_nothing(self, cbx: Cbx, add: Add) -> None:
        add("x", "--id", "aaaa-1")
        assert succeed(cbx("card", "delete", "aaaa", "--dry-run")) == "would delete aaaa-1\n"
        assert lines(cbx("card", "list", "-o", "id")) == ["aaaa-1"]

    def test_an_unknown_card_stops_the_whole_deletion(self, cbx: Cbx, add: Add) -> None:
        add("x", "--id", "aaaa-1")
        assert refusal(cbx("card", "delete", "aaaa-1", "nope-1", "--yes")) == (
            3,
            "no card 'nope-1' in project 'p'",
        )
        assert lines(cbx("card", "list", "-o", "id")) == ["aaaa-1"]

    def test_deletion_on_a_terminal_asks_for_confirmation(self, cbx: Cbx, add: Add, shell: Shell) -> None:
        add("x", "--id", "aaaa-1")
        for typed in ("n\n", "\n", "\x04"):
            refused = shell.on_terminal("card", "delete", "aaaa-1", typed=typed)
            assert "Delete 1 card (aaaa-1)? [y/N]:" in refused.out
            assert refused.code == 130
            assert lines(cbx("card", "list", "-o", "id")) == ["aaaa-1"]
        assert shell.on_terminal("card", "delete", "aaaa-1", typed="y\n").out.endswith("deleted aaaa-1\n")
        assert lines(cbx("card", "list", "-o", "id")) == []


class TestImportAndExport:
    CHAT: tuple[dict[str, Any], ...] = (
        {"role": "user", "content": "How much?"},
        {"role": "assistant", "content": None, "refusal": "no", "extra": {"n": [1, None]}},
    )

    def test_an_imported_conversation_is_exported_unchanged(
        self, cbx: Cbx, feed: Feed, tmp_path: Path
    ) -> None:
        feed(json.dumps({"id": "chat-1", "messages": self.CHAT}))
        result = cbx("card", "import", "-", "--from", "openai", "-o", "id")
        [box] = lines(result)
        assert result.err == "1 conversation, 2 cards, 2 new\n"
        exported = json.loads(succeed(cbx("card", "export", "--box", box[-8:])))
        assert exported == {"messages": list(self.CHAT)}
        assert cbx("card", "export", "--box", box, "--out", str(tmp_path / "chat.json")).out == ""
        assert json.loads((tmp_path / "chat.json").read_text()) == exported

    def test_a_second_import_adds_only_the_new_messages(self, cbx: Cbx, feed: Feed) -> None:
        def imported(*messages: dict[str, Any]) -> dict[str, Any]:
            feed(json.dumps({"id": "chat-1", "title": "T", "messages": messages}))
            [box] = cbx("card", "import", "-", "-o", "json").json()["boxes"]
            return dict(box)

        first = imported(*self.CHAT)
        told = {"box_id": first["box_id"], "title": "T", "cards": 2, "new_cards": 2}
        assert first == {"index": 0, "place": "standard input", **told}
        assert imported(*self.CHAT) == {**first, "new_cards": 0}
        more = {"role": "user", "content": "And now?"}
        assert imported(*self.CHAT, more) == {**first, "cards": 3, "new_cards": 1}
        changed = imported(more, *self.CHAT)
        assert changed["box_id"] != first["box_id"]
        shown = cbx("box", "show", changed["box_id"], "-o", "json").json()
        assert shown["parent_ids"] == [first["box_id"]]

    def test_the_at_option_names_the_key_of_the_messages(self, cbx: Cbx, feed: Feed) -> None:
        two = {
            "messages": [{"role": "user", "content": "a"}],
            "request": {"body": {"messages": [*self.CHAT]}},
        }
        feed(json.dumps(two))
        [box] = cbx("card", "import", "-", "--at", "request.body.messages", "-o", "json").json()["boxes"]
        assert box["cards"] == 2

    def test_unreadable_and_unwritable_files_are_named_in_the_error(
        self, cbx: Cbx, box_of: Callable[..., str], tmp_path: Path
    ) -> None:
        absent = str(tmp_path / "absent" / "chat.json")
        assert refusal(cbx("card", "import", absent)) == (3, f"no file {absent!r}")
        written = cbx("card", "export", "--box", box_of(), "--out", absent)
        assert refusal(written) == (4, f"cannot write {absent!r}: No such file or directory")

    def test_unknown_formats_are_refused(self, offline: Cbx) -> None:
        assert refusal(offline("card", "import", "x", "--from", "nix")) == (
            2,
            "--from: unknown format 'nix'",
        )
        assert refusal(offline("card", "export", "--box", "x", "--to", "nix")) == (
            2,
            "--to: unknown format 'nix'",
        )

    def test_a_missing_card_is_omitted_from_an_export_with_a_warning(
        self, cbx: Cbx, add: Add, box_of: Add
    ) -> None:
        box = box_of(add("here"), "gone-1")
        result = cbx("card", "export", "--box", box)
        assert json.loads(succeed(result)) == {"messages": [{"role": "user", "content": "here"}]}
        assert result.err == "warning: card gone-1 is gone and was left out\n"
