"""On a terminal: the pager, `--watch`, and that no card's text drives either."""

import json
import os
import re
import signal
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.connection.database import Database
from tests.cli.conftest import Shell, lines, succeed
from tests.cli.typist import Typist
from tests.conftest import Cbx

ON_TERMINAL = Callable[..., Typist]

HOSTILE = "A\x1b[2JB\x1b]0;owned\x07C\x1b]52;c;b3duZWQ=\x07D\x1b[10;10HE\x9b2JF\rG"
# What cbx and less themselves tell a terminal: bold, home, erasing to the end of the line and the screen.
OWN = re.compile(r"\x1b\[(?:0?m|1m|H|2K|K|J|m|27m|7m)|\r\n|\r|\x1b\[\?1[lh]|\x1b[=>]|\x07$")
SPELLED = r"A\\x1b\[2JB\\x1b\]0;owned\\x07C\\x1b\]52;c;b3duZWQ="
# How JSON and YAML write the same characters.
SPELLINGS = {"\\u00": "\\x", "\\e": "\\x1b", "\\a": "\\x07"}


@pytest.fixture
def on_terminal(shell: Shell) -> Iterator[ON_TERMINAL]:
    """Start `cbx` on a terminal of 40 rows and 120 columns. There is no pager but one that is named."""
    started: list[Typist] = []

    def start(*arguments: str, **variables: str | None) -> Typist:
        changed = {**shell.environment, **variables}
        environment: Mapping[str, str] = {name: value for name, value in changed.items() if value is not None}
        typist = Typist([sys.executable, "-m", "cardbox_cli", *arguments], environment, shell.folder)
        started.append(typist)
        return typist.__enter__()

    yield start
    for typist in started:
        typist.__exit__()


@pytest.fixture
def pager(shell: Shell) -> str:
    """A pager that says what it is, and prints what it gets."""
    program = shell.programs / "page"
    program.write_text('#!/bin/sh\necho "-- pager $* --"\ncat\necho "-- end --"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return "page"


@pytest.fixture
def long_card(add: Callable[..., str]) -> str:
    """A card that is longer than the terminal."""
    return add("\n".join(f"line {number}" for number in range(1, 101)))


class TestThePager:
    def test_the_pager_shows_long_answers(
        self, on_terminal: ON_TERMINAL, pager: str, long_card: str, box_of: Callable[..., str]
    ) -> None:
        box = box_of(*[long_card] * 60)
        commands = [
            ("card", "show", long_card),
            ("box", "show", box),
            ("box", "show", box, "--full"),
            ("render", "--box", box, "--format", "text"),
            ("card", "export", "--box", box, "--to", "openai"),
            ("handover", "schema"),
        ]
        for command in commands:
            typist = on_terminal(*command, CBX_PAGER=pager)
            assert typist.end() == 0
            shown = typist.seen.splitlines()
            assert (shown[0], shown[-1]) == ("-- pager  --", "-- end --"), command
            assert len(shown) > 40

    @pytest.mark.parametrize("text", ["x", "x\n" * 20, "x" * 120 * 20, "字" * 60 * 20], ids=len)
    def test_less_leaves_short_answers_on_the_terminal(
        self, text: str, on_terminal: ON_TERMINAL, add: Callable[..., str]
    ) -> None:
        card = add(text.rstrip())
        typist = on_terminal("card", "show", card, CBX_PAGER="less", LESS=None)
        assert typist.end() == 0
        assert typist.seen.splitlines()[0].split() == ["card", card]
        assert "\x1b[?1049h" not in typist.received
        assert "(END)" not in typist.seen

    def test_the_pager_does_not_start_without_output(self, on_terminal: ON_TERMINAL, pager: str) -> None:
        typist = on_terminal("card", "show", "12345678", CBX_PAGER=pager)
        assert typist.end() == 3
        assert "-- pager" not in typist.seen

    @pytest.mark.parametrize(
        "command", [("db", "status"), ("turn", "trace", "@last"), ("why", "@last")], ids=" ".join
    )
    def test_every_command_that_only_reads_uses_the_pager(
        self,
        command: tuple[str, ...],
        on_terminal: ON_TERMINAL,
        pager: str,
        cbx: Cbx,
        box_of: Callable[..., str],
        tmp_path: Path,
    ) -> None:
        (tmp_path / "clerk.yaml").write_text("name: clerk\n")
        succeed(cbx("profile", "import", str(tmp_path / "clerk.yaml")))
        succeed(cbx("agent", "provision", "clerk", "--profile", "clerk"))
        succeed(cbx("dispatch", "--agent", "clerk", "--context-box", box_of()))
        typist = on_terminal(*command, CBX_PAGER=pager)
        # No worker serves the agent, which is a finding of `why`.
        assert typist.end() == (8 if "why" in command else 0)
        assert typist.seen.startswith("-- pager")

    def test_the_pager_shows_notes_after_the_data(
        self, on_terminal: ON_TERMINAL, pager: str, box_of: Callable[..., str]
    ) -> None:
        for _ in range(45):
            box_of()
        typist = on_terminal("box", "list", "-n", "42", CBX_PAGER=pager)
        assert typist.end() == 0
        assert typist.seen.splitlines()[-2:] == ["3 more; --limit 0 shows all", "-- end --"]

    def test_the_pager_is_chosen_from_variables_in_order(
        self, on_terminal: ON_TERMINAL, pager: str, long_card: str
    ) -> None:
        def shown(**variables: str | None) -> str:
            typist = on_terminal("card", "show", long_card, **variables)
            assert typist.end() == 0
            return typist.seen.splitlines()[0]

        assert shown(CBX_PAGER=f"{pager} of 'our own'", PAGER="false") == "-- pager of our own --"
        assert shown(CBX_PAGER=None, PAGER=pager) == "-- pager  --"
        for variables in (
            {"CBX_PAGER": "", "PAGER": pager},
            {"CBX_PAGER": "cat", "PAGER": pager},
            {"CBX_PAGER": None, "PAGER": "cat"},
            {"CBX_PAGER": pager, "TERM": "dumb"},
        ):
            assert shown(**variables).startswith("card ")

    def test_the_pager_is_not_used_in_a_pipe(self, shell: Shell, long_card: str, pager: str) -> None:
        assert succeed(shell.run("card", "show", long_card, CBX_PAGER=pager)).startswith("card ")

    def test_less_gets_the_same_default_variables_as_in_git(
        self, on_terminal: ON_TERMINAL, shell: Shell, long_card: str
    ) -> None:
        program = shell.programs / "habits"
        program.write_text('#!/bin/sh\ncat >/dev/null\necho "LESS=$LESS LV=$LV"\n')
        program.chmod(0o755)
        for less, shown in ((None, "LESS=FRX LV=-c"), ("-S", "LESS=-S LV=-c")):
            typist = on_terminal("card", "show", long_card, CBX_PAGER="habits", LESS=less)
            assert typist.end() == 0
            assert typist.seen == shown + "\n"

    @pytest.mark.parametrize(
        "command", [("card", "list", "-n", "0"), ("card", "show", "{card}")], ids=" ".join
    )
    def test_quitting_the_pager_early_is_not_an_error(
        self, command: tuple[str, ...], on_terminal: ON_TERMINAL, long_card: str, shell: Shell
    ) -> None:
        if "list" in command:
            fill(shell, 1000)
        typist = on_terminal(*[word.format(card=long_card) for word in command], CBX_PAGER="less")
        typist.see("ID  .*TYPE" if "list" in command else "line 20")
        typist.press_until("q", r"(?s).*")
        assert typist.end() == 0
        assert re.search("error|warning|Traceback|Broken", typist.seen) is None

    def test_cbx_waits_until_a_slow_pager_has_read_everything(
        self, on_terminal: ON_TERMINAL, shell: Shell, tmp_path: Path
    ) -> None:
        fill(shell, 2000)
        read, program = tmp_path / "read", shell.programs / "slow"
        # A shell reads a character at a time, and less of a pipe than a command has written to it.
        program.write_text(f"#!/bin/sh\n{{ while read -r id; do echo $id; done; echo all; }} > {read}\n")
        program.chmod(0o755)
        typist = on_terminal("card", "list", "-n", "0", "-o", "id", CBX_PAGER="slow")
        assert typist.end() == 0
        assert read.read_text() == succeed(shell.run("card", "list", "-n", "0", "-o", "id")) + "all\n"

    def test_ctrl_c_does_not_end_the_pager(self, on_terminal: ON_TERMINAL, long_card: str) -> None:
        typist = on_terminal("card", "show", long_card, CBX_PAGER="less")
        typist.see("line 20")
        # less can go to the end only after cbx has closed the pipe. Before that, Ctrl-C interrupts cbx, too.
        typist.press_until("G", "line 100")
        typist.type("\x03")
        # The terminal may throw away what is typed just after a Ctrl-C.
        typist.press_until("g", "line 1\n")
        typist.type("q")
        assert typist.end() == 0
        assert "interrupted" not in typist.seen

    @pytest.mark.parametrize(
        ("pager", "reason"),
        [
            ("no-such-pager --x", "No such file or directory"),
            ("/", "Permission denied"),
            ("'", "No closing quotation"),
        ],
    )
    def test_a_pager_that_cannot_start_causes_one_warning(
        self, pager: str, reason: str, on_terminal: ON_TERMINAL, long_card: str
    ) -> None:
        # A folder of PATH that may not be entered would be the reason instead.
        typist = on_terminal("card", "show", long_card, CBX_PAGER=pager, PATH=os.defpath)
        assert typist.end() == 0
        assert typist.seen.count("warning") == 1
        assert f"warning: cannot start the pager {pager!r}: {reason}\ncard  " in typist.seen
        assert typist.seen.endswith("line 100\n")

    @pytest.mark.parametrize(
        ("script", "fate"),
        [
            ("exit 3", "exited with 3"),
            ("cat; exit 1", "exited with 1"),
            ("kill -TERM $$", "was killed by signal 15"),
        ],
    )
    def test_a_failed_pager_causes_a_warning_at_the_end(
        self, script: str, fate: str, on_terminal: ON_TERMINAL, long_card: str, shell: Shell
    ) -> None:
        program = shell.programs / "failing"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        typist = on_terminal("card", "show", long_card, CBX_PAGER="failing -x")
        assert typist.end() == 0
        assert typist.seen.splitlines()[-1] == (
            f"warning: the pager 'failing -x' {fate}; CBX_PAGER=cat shows the output without it"
        )

    def test_a_pager_ended_by_ctrl_c_is_not_an_error(
        self, on_terminal: ON_TERMINAL, long_card: str, shell: Shell
    ) -> None:
        program = shell.programs / "leaving"
        program.write_text("#!/bin/sh\nkill -INT $$\n")
        program.chmod(0o755)
        typist = on_terminal("card", "show", long_card, CBX_PAGER="leaving")
        assert (typist.end(), typist.seen) == (0, "")

    def test_an_error_is_printed_after_the_pager_ends(
        self, on_terminal: ON_TERMINAL, pager: str, box_of: Callable[..., str]
    ) -> None:
        box = box_of(*(f"gone-{number}" for number in range(60)))
        typist = on_terminal("box", "show", box, "--strict", CBX_PAGER=pager)
        assert typist.end() == 3
        assert typist.seen.splitlines()[-2:] == ["-- end --", "error: missing: 0 boxes and 60 cards"]

    def test_the_output_works_inside_cbx_shell(self, on_terminal: ON_TERMINAL, long_card: str) -> None:
        typist = on_terminal("shell", CBX_PAGER="less", INPUTRC="/dev/null")
        typist.see(r"cbx p> $")
        typist.type(f"card show {long_card}\r")
        typist.see("line 20")
        typist.type("q")
        typist.see(r"cbx p> $")
        typist.type("card show @last -o id\r")
        typist.see(rf"\n{long_card}\n.*cbx p> $")

    def test_the_demo_does_not_use_the_pager(self, on_terminal: ON_TERMINAL, pager: str) -> None:
        typist = on_terminal("demo", CBX_PAGER=pager)
        assert typist.end() == 0
        assert "-- pager" not in typist.seen
        assert "# Next: import your own conversation with `cbx card import YOUR-CHAT.json`," in typist.seen
        assert "is stuck: no-live-worker" in typist.seen
        assert "I read 17 messages." in typist.seen
        assert typist.seen.count("\n") <= 45


def fill(shell: Shell, number: int) -> None:
    """Many cards, by one command."""
    text = {"__type__": "TextContent", "text": "t"}
    cards = ({"card_id": f"card-{each:040}", "type": "x", "content": text} for each in range(number))
    succeed(shell.run("card", "add", "--card", "-", stdin="\n".join(map(json.dumps, cards)).encode()))


class TestWatchOnATerminal:
    def test_watch_shows_new_items(
        self, on_terminal: ON_TERMINAL, add: Callable[..., str], box_of: Callable[..., str], cbx: Cbx
    ) -> None:
        add("first words")
        box = box_of(title="first title")
        watches = {
            ("card", "list"): lambda: add("second words"),
            ("box", "show", box): lambda: cbx("box", "append", box, add("second words")),
            ("box", "list"): lambda: box_of(title="second words"),
        }
        for command, change in watches.items():
            typist = on_terminal(*command, "--watch", "--interval", "0.1")
            typist.see("first")
            change()
            typist.see("second words")
            typist.type("\x03")
            typist.see("interrupted\n")
            assert typist.end() == 130

    def test_watch_redraws_in_place(self, on_terminal: ON_TERMINAL, add: Callable[..., str]) -> None:
        add("some words")
        typist = on_terminal("card", "list", "-w", "--interval", "0.1")
        typist.see("some words(?s:.)*some words")
        first = typist.received.split("\x1b[J")[0]
        assert first.startswith("\x1b[H\x1b[2K\x1b[1mID ")
        assert first.count("\n") == 2

    def test_watch_fits_the_terminal_and_follows_its_size(
        self, on_terminal: ON_TERMINAL, add: Callable[..., str], box_of: Callable[..., str]
    ) -> None:
        ids = [add(f"card {number} " + "word " * 60) for number in range(20)]
        box = box_of(*ids)
        for command, whole, first, last in (
            (("card", "list"), "card 0 ", "ID ", "card 12 "),
            (("box", "show", box), "card 19 ", "11 ", "card 19 "),
        ):
            typist = on_terminal(*command, "-w", "--interval", "600")
            typist.see(rf"{whole}[^\n]*\n$")
            typist.resize(10, 90)
            os.kill(typist.process.pid, signal.SIGWINCH)
            typist.see(rf"{last}[^\n]*\n$")
            shown = typist.seen.splitlines()
            assert len(shown) == 9
            assert shown[0].startswith(first)
            assert {len(line) for line in shown[1:]} == {90}

    def test_a_lost_database_connection_ends_the_watch(
        self, on_terminal: ON_TERMINAL, database: Database, add: Callable[..., str]
    ) -> None:
        add("some words")
        typist = on_terminal("card", "list", "-w", "--interval", "0.1")
        typist.see("some words")
        end_others(database)
        assert typist.end() == 7
        typist.see(r"error: the connection to the database was lost")

    def test_watch_does_not_use_the_pager(self, on_terminal: ON_TERMINAL, pager: str, shell: Shell) -> None:
        fill(shell, 60)
        typist = on_terminal("card", "list", "-n", "0", "-w", "--interval", "0.1", CBX_PAGER=pager)
        typist.see("ID  (?s:.)*ID  ")
        assert "pager" not in typist.seen

    def test_a_dumb_terminal_gets_a_new_table_for_each_change(
        self, on_terminal: ON_TERMINAL, add: Callable[..., str]
    ) -> None:
        add("first words")
        typist = on_terminal("card", "list", "-w", "--interval", "0.1", TERM="dumb")
        typist.see("first words")
        add("second words")
        typist.see("second words(?s:.)*first words")
        assert "\x1b" not in typist.received
        assert typist.seen.count("ID  ") == 2

    def test_the_output_works_inside_cbx_shell(
        self, on_terminal: ON_TERMINAL, add: Callable[..., str]
    ) -> None:
        typist = on_terminal("shell", INPUTRC="/dev/null")
        typist.see(r"cbx p> $")
        add("first words")
        typist.type("card list -w --interval 0.1\r")
        typist.see("first words")
        add("second words")
        typist.see("second words")
        typist.type("\x03")
        typist.see(r"interrupted\n.*cbx p> $")
        typist.type("card list -o id --limit 0\r")
        typist.see(r"[0-9a-f]{32}\n[0-9a-f]{32}\n.*cbx p> $")


def end_others(database: Database) -> None:
    """End all other connections to this database."""
    database.connection.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


class TestWatchInAPipe:
    def test_watch_prints_the_json_again_when_it_changes(
        self, shell: Shell, boxes: BoxStore, add: Callable[..., str]
    ) -> None:
        card = add("some words")
        box = boxes.create([card])
        with shell.started("box", "show", box.box_id, "-w", "--interval", "0.1", "-o", "json") as process:
            assert process.stdout is not None
            decoder = json.JSONDecoder()
            text, answers = "", []
            while len(answers) < 2:
                text += process.stdout.readline().decode()
                if text.endswith("\n}\n"):
                    answers.append(decoder.decode(text))
                    text = ""
                    if len(answers) == 1:
                        boxes.append(box.box_id, [card])
        assert [len(answer["card_ids"]) for answer in answers] == [1, 2]

    @pytest.mark.parametrize("output", ["jsonl", "id"])
    def test_watch_prints_each_new_item_once_oldest_first(
        self, output: str, shell: Shell, add: Callable[..., str]
    ) -> None:
        ids = [add("one"), add("two")]
        with shell.started("card", "list", "-w", "--interval", "0.1", "-o", output) as process:
            assert process.stdout is not None
            read = [process.stdout.readline().decode().strip() for _ in ids]
            for text in ("three", "four"):
                ids.append(add(text))
                read.append(process.stdout.readline().decode().strip())
            process.send_signal(signal.SIGINT)
            rest, err = process.communicate()
        assert [json.loads(line)["card_id"] if output == "jsonl" else line for line in read] == ids
        assert (process.returncode, rest, err) == (130, b"", b"\ninterrupted\n")

    def test_watch_prints_each_position_of_a_box_once(
        self, shell: Shell, boxes: BoxStore, add: Callable[..., str]
    ) -> None:
        one, two = add("one"), add("two")
        box = boxes.create([one, one])
        with shell.started("box", "show", box.box_id, "-w", "--interval", "0.1", "-o", "jsonl") as process:
            assert process.stdout is not None
            read = [json.loads(process.stdout.readline()) for _ in range(2)]
            boxes.append(box.box_id, [two, one])
            read += [json.loads(process.stdout.readline()) for _ in range(2)]
        assert [card["card_id"] for card in read] == [one, one, two, one]

    def test_watch_prints_the_number_of_further_items_when_it_changes(
        self, shell: Shell, add: Callable[..., str]
    ) -> None:
        add("one")
        with shell.started("card", "list", "-n", "1", "-w", "--interval", "0.1") as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert [process.stdout.readline().split()[-1] for _ in range(2)] == [b"PREVIEW", b"one"]
            add("two")
            assert process.stderr.readline() == b"1 more; --limit 0 shows all\n"

    def test_watch_ends_when_its_reader_exits(self, shell: Shell, add: Callable[..., str]) -> None:
        add("one")
        result = shell.line("cbx card list -w --interval 0.1 -o id | head -1; echo ${PIPESTATUS[0]}")
        assert lines(result)[1] == "141"

    def test_a_lost_database_connection_ends_the_watch(
        self, shell: Shell, database: Database, add: Callable[..., str]
    ) -> None:
        add("one")
        with shell.started("card", "list", "-w", "--interval", "0.1", "-o", "id") as process:
            assert process.stdout is not None
            process.stdout.readline()
            end_others(database)
            _, err = process.communicate()
        assert process.returncode == 7
        assert err.decode().startswith("error: the connection to the database was lost")

    def test_deleting_the_box_ends_the_watch(self, shell: Shell, boxes: BoxStore) -> None:
        box = boxes.create([])
        with shell.started("box", "show", box.box_id, "-w", "--interval", "0.1") as process:
            assert process.stdout is not None
            process.stdout.readline()
            boxes.delete(box.box_id)
            _, err = process.communicate()
        assert (process.returncode, err.decode().splitlines()[0]) == (
            3,
            f"error: no box {box.box_id!r} in project 'p'",
        )

    @pytest.mark.parametrize("interval", ["1e9", "277777h", "31622400"])
    def test_very_long_intervals_are_accepted(
        self, interval: str, shell: Shell, add: Callable[..., str]
    ) -> None:
        card = add("one")
        with shell.started("card", "list", "-w", "--interval", interval, "-o", "id") as process:
            assert process.stdout is not None
            assert process.stdout.readline().decode().strip() == card
            process.send_signal(signal.SIGINT)
            _, err = process.communicate()
        assert (process.returncode, err) == (130, b"\ninterrupted\n")

    @pytest.mark.parametrize("interval", ["inf", "nan", "1e300"])
    def test_infinite_intervals_are_refused(self, interval: str, offline: Cbx) -> None:
        refused = offline("card", "list", "-w", "--interval", interval)
        assert (refused.code, refused.out) == (2, "")
        assert refused.err.startswith(
            f"error: Invalid value for '--interval': {float(interval)} is not a duration of at most"
            " 1,000,000,000 seconds.\n"
        )

    def test_an_interval_of_zero_is_refused(self, offline: Cbx) -> None:
        refused = offline("card", "list", "-w", "--interval", "0")
        assert (refused.code, refused.out) == (2, "")
        assert refused.err.startswith(
            "error: Invalid value for '--interval': 0.0 is not in the range x>=0.1."
        )


class TestHostileText:
    """A card that would clear the screen, set the title, write the clipboard and move the cursor."""

    @pytest.fixture
    def box(self, add: Callable[..., str], box_of: Callable[..., str]) -> str:
        return box_of(*[add(HOSTILE, "--id", "hostile")] * 60, title=HOSTILE)

    @pytest.mark.parametrize("paged", [False, True])
    @pytest.mark.parametrize(
        "command",
        [
            ("card", "list"),
            ("card", "list", "--columns", "preview,id"),
            ("box", "list", "--columns", "title"),
            ("box", "show", "{box}"),
            ("box", "show", "{box}", "--full"),
            ("box", "show", "{box}", "-o", "json"),
            ("box", "show", "{box}", "-o", "yaml"),
            ("render", "--box", "{box}", "--format", "text"),
        ],
        ids=str,
    )
    def test_hostile_text_is_escaped_with_and_without_a_pager(
        self,
        command: tuple[str, ...],
        paged: bool,
        box: str,
        on_terminal: ON_TERMINAL,
        pager: str,
    ) -> None:
        typist = on_terminal(*[word.format(box=box) for word in command], CBX_PAGER=pager if paged else "")
        assert typist.end() == 0
        assert typist.seen.startswith("-- pager") is paged
        harmless(typist.received)

    def test_hostile_text_is_escaped_in_an_open_pager(
        self, on_terminal: ON_TERMINAL, add: Callable[..., str]
    ) -> None:
        card = add("\n".join([HOSTILE] * 100))
        typist = on_terminal("card", "show", card, CBX_PAGER="less")
        typist.see(r"owned(?s:.)*:")
        typist.press_until("q", r"(?s).*")
        assert typist.end() == 0
        harmless(typist.received)

    @pytest.mark.parametrize("command", [("card", "list"), ("box", "show", "{box}", "--full")], ids=" ".join)
    def test_hostile_text_is_escaped_in_a_watch(
        self, command: tuple[str, ...], box: str, on_terminal: ON_TERMINAL
    ) -> None:
        typist = on_terminal(*[word.format(box=box) for word in command], "-w", "--interval", "0.1")
        typist.see(r"owned(?s:.)*owned(?s:.)*owned(?s:.)*\n")
        harmless(typist.received)


def harmless(received: str) -> None:
    """All that tells the terminal something is our own; the card's is spelled out."""
    told = received
    for spelling, usual in SPELLINGS.items():
        told = told.replace(spelling, usual)
    assert re.search(SPELLED, told)
    assert re.findall("[\x00-\x09\x0b-\x1f\x7f-\x9f].{,9}", OWN.sub("", received)) == []
