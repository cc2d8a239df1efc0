"""cbx among other processes: in pipes of a real shell, before readers that go away, under Ctrl-C."""

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import psycopg
import pytest

from cardbox_cli.model.cards import draft_card
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from tests.cli.conftest import PATIENCE, Shell, lines, succeed
from tests.conftest import Cbx

# More than a pipe holds.
MUCH = 300_000


@pytest.fixture
def long_box(cards: CardStore, boxes: BoxStore) -> str:
    """A box that prints far more than a pipe holds, in every format."""
    drafts = [draft_card("task.instruction", f"{number} " + "word " * 60) for number in range(1500)]
    cards.add_many(drafts)
    return boxes.create([draft.card_id for draft in drafts]).box_id


class TestPipes:
    def test_the_id_of_a_packed_box_can_be_piped_to_show(self, shell: Shell) -> None:
        (shell.folder / "clerk.yaml").write_text("name: clerk\n")
        succeed(shell.run("profile", "import", "clerk.yaml"))
        packing = "cbx pack --handover delegate --arg profile_name=clerk --arg instruction='Go, clerk'"
        shown = json.loads(succeed(shell.line(f"{packing} -o id | xargs cbx box show -o json")))
        assert [card["type"] for card in shown["cards"]] == ["task.instruction", "meta.parent_pointer"]
        assert shown["cards"][0]["content"]["text"] == "Go, clerk"

    def test_listed_ids_can_be_piped_to_box_create(
        self, shell: Shell, cbx: Cbx, add: Callable[..., str]
    ) -> None:
        ids = [add(text) for text in ("one", "two")]
        made = shell.line(
            "cbx card list --type task.instruction -o id | cbx box create - --title both -o json"
        )
        assert json.loads(succeed(made))["card_ids"] == ids[::-1]

    def test_a_conversation_can_be_piped_through_import_and_export(self, shell: Shell) -> None:
        messages = [{"role": "user", "content": "grüße"}]
        (shell.folder / "chat.json").write_text(json.dumps(messages))
        through = shell.line("cat chat.json | cbx card import - -o id | xargs cbx card export --box")
        assert json.loads(succeed(through)) == {"messages": messages}

    @pytest.mark.parametrize("output", ["table", "json", "jsonl", "yaml"])
    def test_a_reader_that_exits_early_is_not_an_error(
        self, output: str, shell: Shell, long_box: str
    ) -> None:
        result = shell.line(f"cbx box show {long_box} --full -o {output} | head -1; echo ${{PIPESTATUS[0]}}")
        first, code = lines(result)
        assert (code, result.err) == ("141", "")
        assert first.startswith(
            {"table": "box ", "json": "{", "jsonl": '{"card_id"', "yaml": "box_id: "}[output]
        )

    def test_a_reader_that_never_reads_is_not_an_error(
        self, shell: Shell, box_of: Callable[..., str]
    ) -> None:
        box = box_of("dangling-1")
        for command, code in (("box list", 141), (f"box verify {box}", 8), ("--help", 141), ("nope", 2)):
            for streams in ("", "2>&1"):
                line = f"(sleep 0.1; cbx {command}) {streams} | true; echo ${{PIPESTATUS[0]}}"
                result = shell.line(line)
                assert int(result.out) == code, command
                assert "Traceback" not in result.err
                assert "Broken pipe" not in result.err

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
    def test_a_full_disk_is_reported_as_an_error(self, shell: Shell, long_box: str) -> None:
        for output in ("table", "jsonl"):
            result = shell.line(f"cbx box show {long_box} -o {output} > /dev/full")
            assert result.code == 4
            assert "cannot write the output: No space left on device" in result.err
            assert "free some space, or redirect the output" in result.err
            assert "bug" not in result.err
            told = shell.line(f"cbx card export --box {long_box} --out /dev/full")
            assert told.code == result.code


class TestClosedStreams:
    @pytest.mark.parametrize(
        "command",
        [
            "card import -",
            "card add --type x --file -",
            "shell -",
            "shell",
            "handover validate -",
            "box create -",
        ],
    )
    def test_a_closed_standard_input_is_reported(self, command: str, shell: Shell) -> None:
        result = shell.line(f"cbx {command} <&-")
        assert (result.code, result.out, result.err) == (
            2,
            "",
            "error: standard input is closed\nhint: redirect a file to it, or pass the path\n",
        )

    def test_a_closed_input_does_not_stop_commands_that_read_nothing(
        self, shell: Shell, box_of: Callable[..., str]
    ) -> None:
        box = box_of()
        assert lines(shell.line("cbx box list -o id <&-")) == [box]
        asked = shell.line(f"cbx box delete {box} <&-")
        assert (asked.code, asked.err.splitlines()[-1]) == (
            2,
            "hint: pass --yes",
        )

    @pytest.mark.parametrize("command", ["box list", "box list -o yaml", "--help", "box create"])
    def test_a_closed_output_is_reported(
        self, command: str, shell: Shell, box_of: Callable[..., str]
    ) -> None:
        box_of()
        result = shell.line(f"cbx {command} >&-")
        assert (result.code, result.out, result.err) == (
            4,
            "",
            "error: cannot write the output: Bad file descriptor\n"
            "hint: standard output is closed or read-only: redirect it\n",
        )

    def test_messages_to_a_closed_stderr_are_lost(self, shell: Shell, box_of: Callable[..., str]) -> None:
        box = box_of()
        assert lines(shell.line("cbx box list -o id 2>&-")) == [box]
        missing = shell.line("cbx box show none 2>&-")
        assert (missing.code, missing.out) == (3, "")
        assert shell.line("cbx box list <&- >&- 2>&-").code == 4


class TestCtrlC:
    def test_ctrl_c_stops_a_command_that_reads_standard_input(self, shell: Shell) -> None:
        with shell.started("card", "import", "-") as process:
            assert process.stdin is not None
            process.stdin.write(b" " * MUCH)  # returns when the process has begun to read
            wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_SLEEPING)
            said = "\ninterrupted: nothing was imported; run the same command again\n"
            assert interrupted(process) == (130, "", said)

    def test_ctrl_c_stops_a_command_that_waits_for_a_lock(
        self, shell: Shell, cbx: Cbx, box_of: Callable[..., str], database: Database, target: Target
    ) -> None:
        box = box_of()
        with psycopg.connect(target.conninfo or "") as other:
            other.execute("SELECT FROM card_boxes FOR UPDATE")
            with shell.started("box", "append", box, "x-1", "--allow-dangling") as process:
                wait_until(lambda: waiting_for_a_lock(database) == 1)
                assert interrupted(process) == (130, "", "\ninterrupted\n")
            wait_until(lambda: waiting_for_a_lock(database) == 0)
        assert cbx("box", "show", box, "-o", "json").json()["card_ids"] == []


def interrupted(process: "subprocess.Popen[bytes]") -> tuple[int, str, str]:
    """Press Ctrl-C: the exit code, stdout and stderr of the process, whose standard input stays open."""
    process.send_signal(signal.SIGINT)
    code = process.wait(PATIENCE)
    assert process.stdout is not None
    assert process.stderr is not None
    return code, process.stdout.read().decode(), process.stderr.read().decode()


def waiting_for_a_lock(database: Database) -> int:
    """How many sessions of the database wait for a lock."""
    [(count,)] = database.connection.execute(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    ).fetchall()
    return int(count)


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait until it holds three times in a row, patiently."""
    deadline = time.monotonic() + PATIENCE
    times = 0
    while times < 3:
        assert time.monotonic() < deadline, "it never came to that"
        times = times + 1 if holds() else 0
        time.sleep(0.02)


class TestTheEndOfAProcess:
    """A process is ended before the interpreter takes down what it holds; what others left for its end is done."""

    @pytest.mark.parametrize(
        "left",
        [
            "atexit.register(print, 'the last words')",
            "weakref.finalize(kept, print, 'the last words')",
            "threading.Thread(target=lambda: [threading.main_thread().join(), print('the last words')]).start()",
        ],
    )
    def test_exit_handlers_and_threads_finish_before_the_exit(self, shell: Shell, left: str) -> None:
        code = (
            "import atexit, sys, threading, weakref\n"
            "class Kept: pass\n"
            "kept = Kept()\n"
            f"{left}\n"
            "from cardbox_cli.entry import script; sys.argv[1:] = ['--version']; script()"
        )
        told = succeed(shell.python(code))
        assert told.startswith("cbx ")
        assert told.endswith("\nthe last words\n")
