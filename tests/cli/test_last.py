"""`@last`: what this person's command lines made, and nothing else."""

import json
import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from tests.cli.conftest import Shell, lines, succeed
from tests.conftest import Cbx

CHAT = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "world"}]
RECIPE = "context_packing_config: {pack_arguments: [{arg_key: question}]}\ntarget_profile_config: {profile_name: clerk}\n"


def the_id(cbx: Cbx, *command: str) -> str:
    [found] = lines(cbx(*command, "-o", "id"))
    return found


def last_card(cbx: Cbx) -> str:
    return the_id(cbx, "card", "show", "@last")


def last_box(cbx: Cbx) -> str:
    return the_id(cbx, "box", "show", "@last")


class TestWhatMakesIt:
    def test_an_added_card_is_the_last_card(self, cbx: Cbx, add: Callable[..., str]) -> None:
        for text in ("one", "two"):
            assert add(text) == last_card(cbx)

    def test_the_last_of_several_cards_is_the_last_in_the_input(
        self, cbx: Cbx, feed: Callable[[str], None]
    ) -> None:
        cards = [
            {"card_id": card_id, "type": "x", "content": {"__type__": "TextContent", "text": "t"}}
            for card_id in ("z", "a")
        ]
        feed("\n".join(map(json.dumps, cards)))
        succeed(cbx("card", "add", "--card", "-"))
        assert last_card(cbx) == "a"

    def test_an_unchanged_card_is_also_the_last_card(self, cbx: Cbx, add: Callable[..., str]) -> None:
        add("one", "--id", "card-1")
        add("two", "--id", "card-2")
        add("one", "--id", "card-1")
        assert last_card(cbx) == "card-1"

    def test_a_new_box_or_fork_is_the_last_box(self, cbx: Cbx) -> None:
        made = the_id(cbx, "box", "create")
        assert last_box(cbx) == made
        forked = the_id(cbx, "box", "fork", "@last")
        assert last_box(cbx) == forked != made

    def test_the_last_box_and_card_of_an_import_are_remembered(
        self, cbx: Cbx, feed: Callable[[str], None]
    ) -> None:
        feed(json.dumps([{"messages": CHAT}, {"messages": CHAT[:1]}]))
        boxes = lines(cbx("card", "import", "-", "-o", "id"))
        assert last_box(cbx) == boxes[-1]
        assert [last_card(cbx)] == cbx("box", "show", boxes[-1], "-o", "json").json()["card_ids"]

    def test_the_box_of_a_pack_is_the_last_box_and_that_of_a_profile_is_not(
        self, cbx: Cbx, tmp_path: Path
    ) -> None:
        (tmp_path / "clerk.yaml").write_text("name: clerk\nsystem_prompt: You are a clerk.\n")
        (tmp_path / "ask.yaml").write_text(RECIPE)
        made = the_id(cbx, "box", "create")
        assert the_id(cbx, "profile", "import", str(tmp_path / "clerk.yaml")) != made
        assert last_box(cbx) == made
        assert cbx("card", "show", "@last", "-o", "json").json()["type"] == "sys.profile"
        pack = ("pack", "-H", str(tmp_path / "ask.yaml"), "-a", "question=Why?")
        packed = the_id(cbx, *pack)
        assert last_box(cbx) == packed
        assert "Why?" in succeed(cbx("card", "show", "@last"))
        succeed(cbx(*pack, "--dry-run"))
        assert last_box(cbx) == packed

    def test_unwritten_items_do_not_change_last(self, cbx: Cbx, add: Callable[..., str]) -> None:
        card = add("one", "--id", "card-1")
        box = the_id(cbx, "box", "create", card)
        assert cbx("card", "add", "--type", "x", "--text", "two", "--id", "card-1").code == 5
        succeed(cbx("card", "add", "--type", "x", "--text", "three", "--dry-run"))
        assert cbx("box", "create", "no-such-card").code == 3
        assert (last_card(cbx), last_box(cbx)) == (card, box)

    def test_items_of_others_do_not_change_last(
        self, cbx: Cbx, cards: CardStore, boxes: BoxStore, add: Callable[..., str]
    ) -> None:
        card, box = add("one"), the_id(cbx, "box", "create")
        boxes.create([], title="of another")
        assert (last_card(cbx), last_box(cbx)) == (card, box)


class TestWhatIsWaitedFor:
    """A turn is `@last`, and named on stderr, from when it is dispatched, whatever comes of the wait."""

    @pytest.fixture
    def ask(self, cbx: Cbx, add: Callable[..., str], tmp_path: Path) -> tuple[str, ...]:
        """A command line that asks for the same turn each time, and waits."""
        (tmp_path / "clerk.yaml").write_text("name: clerk\nsystem_prompt: You are a clerk.\n")
        succeed(cbx("profile", "import", str(tmp_path / "clerk.yaml")))
        succeed(cbx("agent", "provision", "clerk", "--profile", "clerk"))
        box = the_id(cbx, "box", "create", add("Find it", "--type", "task.instruction"))
        return ("dispatch", "--agent", "clerk", "-c", box, "--correlation-id", "once", "--wait")

    def test_a_turn_is_remembered_if_the_wait_times_out_or_fails(
        self, cbx: Cbx, ask: tuple[str, ...]
    ) -> None:
        waited = cbx(*ask, "--timeout", "0", "-o", "id")
        turn = the_id(cbx, "turn", "show", "@last")
        assert (waited.code, waited.out) == (124, "")
        assert waited.err.splitlines()[0] == f"turn {turn}: dispatched, epoch 1"
        succeed(cbx("box", "create"))
        succeed(cbx("worker", "run", "--exec", "cat >/dev/null; exit 1", "--drain"))
        failed = cbx(*ask, "-o", "json")
        assert (failed.code, failed.json()["agent_turn_id"]) == (8, turn)
        assert failed.err.startswith(f"turn {turn}: ")
        assert the_id(cbx, "turn", "show", "@last") == turn

    def test_a_turn_is_remembered_if_the_wait_is_interrupted(
        self, cbx: Cbx, ask: tuple[str, ...], shell: Shell
    ) -> None:
        with shell.started(*ask) as process:
            told = process.stderr.readline().decode()
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate()
        assert (process.returncode, out) == (130, b"")
        assert told == f"turn {the_id(cbx, 'turn', 'show', '@last')}: dispatched, epoch 1\n"


class TestWhereItStands:
    def test_last_is_accepted_wherever_an_id_is_accepted(self, cbx: Cbx, add: Callable[..., str]) -> None:
        card = add("Hello, box")
        box = the_id(cbx, "box", "create", "@last")
        assert the_id(cbx, "box", "append", "@last", "@last") == box
        assert cbx("box", "show", "@last", "-o", "json").json()["card_ids"] == [card, card]
        assert the_id(cbx, "box", "replace", "@last", "@last") == box
        assert "Hello, box" in succeed(cbx("render", "--box", "@last"))
        assert "Hello, box" in succeed(cbx("card", "export", "--box", "@last"))
        assert "nothing found" in succeed(cbx("box", "verify", "@last"))
        child = the_id(cbx, "box", "create", "--parent", "@last")
        assert cbx("box", "show", "@last", box, "-o", "json").json()["boxes"][0]["parent_ids"] == [box]
        assert last_box(cbx) == child
        assert the_id(cbx, "box", "delete", "@last", "--yes") == child
        assert the_id(cbx, "card", "delete", "@last", "--yes") == card

    def test_last_is_accepted_in_box_arguments_of_a_recipe(
        self, cbx: Cbx, tmp_path: Path, add: Callable[..., str]
    ) -> None:
        (tmp_path / "clerk.yaml").write_text("name: clerk\n")
        succeed(cbx("profile", "import", str(tmp_path / "clerk.yaml")))
        (tmp_path / "ask.yaml").write_text(
            "target_profile_config: {profile_name: clerk}\n"
            "context_packing_config: {inherit_context: {include_boxes_from_args: [history]}}\n"
        )
        add("Refund me.")
        made = the_id(cbx, "box", "create", "@last")
        packed = cbx("pack", "-H", str(tmp_path / "ask.yaml"), "-a", "history=@last", "-o", "json").json()
        assert packed["parent_ids"] == [made]


class TestNothingRemembered:
    @pytest.mark.parametrize(
        ("command", "noun"),
        [
            (("card", "show", "@last"), "card"),
            (("card", "show", "@last", "other"), "card"),
            (("box", "show", "@last"), "box"),
            (("box", "show", "other", "@last"), "box"),
            (("box", "create", "@last", "--allow-dangling"), "card"),
            (("render", "--box", "@last"), "box"),
        ],
        ids=" ".join,
    )
    def test_an_unset_last_is_an_error(self, command: tuple[str, ...], noun: str, cbx: Cbx) -> None:
        result = cbx(*command)
        assert (result.code, result.out, result.err) == (
            3,
            "",
            f"error: '@last' is not set: your commands have not created a {noun} in project 'p'\n"
            f"hint: list the newest ids with `cbx {noun} list`\n",
        )

    def test_each_project_has_its_own_last(self, cbx: Cbx) -> None:
        mine = the_id(cbx, "box", "create")
        assert cbx("-p", "other", "box", "show", "@last").code == 3
        other = the_id(cbx, "-p", "other", "box", "create")
        assert last_box(cbx) == mine
        assert the_id(cbx, "-p", "other", "box", "show", "@last") == other

    def test_each_database_has_its_own_last(
        self, cbx: Cbx, databases: "object", empty_target: Target
    ) -> None:
        the_id(cbx, "box", "create")
        elsewhere = ("--database-url", empty_target.conninfo or "")
        succeed(cbx("db", "init", "--yes", *elsewhere))
        assert cbx("box", "show", "@last", *elsewhere).code == 3

    def test_a_deleted_last_is_not_found(self, cbx: Cbx, database: Database, add: Callable[..., str]) -> None:
        card, box = add("one", "--id", "card-1"), the_id(cbx, "box", "create")
        add("another", "--id", "card-10")
        add("one", "--id", "card-1")
        database.connection.execute("DELETE FROM cards WHERE card_id = 'card-1'; DELETE FROM card_boxes")
        gone = cbx("card", "show", "@last")
        assert (gone.code, gone.err.splitlines()[0]) == (3, f"error: no card {card!r} in project 'p'")
        gone = cbx("box", "show", "@last")
        assert (gone.code, gone.err.splitlines()[0]) == (3, f"error: no box {box!r} in project 'p'")


class TestTheFile:
    def test_the_file_is_private_and_contains_no_secret(
        self, shell: Shell, target: Target, home: Path
    ) -> None:
        url = f"{target.conninfo} password=hunter2"
        succeed(shell.run("box", "create", CBX_DATABASE_URL=url))
        assert "hunter2" not in (home / "last.json").read_text()
        assert stat.S_IMODE((home / "last.json").stat().st_mode) == 0o600
        assert [each.name for each in home.iterdir()] == ["last.json"]

    def test_a_shell_line_uses_the_last_of_the_line_before(self, shell: Shell) -> None:
        made, shown = succeed(
            shell.run("shell", "-o", "id", stdin=b"box create\nbox show @last\n")
        ).splitlines()
        assert made == shown

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "{",
            "[1]",
            '{"a": 1}',
            '[{"database": 1, "card": 2}]',
            pytest.param("[" * 100_000, id="too deep to be read"),
            pytest.param('[{"card": ' + "[" * 900 + "]" * 900 + "}]", id="too deep to be written"),
            pytest.param(f"[{'9' * 5000}]", id="a number of very many digits"),
            r'[{"database": "\ud800"}]',
        ],
    )
    def test_a_broken_file_counts_as_empty(self, text: str, cbx: Cbx, home: Path) -> None:
        home.mkdir(0o700)
        (home / "last.json").write_text(text)
        assert cbx("box", "show", "@last").code == 3
        box = the_id(cbx, "box", "create")
        assert last_box(cbx) == box

    def test_a_named_pipe_as_the_file_is_ignored(self, cbx: Cbx, home: Path) -> None:
        home.mkdir(0o700)
        os.mkfifo(home / "last.json")
        assert cbx("box", "show", "@last").code == 3
        box = the_id(cbx, "box", "create")
        assert last_box(cbx) == box

    def test_a_file_that_others_could_write_is_ignored(self, cbx: Cbx, home: Path) -> None:
        the_id(cbx, "box", "create")
        last = home / "last.json"
        before = last.stat()
        home.chmod(0o777)
        assert cbx("box", "show", "@last").code == 3
        assert cbx("box", "create").err == ""
        assert last.stat() == before
        home.chmod(0o700)
        last.rename(home / "elsewhere")
        last.symlink_to("elsewhere")
        box = the_id(cbx, "box", "create")
        assert last_box(cbx) == box
        assert not last.is_symlink()

    def test_a_command_succeeds_if_the_file_cannot_be_written(self, cbx: Cbx, home: Path) -> None:
        home.write_text("a file, no folder")
        assert cbx("box", "create").err == ""
        assert cbx("box", "show", "@last").code == 3

    def test_the_oldest_entries_are_dropped(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from cardbox_cli.cli import last_ids as last

        monkeypatch.setenv("CBX_HOME", str(home))
        for number in range(last.REMEMBERED + 5):
            last.remember("somewhere", f"project {number}", {"box": f"box {number}"})
        assert len(json.loads((home / "last.json").read_text())) == last.REMEMBERED
        assert last.recall("somewhere", f"project {number}", "box") == f"box {number}"
