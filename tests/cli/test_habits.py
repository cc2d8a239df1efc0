"""What people know from other programs: help, aliases, sorted lists, CSV, colours, and whatever is left out."""

import csv
import io
from collections.abc import Callable

import pytest

from cardbox_cli.store.connection.database import Database
from tests.cli.conftest import Shell, lines, succeed
from tests.cli.test_lists import shift_clock
from tests.conftest import Cbx


class TestHelp:
    @pytest.mark.parametrize("words", [(), ("box",), ("box", "list"), ("why",)], ids=" ".join)
    def test_the_help_command_prints_the_same_as_the_help_option(
        self, words: tuple[str, ...], offline: Cbx
    ) -> None:
        assert succeed(offline("help", *words)) == succeed(offline(*words, "--help"))

    def test_the_help_of_an_unknown_command_is_an_error(self, offline: Cbx) -> None:
        refused = offline("help", "bx")
        assert (refused.code, refused.out) == (2, "")
        assert refused.err.startswith("error: `cbx` has no command 'bx'; did you mean 'box'?\n")

    def test_a_short_option_prints_the_version(self, offline: Cbx) -> None:
        assert succeed(offline("-V")) == succeed(offline("--version"))

    def test_an_alias_is_in_the_help_and_runs_its_verb(self, cbx: Cbx, add: Callable[..., str]) -> None:
        assert "\nAlso: ls for list, rm for delete, get for show.\n" in succeed(cbx("card", "--help"))
        assert "\nAlso: ls for list, rm for remove, get for show.\n" in succeed(cbx("tool", "--help"))
        assert "Also" not in succeed(cbx("db", "--help"))
        card = add("some words")
        assert lines(cbx("card", "ls", "-o", "id")) == [card]
        assert succeed(cbx("card", "get", card)) == succeed(cbx("card", "show", card))
        assert "usage: cbx card list" in succeed(cbx("card", "ls", "--help")).lower()
        succeed(cbx("card", "rm", card, "--yes"))
        assert lines(cbx("card", "ls", "-o", "id")) == []
        refused = cbx("todo", "rm", "x")
        assert (refused.code, refused.err.splitlines()[0]) == (2, "error: `cbx todo` has no command 'rm'")

    def test_an_error_names_every_missing_parameter(self, offline: Cbx) -> None:
        for command, missing in (
            (("turn", "fail"), "argument 'TURN', option '--expect-epoch', option '--reason'"),
            (("turn", "fail", "x", "--reason", "r"), "option '--expect-epoch'"),
            (("agent", "provision"), "argument 'AGENT', option '--profile'"),
        ):
            refused = offline(*command)
            assert (refused.code, refused.out) == (2, "")
            assert refused.err.splitlines()[0] == f"error: Missing {missing}."


class TestLists:
    @pytest.fixture(autouse=True)
    def shelf(self, add: Callable[..., str], box_of: Callable[..., str]) -> list[str]:
        """Four cards of different lengths in a box; one of their ids is gone."""
        ids = [add("x" * size, "--author", f"a{size}", type=f"t.{size}") for size in (9, 1200, 100, 30)]
        box_of(*ids, "gone", title='a, "b"')
        return ids

    def test_lists_are_sorted_by_the_values_of_a_column(self, cbx: Cbx, shelf: list[str]) -> None:
        by_size = [shelf[0], shelf[3], shelf[2], shelf[1]]
        for sort, ids in (
            ("size", by_size),
            ("SIZE:asc", by_size),
            ("size:desc", by_size[::-1]),
            ("author", by_size),  # which is not shown
            ("type:desc", by_size[::-1]),
            ("age", shelf[::-1]),
            ("turn", shelf[::-1]),  # of no card
        ):
            assert lines(cbx("card", "list", "--sort", sort, "-o", "id")) == ids, sort
        listed = cbx("card", "list", "--sort", "size", "-o", "json").json()
        assert [card["card_id"] for card in listed] == by_size
        assert lines(cbx("card", "list", "--sort", "size", "--limit", "2", "-o", "id")) == [
            shelf[3],
            shelf[2],
        ]
        refused = cbx("card", "list", "--sort", "size:down")
        assert (refused.code, refused.err.splitlines()[0]) == (2, "error: --sort: invalid order 'down'")

    def test_the_cards_of_a_box_are_sorted(self, cbx: Cbx, shelf: list[str]) -> None:
        shown = ("box", "show", "@last", "--columns", "#,full-id")
        rows = [row.split() for row in lines(cbx(*shown, "--sort", "size:desc", "--no-header"))[-5:]]
        assert rows == [["1", shelf[1]], ["2", shelf[2]], ["3", shelf[3]], ["0", shelf[0]], ["4", "gone"]]
        assert cbx("box", "show", "@last", "--sort", "size", "-o", "json").code == 2

    def test_head_and_tail_show_the_first_and_last_cards_of_a_box(self, cbx: Cbx, shelf: list[str]) -> None:
        for options, ids in (
            (("--head", "2"), shelf[:2]),
            (("--head", "0"), []),
            (("--head", "9"), shelf),
            (("--tail", "2"), shelf[3:]),
            (("--tail", "9"), shelf),
        ):
            shown = cbx("box", "show", "@last", *options, "-o", "json").json()
            assert [card["card_id"] for card in shown["cards"]] == ids, options
            assert len(lines(cbx("box", "show", "@last", *options, "-o", "jsonl"))) == len(ids)
        assert cbx("box", "show", "@last", "--head", "1", "--tail", "1").code == 2

    def test_the_box_option_lists_the_cards_of_a_box(
        self, cbx: Cbx, add: Callable[..., str], shelf: list[str]
    ) -> None:
        other = add("in no box")
        assert lines(cbx("card", "list", "--box", "@last", "-o", "id")) == shelf[::-1]
        assert lines(cbx("card", "list", "--box", "@last", "--type", "t.9", "-o", "id")) == [shelf[0]]
        assert lines(cbx("card", "list", "--box", "@last", "-o", "id", "-n", "1")) == [shelf[3]]
        assert other in lines(cbx("card", "list", "-o", "id"))
        assert cbx("card", "list", "--box", "12345678").code == 3

    @pytest.mark.parametrize(("name", "delimiter"), [("csv", ","), ("tsv", "\t")])
    def test_csv_and_tsv_have_a_row_for_each_item(
        self, name: str, delimiter: str, cbx: Cbx, shelf: list[str]
    ) -> None:
        def rows(*command: str) -> list[list[str]]:
            text = succeed(cbx(*command, "-o", name))
            return list(csv.reader(io.StringIO(text), delimiter=delimiter))

        header, *cards = rows("card", "list")
        assert header[:5] == ["id", "full_id", "type", "role", "age"]
        assert [row[1] for row in cards] == shelf[::-1]
        assert all(len(row) == len(header) for row in cards)
        assert cards[0][header.index("turn")] == ""
        assert rows("card", "list", "--columns", "type,full-id", "--no-header", "-n", "1") == [
            ["t.30", shelf[3]]
        ]
        [header, box] = rows("box", "list")
        assert box[header.index("title")] == 'a, "b"'
        assert [row[0] for row in rows("box", "show", "@last")] == ["#", "0", "1", "2", "3", "4"]
        refused = cbx("card", "show", shelf[0], "-o", name)
        assert (refused.code, refused.out) == (2, "")
        assert refused.err.startswith(f"error: -o {name} works only for lists, such as `cbx card list`\n")

    def test_wide_shows_all_columns_and_no_header_omits_the_header(self, cbx: Cbx, shelf: list[str]) -> None:
        header, *rows = lines(cbx("card", "list", "-o", "wide"))
        assert "FULL ID" in header
        assert shelf[3] in rows[0]
        assert lines(cbx("card", "list", "--no-header")) == lines(cbx("card", "list"))[1:]

    def test_the_color_option_turns_colours_on_and_off(self, cbx: Cbx) -> None:
        assert "\x1b" not in succeed(cbx("card", "list"))
        assert lines(cbx("card", "list", "--color", "always"))[0].startswith("\x1b[1mID ")
        assert "\x1b" not in succeed(cbx("card", "list", "--color", "never"))


class TestWhatASearchShows:
    def test_a_search_shows_the_matching_text_and_its_box(
        self, cbx: Cbx, add: Callable[..., str], box_of: Callable[..., str]
    ) -> None:
        before = "this comes long before anything that matters, and it is not what is looked for; "
        card = add(f"{before}then the payment_timeout struck. 超时了")
        assert cbx("card", "search", "timeout", "-o", "json").json()[0]["box_id"] is None
        box = box_of(card)
        box_of(card)
        for query in ("timeout", "PAYMENT -refund", '"payment timeout"', "then or nothing", "超时"):
            [found] = cbx("card", "search", query, "-o", "json").json()
            assert (found["card_id"], found["box_id"]) == (card, box)
            assert found["match"].startswith("…")
            assert len(found["match"]) < 80
        [row] = lines(cbx("card", "search", "timeout", "--color", "always"))[1:]
        assert box[-8:] in row
        assert "payment_\x1b[31mtimeout\x1b[0m struck" in row
        assert lines(cbx("card", "search", "timeout", "--columns", "preview"))[1].startswith("this comes")


class TestKindsOfBoxes:
    def test_automatically_created_boxes_are_omitted_and_counted(
        self, cbx: Cbx, add: Callable[..., str], box_of: Callable[..., str], shell: Shell
    ) -> None:
        (shell.folder / "clerk.yaml").write_text(
            "name: clerk\nworker_target: desk\nsystem_prompt: Be brief.\n"
        )
        (shell.folder / "chat.json").write_text('[{"role": "user", "content": "Hello"}]')
        succeed(cbx("profile", "import", str(shell.folder / "clerk.yaml")))
        succeed(cbx("agent", "provision", "clerk", "--profile", "clerk"))
        [talk] = lines(cbx("card", "import", str(shell.folder / "chat.json"), "--from", "openai", "-o", "id"))
        plain, read = box_of(title="by hand"), box_of(add("Do it."))
        succeed(cbx("dispatch", "--agent", "clerk", "--context-box", read))
        succeed(cbx("worker", "run", "--target", "desk", "--exec", "cat >/dev/null; echo done", "--once"))

        listed = {box["box_id"]: box["kind"] for box in cbx("box", "list", "-o", "json").json()}
        assert [listed[box] for box in (talk, plain, read)] == ["conversation", None, "context"]
        others = {kind: box for box, kind in listed.items() if box not in (talk, plain, read)}
        assert sorted(others) == ["output", "profile", "request"]
        assert len(listed) == 6

        shown = cbx("box", "list", "-o", "id")
        assert set(lines(shown)) == {talk, plain, read, others["output"]}
        note = "1 profile box and 1 request box hidden; show them with --kind or -o json\n"
        assert (shown.err, cbx("box", "list").err) == (note, note)
        for kind, box in {**others, "conversation": talk, "context": read}.items():
            only = cbx("box", "list", "--kind", kind, "-o", "id")
            assert (lines(only), only.err) == ([box], ""), kind
        assert set(lines(cbx("box", "list", "--kind", "request", "--kind", "profile", "-o", "id"))) == {
            others["request"],
            others["profile"],
        }
        assert cbx("box", "list", "-n", "1").err.splitlines()[0] == "3 more; --limit 0 shows all"
        assert cbx("box", "list", "--kind", "requests").code == 2


class TestShownIds:
    def test_the_beginning_of_a_shown_id_is_enough(
        self, cbx: Cbx, add: Callable[..., str], box_of: Callable[..., str], shell: Shell
    ) -> None:
        (shell.folder / "clerk.yaml").write_text("name: clerk\n")
        succeed(cbx("profile", "import", str(shell.folder / "clerk.yaml")))
        succeed(cbx("agent", "provision", "clerk", "--profile", "clerk"))
        card, box = add("one"), box_of()
        [turn] = lines(cbx("dispatch", "--agent", "clerk", "--context-box", box, "-o", "id"))
        [row] = lines(cbx("inbox", "list", "-o", "id"))
        for show, full in (
            (("card", "show"), card),
            (("box", "show"), box),
            (("turn", "show"), turn),
            (("inbox", "show"), row),
        ):
            for length in (4, 5, 7, 8):
                found = cbx(*show, full[-8:][:length], "-o", "id")
                assert (found.out, found.err) == (f"{full}\n", "")
            assert cbx(*show, full[-8:][:3]).code == 3
            assert cbx(*show, full[-7:-2]).code == 3

    def test_a_short_id_with_several_matches_is_ambiguous(self, cbx: Cbx, add: Callable[..., str]) -> None:
        for card_id in ("one-4711aaaa", "two-4711bbbb", "4711-three", "four-4711"):
            add("x", "--id", card_id)
        refused = cbx("card", "show", "4711", "-o", "json")
        assert refused.code == 5
        assert refused.error["details"] == {
            "candidates": ["4711-three", "four-4711", "one-4711aaaa", "two-4711bbbb"]
        }
        assert lines(cbx("card", "show", "4711a", "-o", "id")) == ["one-4711aaaa"]


class TestWhatIsLeftOut:
    def test_an_omitted_turn_is_the_last_one(
        self, cbx: Cbx, add: Callable[..., str], box_of: Callable[..., str], shell: Shell
    ) -> None:
        for command in (("why",), ("turn", "show")):
            refused = cbx(*command)
            assert (refused.code, refused.out) == (3, "")
            assert refused.err.startswith(
                "error: '@last' is not set: your commands have not created a turn in project 'p'\n"
            )
        (shell.folder / "clerk.yaml").write_text("name: clerk\n")
        succeed(cbx("profile", "import", str(shell.folder / "clerk.yaml")))
        succeed(cbx("agent", "provision", "clerk", "--profile", "clerk"))
        [turn] = lines(cbx("dispatch", "--agent", "clerk", "--context-box", box_of(add("x")), "-o", "id"))
        assert lines(cbx("turn", "show", "-o", "id")) == [turn]
        assert cbx("why", "-o", "json").json()["turn"] == turn


class TestNarrowTerminals:
    COMMANDS = (
        ("card", "list"),
        ("card", "search", "words"),
        ("box", "list"),
        ("box", "show", "@last"),
        ("turn", "list"),
        ("turn", "show"),
        ("inbox", "list"),
        ("agent", "list"),
        ("profile", "list"),
        ("tool", "list"),
        ("handover", "list"),
        ("why",),
        ("why", "--all"),
    )

    def test_tables_fit_the_terminal_without_cutting_ids(
        self, cbx: Cbx, database: Database, add: Callable[..., str], box_of: Callable[..., str], shell: Shell
    ) -> None:
        (shell.folder / "clerk.yaml").write_text("name: clerk\nworker_target: a-target-of-some-length\n")
        succeed(cbx("profile", "import", str(shell.folder / "clerk.yaml")))
        succeed(
            cbx(
                "agent",
                "provision",
                "clerk-of-a-name-that-is-quite-long",
                "--profile",
                "clerk",
                "--tag",
                "a-tag",
            )
        )
        command = "python3 /opt/tools/lookup_order.py --database orders --verbose"
        described = ("--description", "字" * 60)
        succeed(cbx("tool", "add", "lookup-order", "--exec", command, *described))
        box = box_of(add("many words " * 30), title="many words " * 12)
        [turn] = lines(
            cbx("dispatch", "--agent", "clerk-of-a-name-that-is-quite-long", "--context-box", box, "-o", "id")
        )
        shift_clock(database, "5 minutes")
        fix = cbx("why", "--all", "-o", "json").json()[0]
        box_of(*cbx("box", "show", box, "-o", "json").json()["card_ids"], title="字" * 30)
        for columns in (80, 120):
            for words, shown in shell.all_on_terminal(self.COMMANDS, columns=columns, NO_COLOR="1"):
                prose = ("error:", "hint:", "digest", "next", "Work has been due")
                table = [line for line in shown.splitlines() if not line.startswith(prose)]
                wide = [line for line in table if width(line) > columns]
                assert wide == (
                    [] if words[-1] != "--all" else [row for row in wide if fix["next_actor"] in row]
                )
                if words == ("why", "--all"):
                    assert turn in shown
                    assert fix["next_actor"] in shown
                if words == ("tool", "list"):
                    assert shown.count("字") == 60
                    assert command in shown
                if words == ("turn", "list"):
                    assert ("EPOCH" in shown, "STATUS" in shown) == (columns == 120, True)
        [(_, wide)] = shell.all_on_terminal([("turn", "list", "-o", "wide")], columns=80)
        assert turn in wide

    def test_the_main_column_of_a_list_is_never_dropped(
        self, cbx: Cbx, add: Callable[..., str], box_of: Callable[..., str], shell: Shell
    ) -> None:
        box = box_of(add("many words " * 30))
        succeed(cbx("card", "delete", add("y"), "--yes"))
        [(_, why), (_, audit)] = shell.all_on_terminal(
            [("box", "show", box, "--why"), ("audit",)], columns=80, NO_COLOR="1"
        )
        assert "RULE" in why
        assert audit.splitlines()[0].split() == ["AGE", "ACTION", "AGENT", "TURN", "WHO", "REASON", "DETAIL"]


def width(line: str) -> int:
    """How many cells a line takes on a terminal."""
    return sum(2 if character >= "\u1100" else 1 for character in line if character != "…") + line.count("…")
