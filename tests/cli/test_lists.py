"""What lists share: relative times, the word on what the limit cut off, and columns that are asked for."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cardbox_cli.cli.commands.card import card_views
from cardbox_cli.cli.terminal.list_columns import BOX_COLUMNS, CARD_COLUMNS, PROFILE_COLUMNS, place_columns
from cardbox_cli.cli.terminal.table_layout import Columns, pick_columns
from cardbox_cli.store.connection.database import Database
from tests.cli.conftest import lines, succeed
from tests.conftest import PROJECT, Cbx


def refusal(cbx: Cbx, *command: str) -> tuple[int, str, list[str]]:
    result = cbx(*command)
    return result.code, result.out, result.err.splitlines()


def shift_clock(database: Database, offset: str) -> None:
    """From the next connection on, the database's clock is ahead by `offset`."""
    name = database.connection.info.dbname
    database.connection.execute(f"ALTER DATABASE {name} SET cbx.clock_offset = '{offset}'")


class TestRelativeTimes:
    def test_relative_times_use_the_clock_of_the_database(
        self, cbx: Cbx, database: Database, add: Callable[..., str], box_of: Callable[..., str]
    ) -> None:
        card, box = add("then"), box_of()
        shift_clock(database, "2 hours")
        later_card, later_box = add("now"), box_of()
        for noun, then, now in (("card", card, later_card), ("box", box, later_box)):
            listed = (noun, "list", "-o", "id")
            assert lines(cbx(*listed, "--since", "1h")) == [now]
            assert lines(cbx(*listed, "--since", "119m")) == [now]
            assert lines(cbx(*listed, "--until", "60m")) == [then]
            assert lines(cbx(*listed, "--since", "3h", "--until", "3600s")) == [then]
            assert lines(cbx(*listed, "--since", "1d")) == [now, then]
            assert lines(cbx(*listed, "--since", "1w")) == [now, then]
            assert lines(cbx(*listed, "--until", "1w")) == []

    def test_box_lists_accept_calendar_dates(self, cbx: Cbx, box_of: Callable[..., str]) -> None:
        box = box_of()
        assert lines(cbx("box", "list", "-o", "id", "--since", "2020-01-01")) == [box]
        none = cbx("box", "list", "--until", "2020-01-01")
        assert (none.code, none.out, none.err) == (0, "", "no such boxes in project 'p'\n")

    @pytest.mark.parametrize("noun", ["card", "box"])
    @pytest.mark.parametrize(
        ("typed", "message", "hint"),
        [
            ("1.5h", "'1.5h' is not a whole number of hours", "90m is one and a half hours"),
            (".5d", "'.5d' is not a whole number of days", "90m is one and a half hours"),
            ("1,5w", "'1,5w' is not a whole number of weeks", "90m is one and a half hours"),
            ("36501d", "'36501d' is more than 100 years", "omit the option to include all times"),
            ("9" * 5000 + "s", None, "omit the option to include all times"),
            *(
                (
                    text,
                    f"invalid time {text!r}",
                    "for example 2026-11-22T09:30:00Z, or 90m for 90 minutes ago",
                )
                for text in ("h", "2 h", "-2h", "2y", "2h ago", "٢h", "2H", "")
            ),
        ],
        ids=lambda text: str(text)[:20],
    )
    def test_invalid_times_are_refused(
        self, noun: str, typed: str, message: str | None, hint: str, offline: Cbx
    ) -> None:
        for option in ("--since", "--until"):
            code, out, told = refusal(offline, noun, "list", f"{option}={typed}")
            assert (code, out, told[1]) == (2, "", f"hint: {hint}")
            assert told[0] == f"error: {option}: {message or f'{typed!r} is more than 100 years'}"


class TestWhatTheLimitCutOff:
    @pytest.fixture(autouse=True)
    def shelf(self, database: Database) -> None:
        """52 cards, boxes and profiles."""
        execute = database.connection.execute
        execute(
            "INSERT INTO cards (tenant_id, card_id, content, metadata, created_at)"
            """ SELECT %s, 'card-' || n, '{"__type__": "TextContent", "text": "some words"}',"""
            """ '{"type": "x", "role": "user"}', now() - n * interval '1 min' FROM generate_series(1, 52) AS n""",
            [PROJECT],
        )
        execute(
            "INSERT INTO card_boxes (tenant_id, box_id, card_ids)"
            " SELECT %s, gen_random_uuid(), '[]' FROM generate_series(1, 52)",
            [PROJECT],
        )
        execute(
            "INSERT INTO resource.profiles (project_id, profile_box_id, name, worker_target)"
            " SELECT %s, gen_random_uuid(), 'n' || n, 't' FROM generate_series(1, 52) AS n",
            [PROJECT],
        )

    LISTS = (("card", "list"), ("card", "search", "words"), ("box", "list"), ("profile", "list"))

    @pytest.mark.parametrize("command", LISTS, ids=" ".join)
    def test_the_number_of_further_items_is_printed(self, command: tuple[str, ...], cbx: Cbx) -> None:
        for limit, said in ((0, ""), (50, "2"), (51, "1"), (52, ""), (53, "")):
            result = cbx(*command, "--limit", str(limit))
            assert len(lines(result)) == 1 + min(limit or 52, 52)
            assert result.err == (f"{said} more; --limit 0 shows all\n" if said else "")

    @pytest.mark.parametrize("command", LISTS, ids=" ".join)
    def test_programs_get_the_note_only_without_a_limit_option(
        self, command: tuple[str, ...], cbx: Cbx
    ) -> None:
        for output in ("json", "jsonl", "yaml", "id"):
            assert cbx(*command, "-o", output).err == "2 more; --limit 0 shows all\n"
            assert cbx(*command, "-o", output, "--limit", "50").err == ""

    def test_only_matching_items_are_counted(self, cbx: Cbx, add: Callable[..., str]) -> None:
        for number in range(3):
            add(f"other {number}", type="y.z")
        assert cbx("card", "list", "--type", "y.z", "-n", "1").err == "2 more; --limit 0 shows all\n"
        assert cbx("card", "search", "other", "-n", "2").err == "1 more; --limit 0 shows all\n"
        assert cbx("card", "list", "--type", "y.z", "-n", "3").err == ""
        succeed(cbx("card", "list", "--since", "10m", "-n", "0"))
        assert cbx("card", "list", "--since", "150s", "-n", "1").err == "4 more; --limit 0 shows all\n"

    def test_the_count_is_bounded(self, cbx: Cbx, database: Database) -> None:
        execute = database.connection.execute
        execute(
            "INSERT INTO cards (tenant_id, card_id, content, metadata, created_at)"
            """ SELECT %s, 'old-' || n, '{"__type__": "TextContent", "text": "old"}', '{"type": "old"}',"""
            " now() - interval '1 year' FROM generate_series(1, 10000) AS n",
            [PROJECT],
        )
        execute(
            "INSERT INTO card_boxes (tenant_id, box_id, card_ids, updated_at)"
            " SELECT %s, gen_random_uuid(), '[]', now() - interval '1 year' FROM generate_series(1, 10000)",
            [PROJECT],
        )
        assert cbx("card", "list").err == "10000+ more; --limit 0 shows all\n"
        assert cbx("card", "list", "-n", "52").err == "10000 more; --limit 0 shows all\n"
        assert cbx("box", "list").err == "1000+ more; --limit 0 shows all\n"
        assert cbx("box", "list", "-n", "9052").err == "1000 more; --limit 0 shows all\n"
        assert cbx("card", "list", "--type", "x").err == "2+ more; --limit 0 shows all\n"
        assert cbx("card", "search", "words", "-n", "50").err == "2+ more; --limit 0 shows all\n"
        assert cbx("card", "list", "--type", "x", "-n", "51").err == "1+ more; --limit 0 shows all\n"
        assert cbx("card", "search", "words", "-n", "52").err == "perhaps more; --limit 0 shows all\n"


class TestColumns:
    @pytest.fixture
    def card(self, add: Callable[..., str]) -> str:
        metadata = '{"agent_turn_id": "turn-1", "step_id": "step-1", "trace_id": "trace-1"}'
        return add("some words", "--author", "ann", "--metadata", metadata, "--tool-call-id", "call-1")

    def test_any_column_of_a_card_can_be_selected(self, card: str, cbx: Cbx) -> None:
        names = "full-id,author,TURN,Step,trace,call,tokens,preview"
        expected = [
            "FULL ID                           AUTHOR  TURN    STEP    TRACE    CALL    TOKENS  PREVIEW",
            f"{card}  ann     turn-1  step-1  trace-1  call-1      ~2  some words",
        ]
        for command in (("card", "list"), ("card", "search", "words")):
            shown = lines(cbx(*command, "--columns", names))
            assert [line.split() for line in shown] == [line.split() for line in expected]
        created = cbx("card", "show", card, "-o", "json").json()["created_at"]
        assert lines(cbx("card", "list", "--columns", "created"))[1] == f"{created[:19].replace('T', ' ')}Z"

    def test_any_column_of_a_box_can_be_selected(
        self, card: str, cbx: Cbx, box_of: Callable[..., str]
    ) -> None:
        box = box_of(card, "gone-card", title="a box")
        shown = lines(cbx("box", "show", box, "--columns", "preview,full id,#,rule,author"))
        assert [line.split() for line in shown[-3:]] == [
            ["PREVIEW", "FULL", "ID", "#", "RULE", "AUTHOR"],
            ["some", "words", card, "0", "unknown", "ann"],
            ["(dangling:", "no", "such", "card)", "gone-card", "1", "unknown", "-"],
        ]
        listed = lines(cbx("box", "list", "--columns", "TITLE,cards,full_id"))
        assert [line.split() for line in listed] == [["TITLE", "CARDS", "FULL", "ID"], ["a", "box", "2", box]]

    def test_any_column_of_a_profile_can_be_selected(self, cbx: Cbx, tmp_path: Path) -> None:
        (tmp_path / "clerk.yaml").write_text("name: clerk\nworker_target: desk\n")
        [box] = lines(cbx("profile", "import", str(tmp_path / "clerk.yaml"), "-o", "id"))
        listed = lines(cbx("profile", "list", "--columns", "worker-target,full id"))
        assert [line.split() for line in listed] == [["WORKER", "TARGET", "FULL", "ID"], ["desk", box]]

    KINDS = (
        (("card", "list"), CARD_COLUMNS),
        (("card", "search", "x"), (*CARD_COLUMNS, *pick_columns(card_views.SEARCH_COLUMNS, "BOX", "MATCH"))),
        (("box", "list"), BOX_COLUMNS),
        (("box", "show", "12345678"), place_columns()),
        (("profile", "list"), PROFILE_COLUMNS),
    )

    @pytest.mark.parametrize(
        ("command", "known"), KINDS, ids=["card list", "card search", "box list", "box show", "profile list"]
    )
    def test_unknown_columns_are_refused(
        self, command: tuple[str, ...], known: Columns, offline: Cbx
    ) -> None:
        names = ", ".join(column.name.lower().replace(" ", "-") for column in known)
        for option, typed, told in (
            ("--columns", "full-id,xyz", "'xyz'"),
            ("--columns", ",", "''"),
            ("--columns", "full-ic", "'full-ic'; did you mean 'full-id'?"),
            ("--sort", "full_ic:desc", "'full_ic'; did you mean 'full-id'?"),
        ):
            assert refusal(offline, *command, option, typed) == (
                2,
                "",
                [f"error: {option}: unknown column {told}", f"hint: columns are {names}"],
            )

    @pytest.mark.parametrize(
        ("command", "known"), KINDS, ids=["card list", "card search", "box list", "box show", "profile list"]
    )
    def test_columns_are_refused_with_other_output_formats(
        self, command: tuple[str, ...], known: Columns, offline: Cbx
    ) -> None:
        for output in ("yaml", "id"):
            assert refusal(offline, *command, "--columns", known[0].name, "-o", output) == (
                2,
                "",
                [
                    f"error: --columns and -o {output} cannot be combined",
                    "hint: select keys of -o json with jq, or print only ids with -o id",
                ],
            )

    def test_columns_and_full_cannot_be_combined(self, offline: Cbx) -> None:
        assert refusal(offline, "box", "show", "12345678", "--full", "--columns", "id") == (
            2,
            "",
            ["error: --full and --columns cannot be combined", "hint: remove one of them"],
        )

    def test_every_column_can_be_shown(self, card: str, cbx: Cbx, box_of: Callable[..., str]) -> None:
        box = box_of(card, "gone")
        for command, known in (self.KINDS[0], self.KINDS[2], (("box", "show", box), place_columns())):
            typed = [column.name for column in known]
            headers = [line.split() for line in lines(cbx(*command, "--columns", ",".join(typed)))]
            assert " ".join(typed).split() in headers, command
