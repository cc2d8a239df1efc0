"""`cbx shell`: lines from a file, from standard input and from a terminal, on one connection."""

import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cardbox_cli.cli.interactive_shell import split
from cardbox_cli.errors import UsageError
from cardbox_cli.store.connection.database import Database
from tests.cli.conftest import Shell, succeed
from tests.cli.typist import Typist
from tests.conftest import Cbx
from tests.crash.processes import until

ADD = "card add --type task.instruction -o id --text"


@pytest.fixture
def script(cbx: Cbx, tmp_path: Path) -> Callable[..., object]:
    """Run lines as a file, in this process."""

    def run(text: str, *options: str) -> object:
        file = tmp_path / "lines.cbx"
        file.write_text(text)
        return cbx("shell", str(file), *options)

    return run


class TestWords:
    @pytest.mark.parametrize(
        ("line", "words"),
        [
            ("", []),
            ("  # only a comment", []),
            ("box list", ["box", "list"]),
            ("\tbox  list \r", ["box", "list"]),
            ("box list # all", ["box", "list"]),
            ("a b#c", ["a", "b#c"]),
            ("a '#'b", ["a", "#b"]),
            ("a \\#b", ["a", "#b"]),
            ("--text 'one  two'", ["--text", "one  two"]),
            ("""--arg k:='{"a": 1}'""", ["--arg", 'k:={"a": 1}']),
            ('say "a \\"b\\" $c" \'\'', ["say", 'a "b" $c', ""]),
            ("a\\ b 价格\u3000x", ["a b", "价格\u3000x"]),
        ],
    )
    def test_quotes_and_comments_work_as_in_a_posix_shell(self, line: str, words: list[str]) -> None:
        assert split(line) == words

    @pytest.mark.parametrize(
        ("line", "mark"),
        [
            ("box list -o id | head -1", "|"),
            ("card show x>file", ">"),
            ("card list 2>&1", ">"),
            ("card add --text - < text", "<"),
            ("box list ; card list", ";"),
            ("box list && card list", "&&"),
        ],
    )
    def test_pipes_and_redirections_are_refused(self, line: str, mark: str) -> None:
        with pytest.raises(
            UsageError, match=re.escape(f"cbx shell does not support {mark!r}: run one command per line")
        ) as refused:
            split(line)
        assert refused.value.hint == f"quote it, or use your own shell: cbx {line}"
        assert split("card search 'a | b' \\> \"<\" # a > b | c") == ["card", "search", "a | b", ">", "<"]

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("box 'list", "unclosed quotes: 'list"),
            ('box "list', 'unclosed quotes: "list'),
            ("box list\\", "the line ends with a backslash"),
            ("a b'c", "unclosed quotes: 'c"),
        ],
    )
    def test_an_unclosed_quote_or_final_backslash_is_refused(self, line: str, message: str) -> None:
        with pytest.raises(UsageError, match=f"^{message}$"):
            split(line)


class TestAScript:
    def test_a_script_runs_its_lines_in_order(self, script: Callable[..., object]) -> None:
        result = script(f"# two cards\n\n{ADD} one\ncbx {ADD} 'two words' # the second\ncard list -o jsonl\n")
        first, second, newest, oldest = succeed(result).splitlines()
        assert (second in newest, first in oldest) == (True, True)
        assert '"two words"' in newest

    def test_a_script_stops_at_the_first_failure_and_reports_its_line(
        self, script: Callable[..., object]
    ) -> None:
        result = script(f"box list\n\nbox show nothing\n{ADD} never\n")
        assert (result.code, result.out) == (3, "")
        *_, error, hint, place = result.err.splitlines()
        assert error == "error: no box 'nothing' in project 'p'"
        assert hint.startswith("hint: ")
        assert re.fullmatch(r".*/lines\.cbx:3: exit code 3", place)

    def test_keep_going_runs_all_lines_and_exits_with_the_first_failure(
        self, script: Callable[..., object]
    ) -> None:
        result = script(f"box show nothing\n{ADD} one\nno-such\n{ADD} two\n", "--keep-going")
        assert result.code == 3
        assert len(result.out.splitlines()) == 2
        assert re.findall(r":(\d+): exit code (\d+)", result.err) == [("1", "3"), ("3", "2")]

    def test_a_failed_transaction_does_not_affect_the_next_line(self, script: Callable[..., object]) -> None:
        result = script(
            "card add --type a.b --text one --id card-1\nbox create card-1 card-2\n"
            "card add --type a.b --text other --id card-1\nbox create card-1\nbox list -o id\n",
            "-k",
        )
        made, listed = result.out.splitlines()[1:]
        assert made == listed
        assert re.findall(r":(\d+): exit code (\d+)", result.err) == [("2", "3"), ("3", "5")]

    @pytest.mark.parametrize(("line", "code"), [("box 'show", 2), ("nope", 2), ("box show", 2), ("shell", 2)])
    def test_a_malformed_line_stops_the_script(
        self, script: Callable[..., object], line: str, code: int
    ) -> None:
        result = script(f"{line}\n{ADD} never\n")
        assert (result.code, result.out) == (code, "")
        assert result.err.endswith("lines.cbx:1: exit code 2\n")

    def test_a_shell_cannot_be_started_inside_a_shell(self, script: Callable[..., object]) -> None:
        assert "error: cbx shell cannot be started inside cbx shell\n" in script("cbx shell other.cbx\n").err

    @pytest.mark.parametrize("word", ["exit", "quit"])
    def test_exit_and_quit_end_the_script(self, script: Callable[..., object], word: str) -> None:
        assert script(f"{word}\nno-such\n").code == 0

    def test_use_switches_to_another_project(self, script: Callable[..., object], cbx: Cbx) -> None:
        result = script(f"{ADD} here\nuse other\n{ADD} there\ncbx use p\ncard list -o id", "-k")
        here, there, listed = succeed(result).splitlines()
        assert listed == here
        assert succeed(cbx("-p", "other", "card", "list", "-o", "id")).split() == [there]
        for words, message in (
            ("use", "`use` takes one project"),
            ("use ' '", "must have 1 to 255 printable"),
        ):
            refused = script(f"{words}\n")
            assert refused.code == 2
            assert message in refused.err

    def test_help_lines_print_the_help(self, script: Callable[..., object], cbx: Cbx) -> None:
        shown = succeed(script("help\nhelp box list\ncbx\n"))
        root = succeed(cbx("--help"))
        assert shown == root + succeed(cbx("box", "list", "--help")) + root

    def test_an_unknown_script_file_is_refused(self, cbx: Cbx) -> None:
        result = cbx("shell", "no-such-file")
        assert (result.code, result.err.splitlines()[0]) == (3, "error: no file 'no-such-file'")


class TestOptions:
    def test_options_of_the_shell_are_the_defaults_of_each_line(
        self, script: Callable[..., object], cbx: Cbx
    ) -> None:
        result = script("box create\nbox create -p two\nbox list\n", "-p", "one", "-o", "id")
        one, two, listed = succeed(result).splitlines()
        assert listed == one
        assert succeed(cbx("-p", "two", "box", "list", "-o", "id")).strip() == two

    def test_options_of_a_line_apply_only_to_that_line(self, script: Callable[..., object]) -> None:
        shown = succeed(
            script("-p one box create -o id\n-o json box list\nbox list -o jsonl\nbox list -o id\n")
        )
        assert shown.splitlines()[1:] == ["[]"]

    def test_errors_use_the_output_format_of_their_line(self, script: Callable[..., object]) -> None:
        err = script("box show none -o json\nbox show none\n", "-k").err
        assert err.startswith('{"error": ')
        assert "\nerror: no box 'none'" in err

    def test_a_line_can_use_another_database(self, script: Callable[..., object]) -> None:
        away = "--database-url 'host=127.0.0.1 port=1'"
        result = script(f"box create -o id\nbox list {away}\nbox list -o id\n", "-k")
        made, listed = result.out.splitlines()
        assert (made == listed, result.code) == (True, 7)


class TestStandardInput:
    def test_lines_from_standard_input_run(self, shell: Shell) -> None:
        result = shell.run("shell", "-", "-o", "id", stdin=b"\xef\xbb\xbfbox create\nbox list\n")
        made, listed = succeed(result).splitlines()
        assert made == listed

    def test_standard_input_is_the_default_without_a_terminal(self, shell: Shell) -> None:
        result = shell.run("shell", stdin=b"box list\nno-such\n")
        assert result.code == 2
        assert result.err.endswith("standard input:2: exit code 2\n")

    def test_a_command_cannot_read_the_lines_of_the_script(self, shell: Shell) -> None:
        lines = b"card add --type a.b -o id --file -\ndb psql -- -At\nbox create -o id\n"
        result = shell.run("shell", "-k", stdin=lines)
        assert re.findall(r":(\d+): exit", result.err) == []
        assert len(result.out.splitlines()) == 2

    def test_a_line_that_is_not_utf_8_is_refused(self, shell: Shell) -> None:
        result = shell.run("shell", stdin=b"box list -o id\n\xff\n")
        assert (result.code, result.err.splitlines()[0]) == (4, "error: standard input:2 is not UTF-8")

    def test_a_line_that_is_too_long_is_refused(self, shell: Shell) -> None:
        result = shell.run("shell", stdin=b"# " + b"x" * (64 << 20) + b"\nbox list\n")
        assert (result.code, result.err) == (4, "error: standard input:1: the line is longer than 64 MiB\n")

    def test_a_file_leaves_standard_input_to_the_commands(self, shell: Shell) -> None:
        (shell.folder / "add.cbx").write_text("card add --type a.b --file - -o json\n")
        assert '"text": "from stdin"' in succeed(shell.run("shell", "add.cbx", stdin=b"from stdin"))


class Lines:
    """A shell that is fed line by line; what it answers is read a line at a time."""

    def __init__(self, process: "subprocess.Popen[bytes]", database: Database) -> None:
        self._process = process
        self._database = database

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def ask(self, line: str) -> str:
        assert self._process.stdout is not None
        self.say(line)
        return self._process.stdout.readline().decode().strip()

    def pids(self) -> list[int]:
        """The connections of others to this database."""
        rows = self._database.connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return [pid for (pid,) in rows]

    def end(self) -> tuple[int, str]:
        _, err = self._process.communicate(timeout=120)
        return self._process.returncode, err.decode()


class TestTheConnection:
    @pytest.fixture
    def lines(self, shell: Shell, database: Database) -> Iterator[Lines]:
        with shell.started("shell", "--keep-going") as process:
            yield Lines(process, database)

    def test_all_lines_use_one_connection(self, lines: Lines) -> None:
        lines.ask("box create -o id")
        [pid] = lines.pids()
        for line in ("card add --type a.b --text x -o id", "box list -o id", "box show none\nbox list -o id"):
            assert lines.ask(line)
            assert lines.pids() == [pid]

    def test_a_broken_connection_is_replaced_for_the_next_line(
        self, lines: Lines, database: Database
    ) -> None:
        box = lines.ask("box create -o id")
        [broken] = lines.pids()
        database.connection.execute("SELECT pg_terminate_backend(%s, 5000)", [broken])
        assert lines.ask("box list -o id") == box
        [pid] = lines.pids()
        assert pid != broken
        assert lines.end() == (0, "")

    def test_a_connection_that_breaks_during_a_line_fails_only_that_line(
        self, lines: Lines, database: Database
    ) -> None:
        box = lines.ask("box create -o id")
        with database.transaction():
            database.connection.execute("SELECT FROM card_boxes FOR UPDATE")
            [pid] = lines.pids()
            lines.say(f"box replace {box}")
            self.wait_for_a_lock(database)
            database.connection.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
        assert lines.ask("box list -o id") == box
        code, err = lines.end()
        assert (code, re.findall(r":(\d+): exit code (\d+)", err)) == (7, [("2", "7")])

    def wait_for_a_lock(self, database: Database) -> None:
        waiting = (
            "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        until(lambda: database.connection.execute(waiting).fetchall())

    def test_tables_created_during_the_shell_are_used(self, shell: Shell, database: Database) -> None:
        database.connection.execute("DROP SCHEMA cbx CASCADE; DROP SCHEMA resource CASCADE")
        result = shell.run(
            "shell",
            "-o",
            "id",
            stdin=b"box create --title t\ndb init --yes\nbox create --title t\nbox list -o table\n",
        )
        assert succeed(result).splitlines()[-2].endswith(" t")


class TestTheServer:
    def test_the_embedded_server_can_be_stopped_and_destroyed_in_the_shell(
        self, shell: Shell, tmp_path: Path
    ) -> None:
        lines = b"box create -o id\ndb psql -- -Atc 'select 1'\ndb stop\nbox list -o id\ndb destroy --yes -o json\n"
        result = shell.run("shell", stdin=lines, CBX_DATABASE_URL="", CBX_HOME=str(tmp_path / "home"))
        made, one, stopped, listed, *removed = succeed(result).splitlines()
        assert (one, stopped, listed) == ("1", "stopped", made)
        assert any("embedded.json" in line for line in removed)


class TestATerminal:
    @pytest.fixture
    def typist(self, shell: Shell, tmp_path: Path) -> Iterator[Typist]:
        # No inputrc of whoever runs the tests, no bracketed paste.
        (tmp_path / "inputrc").write_text("set enable-bracketed-paste off\nset bell-style none\n")
        environment = {
            **shell.environment,
            "CBX_HOME": str(tmp_path / "home"),
            "INPUTRC": str(tmp_path / "inputrc"),
        }
        command = [sys.executable, "-m", "cardbox_cli", "shell"]
        with Typist(command, environment, shell.folder) as typist:
            typist.see(r"cbx p> $")
            yield typist

    def test_a_failed_line_does_not_end_the_shell(self, typist: Typist) -> None:
        typist.type("box show none\r")
        typist.see(r"error: no box 'none'[^>]*cbx p> $")
        typist.type("cbx box create -o id\r")
        typist.see(r"\n[0-9a-f-]{36}\ncbx p> $")
        typist.type("\x04")
        assert typist.end() == 0

    def test_the_prompt_shows_the_current_project(self, typist: Typist) -> None:
        typist.see(r"cbx p> $")
        typist.type("use other\r")
        typist.see(r"cbx other> $")

    @pytest.mark.parametrize("word", ["exit", "quit"])
    def test_exit_and_quit_end_the_shell(self, typist: Typist, word: str) -> None:
        typist.type(f"{word}\r")
        assert typist.end() == 0

    def test_ctrl_c_discards_the_typed_line(self, typist: Typist) -> None:
        typist.type("box creat")
        typist.see("box creat$")
        typist.press_until("\x03", r"\ncbx p> $")
        typist.type("box list\r")
        typist.see(r"no boxes in project 'p'\ncbx p> $")

    def test_ctrl_c_cancels_the_running_command(self, typist: Typist, database: Database) -> None:
        typist.type("box create -o id\r")
        box = typist.see(r"\n([0-9a-f-]{36})\ncbx p> $")[1]
        with database.transaction():
            database.connection.execute("SELECT FROM card_boxes FOR UPDATE")
            typist.type(f"box replace {box}\r")
            TestTheConnection().wait_for_a_lock(database)
            typist.type("\x03")
            typist.see(r"interrupted\ncbx p> $")
        typist.type("box list -o id\r")
        typist.see(rf"\n{box}\ncbx p> $")

    def test_tab_completes_commands_options_and_ids(self, typist: Typist) -> None:
        typist.type("box cr\t--ti\tt-1 -o id\r")
        box = typist.see(r"box create --title t-1 -o id\n([0-9a-f-]{36})\ncbx p> $")[1]
        typist.type("box show ")
        typist.press_until("\t", rf"box show {box[-8:]} $")
        typist.type("-o id\r")
        typist.see(rf"\n{box}\n")
        typist.type("box create --title other -o id\r")
        typist.see(r"\n([0-9a-f-]{36})\ncbx p> $")
        typist.type("cbx box verify ")
        typist.press_until(
            "\t\t", rf"\n[0-9a-f]{{8}}  other\n{box[-8:]}  t-1\ncbx p> cbx box verify [0-9a-f]*$"
        )

    def test_the_project_of_a_completed_line_does_not_affect_the_next(self, typist: Typist) -> None:
        typist.type("box list -p other --lim\t1\r")
        typist.see(r"no boxes in project 'other'\ncbx p> $")
        typist.type("box list\r")
        typist.see(r"no boxes in project 'p'\ncbx p> $")

    def test_the_history_is_stored_in_a_private_file(
        self, typist: Typist, shell: Shell, tmp_path: Path
    ) -> None:
        typist.type("box list --limit 7\r")
        typist.see(r"no boxes.*\ncbx p> $")
        file = tmp_path / "home" / "shell_history"
        assert file.read_text() == "box list --limit 7\n"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        typist.type("\x1b[A")
        typist.see("box list --limit 7$")

    @pytest.mark.parametrize("end", ["Ctrl-D", "SIGHUP", "SIGTERM", "SIGKILL"])
    def test_the_history_is_complete_after_any_exit(self, typist: Typist, tmp_path: Path, end: str) -> None:
        for number in (7, 8):
            typist.type(f"box list --limit {number}\r")
            typist.see(r"no boxes.*\ncbx p> $")
        if end == "Ctrl-D":
            typist.type("\x04")
        else:
            os.kill(typist.process.pid, getattr(signal, end))
        typist.end()
        file = tmp_path / "home" / "shell_history"
        assert file.read_text() == "box list --limit 7\nbox list --limit 8\n"

    def test_psql_uses_the_terminal_and_returns_to_the_shell(self, typist: Typist) -> None:
        typist.type("db psql -- -X -P pager=off\r")
        typist.see(r"=[#>] $")
        typist.type("select 40 + 2;")
        typist.see(r"40 \+ 2;$")
        typist.press_until("\x03", r"=[#>] $")
        typist.type("select 1 + 1 as two;\r")
        typist.see(r" two[ \n-]+2\n")
        typist.type("\\q\r")
        typist.see(r"cbx p> $")
        typist.type("\x04")
        assert typist.end() == 0
