"""Completion: what is offered where, what asking costs, and the three shells themselves."""

import re
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import click
import pytest

from cardbox_cli.cli.command_table import COMMANDS, root
from cardbox_cli.cli.commands.completion import SHELLS
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.connection.database import Database
from tests.cli.conftest import Offered, Shell, succeed
from tests.cli.test_help import TREE
from tests.cli.typist import Typist
from tests.conftest import PROJECT, Cbx, Result
from tests.packages import program

NOWHERE = "host=127.0.0.1 port=1"


class TestWhatIsOffered:
    def test_commands_are_offered_with_their_help(self, offered: Offered) -> None:
        assert offered("cbx bo") == {"box": "Create, show, diff, edit and repair boxes."}
        assert list(offered("cbx ")) == list(root().entries)

    def test_projects_are_offered(self, cbx: Cbx, offered: Offered) -> None:
        assert cbx("project", "create", "ada-1", "--title", "Ada").code == 0
        assert offered("cbx -p ad") == {"ada-1": "Ada"}
        assert offered("cbx box list --project ad") == {"ada-1": "Ada"}

    def test_verbs_of_a_noun_are_offered(self, offered: Offered) -> None:
        assert list(offered("cbx box re")) == ["replace", "repair"]
        assert "verify" in offered("cbx -p other box ")

    def test_options_are_offered_with_their_help(self, offered: Offered) -> None:
        assert offered("cbx box list --l") == {"--limit": "Show at most N items; 0 shows all."}
        assert {"--project", "--database-url", "--output", "--debug"} <= set(offered("cbx pack --"))

    @pytest.mark.parametrize(
        ("line", "values"),
        [
            ("cbx -o j", ["json", "jsonl"]),
            ("cbx box list --output y", ["yaml"]),
            ("cbx worker run --format a", ["anthropic"]),
            ("cbx render --format o", ["openai", "openai-responses"]),
            ("cbx card import --from a", ["anthropic", "auto"]),
            ("cbx card add --type sys.p", ["sys.profile"]),
            ("cbx completion ", ["bash", "zsh", "fish"]),
            ("cbx pack --handover exp", ["expert", ""]),
            ("cbx handover validate delegate rev", ["review", ""]),
            ("cbx card import ", [""]),
            ("cbx shell ", [""]),
            ("cbx no-such ", []),
            ("cbx box show --tail ", []),
            ("cbx --version sh", ["shell"]),
            ("HERE=1 cbx -o y", ["yaml"]),
        ],
    )
    def test_values_of_options_and_arguments_are_offered(
        self, offered: Offered, line: str, values: list[str]
    ) -> None:
        assert list(offered(line)) == values

    def test_a_value_after_an_equals_sign_is_offered(self, offered: Offered) -> None:
        assert list(offered("cbx box list --output=j", "zsh")) == ["--output=json", "--output=jsonl"]
        assert list(offered("cbx box list --output=j", "fish")) == ["--output=json", "--output=jsonl"]
        assert list(offered("cbx box list --output=j", "bash")) == ["json", "jsonl"]

    def test_boxes_are_offered_by_short_id_last_changed_first(
        self, offered: Offered, box_of: Callable[..., str]
    ) -> None:
        one, two = box_of(title="the first\tone\x1b[1m"), box_of()
        shown = offered("cbx box show ")
        assert list(shown) == [two[-8:], one[-8:]]
        assert shown[one[-8:]] == "the first one\\x1b[1m"
        assert re.fullmatch(r"changed 20\d\d-\d\d-\d\d \d\d:\d\d:\d\dZ", shown[two[-8:]])
        assert list(offered(f"cbx box show {one[-8:-4]}")) == [one[-8:]]
        assert set(offered(f"cbx render --box {one[:6]}")) == {one, two}

    def test_cards_are_offered_by_short_id_with_their_text(
        self, offered: Offered, add: Callable[..., str]
    ) -> None:
        card = add("Find the cause")
        add("odd", "--id", "an odd id")
        assert offered("cbx card show ") == {
            card[-8:]: "task.instruction Find the cause",
            "n odd id": "task.instruction odd",
        }

    def test_ids_that_cannot_be_typed_are_not_offered(
        self,
        offered: Offered,
        database: Database,
        add: Callable[..., str],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        card = add("seen")
        for foreign in (
            "a\x1b[2J1",
            "a\u00adb-12345",
            "-2345678",
            "a\n1234567",
            "tag\U000e004112",
            "\ufe0f1234567",
        ):
            database.connection.execute(
                "INSERT INTO cards (card_id, tenant_id, content, metadata)"
                " SELECT %s, tenant_id, content, metadata FROM cards WHERE card_id = %s",
                (foreign, card),
            )
        assert list(offered("cbx card show ")) == [card[-8:]]

    def test_profiles_are_offered_by_name(self, offered: Offered, cbx: Cbx, tmp_path: Path) -> None:
        (tmp_path / "a.yaml").write_text("name: the writer\nworker_target: w1\n")
        succeed(cbx("profile", "import", str(tmp_path / "a.yaml")))
        assert offered("cbx profile show the") == {"the writer": "w1"}
        assert list(offered("cbx profile show the", "bash")) == ["the\\ writer"]

    def test_turns_and_inbox_rows_are_offered_with_their_states(
        self, offered: Offered, cbx: Cbx, box_of: Callable[..., str], tmp_path: Path
    ) -> None:
        (tmp_path / "a.yaml").write_text("name: clerk\n")
        succeed(cbx("profile", "import", str(tmp_path / "a.yaml")))
        succeed(cbx("agent", "provision", "clerk-1", "--profile", "clerk"))
        turn = succeed(cbx("dispatch", "--agent", "clerk-1", "--context-box", box_of(), "-o", "id")).strip()
        assert offered("cbx turn show ") == {turn[-8:]: "clerk-1 dispatched"}
        assert offered("cbx inbox show ") == {turn[-8:]: "clerk-1 turn pending"}
        assert offered("cbx turn list --agent cl") == {"clerk-1": "worker_generic"}
        assert list(offered("cbx inbox list --type t")) == ["turn", "tool_result", "timeout"]

    def test_recipes_in_the_folder_are_offered(
        self, offered: Offered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "handovers").mkdir()
        (tmp_path / "handovers" / "mine.yaml").write_text("this: is not read")
        monkeypatch.chdir(tmp_path)
        assert offered("cbx pack -H m") == {"mine": "handovers/mine.yaml", "": ""}

    def test_candidates_come_from_the_project_and_database_of_the_line(
        self, offered: Offered, box_of: Callable[..., str]
    ) -> None:
        box = box_of(title="theirs", project="other")
        assert offered("cbx box show ") == {}
        for line in ("cbx -p other box show ", "cbx box show -p other ", "cbx --project=other box fork "):
            assert offered(line) == {box[-8:]: "theirs"}
        assert offered(f"cbx -p other --database-url '{NOWHERE}' box show ") == {}

    def test_every_type_of_value_has_a_completion_or_an_exemption(self) -> None:
        """A new kind of value has a type that completes it, or is put here among those that nobody can guess."""
        free = {
            *("N", "ID", "HASH", "TIME", "DURATION", "TEXT", "KEY", "URL", "ADDRESS", "ROLE", "MODEL"),
            *("AGENT", "TARGET", "TYPE,…", "COLUMNS", "COLUMN[:desc]", "K=V", "-- ARGS", "CMD", "NAME"),
            *("JSON|@FILE", "TEXT|@FILE", "NAME[=TEXT|=@FILE]", "[TEXT...]", "TEXT...", "ITEM...", "LAYER,…"),
            *("JSON", "STEP", "[CONTEXT]", "[NAME]", "[TEXT|@FILE]", "[KEY] TEXT"),
        }
        unknown = {
            (path, parameter.metavar)
            for path, command in TREE.items()
            for parameter in command.params
            if type(parameter.type) is click.types.StringParamType
            and parameter._custom_shell_complete is None
            and parameter.metavar not in free
        }
        assert not unknown


class TestWhatItCosts:
    HEAVY = ("psycopg", "pydantic", "rich", "yaml", "uuid6", "msgspec")

    def imported(self, shell: Shell, code: str) -> str:
        return succeed(
            shell.python(
                "import contextlib, io, os, sys\n"
                "out = io.TextIOWrapper(io.BytesIO())\n"
                f"with contextlib.redirect_stdout(out):\n {code}\n"
                f"print(bool(out.buffer.tell()), *(name for name in {self.HEAVY!r} if name in sys.modules))"
            )
        ).strip()

    @pytest.mark.parametrize("name", SHELLS)
    def test_printing_the_script_imports_only_the_command_line_library(self, shell: Shell, name: str) -> None:
        code = f"from cardbox_cli.entry import main; main(['completion', '{name}']); out.flush()"
        assert self.imported(shell, code) == "True"

    @pytest.mark.parametrize("line", ["cbx ", "cbx b", "cbx -p x ", "cbx --out", "cbx completion "])
    def test_completing_command_names_imports_only_the_command_line_library(
        self, shell: Shell, line: str
    ) -> None:
        code = f"os.environ['_CBX_LINE'] = {line!r}; from cardbox_cli.cli.completion_candidates import answer; answer('zsh')"
        assert self.imported(shell, code) == "True"

    def test_verbs_and_options_need_no_database_driver(self, shell: Shell) -> None:
        # What follows these at once is a turn or a profile, which only the database knows.
        lines = [
            f"cbx {command} {end}"
            for command in COMMANDS
            for end in (("-",) if command in ("why", "launch", "ask", "cost") else ("", "-"))
        ]
        told = succeed(
            shell.python(
                "import contextlib, io, os, sys\n"
                "from cardbox_cli.cli.completion_candidates import answer\n"
                f"for line in {lines!r}:\n"
                "    os.environ['_CBX_LINE'] = line\n"
                "    with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())): answer('zsh')\n"
                f"    print(line, *(name for name in {self.HEAVY!r} if name in sys.modules), sep='|')"
            )
        ).splitlines()
        assert [each.split("|")[0] for each in told] == lines
        assert [each for each in told if not set(each.split("|")[1:]) <= {"msgspec"}] == []


class TestADatabaseThatIsNotThere:
    LINE = "cbx box show "

    def ask(self, shell: Shell, **variables: str) -> tuple[Result, float]:
        """What a process answers, and how much longer it took than one that need not wait to know."""
        began = time.monotonic()
        shell.run(_CBX_COMPLETE="bash", _CBX_LINE=self.LINE, CBX_DATABASE_URL="no address")
        base = time.monotonic() - began
        began = time.monotonic()
        result = shell.run(_CBX_COMPLETE="bash", _CBX_LINE=self.LINE, **variables)
        return result, time.monotonic() - began - base

    def test_an_unreachable_server_gives_no_candidates_and_no_error(self, shell: Shell) -> None:
        result, waited = self.ask(shell, CBX_DATABASE_URL=NOWHERE)
        assert (result.out, result.err) == ("", "")
        assert waited < 60

    def test_an_unresponsive_server_gives_no_candidates_and_no_error(self, shell: Shell) -> None:
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            url = f"host=127.0.0.1 port={silent.getsockname()[1]} sslmode=disable"
            result, waited = self.ask(shell, CBX_DATABASE_URL=url)
        assert (result.out, result.err) == ("", "")
        assert waited < 60

    def test_completion_neither_creates_nor_starts_the_embedded_server(
        self, shell: Shell, tmp_path: Path
    ) -> None:
        home = tmp_path / "home"
        result, _ = self.ask(shell, CBX_DATABASE_URL="", CBX_HOME=str(home))
        assert (result.out, result.err) == ("", "")
        assert not home.exists()

    def test_completion_does_not_wait_for_a_locked_table(self, shell: Shell, database: object) -> None:
        with database.transaction():
            database.connection.execute("LOCK card_boxes")
            result, waited = self.ask(shell)
        assert (result.out, result.err) == ("", "")
        assert waited < 60

    def test_a_malformed_address_prints_no_error(self, shell: Shell) -> None:
        assert self.ask(shell, CBX_DATABASE_URL="postgresql://[")[0].err == ""


class TestTheScripts:
    def test_an_unknown_shell_is_refused(self, offline: Cbx) -> None:
        result = offline("completion", "tcsh")
        assert (result.code, result.out) == (2, "")
        assert result.err == "error: unknown shell 'tcsh'\nhint: shells are bash, zsh, fish\n"

    @pytest.fixture
    def boxes(self, database: Database) -> list[str]:
        """Two boxes whose short ids begin differently: shells first complete what all candidates share."""
        store = BoxStore(database, PROJECT)
        titles = {"1": "first: a title", "2": "second title"}
        return [
            store.create([], title=title, box_id=f"01a20000-0000-7000-8000-0000{digit}f00d5ea").box_id
            for digit, title in titles.items()
        ]

    def until(self, typist: Typist, keys: str, wanted: str) -> re.Match[str]:
        """Type until it is seen: a loaded machine may be too slow for the first completions."""
        for _ in range(40):
            typist.type(keys)
            found = typist.glimpse(wanted, 5)
            if found:
                return found
            typist.type("\x15")
            typist.glimpse("(?!)", 0.3)
        pytest.fail(f"{wanted!r} is not in:\n{typist.seen}")

    @pytest.fixture
    def bash(self, shell: Shell) -> Iterator[Typist]:
        command = [program("bash"), "--norc", "--noprofile", "-i"]
        environment = {**shell.environment, "PS1": "$ ", "INPUTRC": "/dev/null", "HISTFILE": ""}
        with Typist(command, environment, shell.folder) as typist:
            typist.type("source <(cbx completion bash); echo rea''dy\r")
            typist.see("ready")
            yield typist

    def test_bash_completes_commands_ids_and_files(
        self, bash: Typist, boxes: list[str], shell: Shell
    ) -> None:
        one, two = (box[-8:] for box in boxes)
        self.until(bash, "cbx com\t", r"completion $")
        bash.type("\x15")
        self.until(bash, f"echo x | A=1 cbx -p p box show {one[:5]}\t", rf"show {one} $")
        bash.type("\x15")
        self.until(bash, "cbx --project=p box show \t\t", rf"{two} +{one}")
        bash.type("\x15")
        self.until(bash, "cbx render --format=a\t", r"--format=anthropic $")
        bash.type("\x15")
        (shell.folder / "a chat.json").touch()
        self.until(bash, "cbx card import a\t", r"import a\\ chat\.json $")
        bash.type("\x15")
        self.until(bash, "cbx pack -H revi\t", r"-H review $")

    @pytest.fixture
    def hostile(self, add: Callable[..., str]) -> list[str]:
        """Ids of eight characters, as short ids have; a shell that ran them would make a file."""
        names = [
            "$(>pwn)x",
            "a;>pwn;b",
            "`>pwn`xy",
            "q\\:zz'\"\\",
            "*'\"$HOM",
            "~root/ab",
            "{a,b}[c]",
            "!!#^&|<>",
        ]
        for name in names:
            add("$(>pwn): x", "--id", name)
        return names

    @pytest.mark.parametrize("name", ["bash", "zsh"])
    def test_hostile_ids_are_quoted_and_never_executed(
        self, name: str, hostile: list[str], shell: Shell, request: pytest.FixtureRequest
    ) -> None:
        typist: Typist = request.getfixturevalue(name)
        for each in hostile:
            begins = re.sub(r"(\W)", r"\\\1", each[:2])
            self.until(typist, f"cbx card show {begins}\t", r"show \S.* $")
            typist.type("\x01printf :%s: \r")
            typist.see(re.escape(f":card::show::{each}:"))
        assert not (shell.folder / "pwn").exists()

    @pytest.fixture
    def zsh(self, shell: Shell) -> Iterator[Typist]:
        environment = {**shell.environment, "PS1": "$ ", "ZDOTDIR": str(shell.folder)}
        with Typist([program("zsh"), "-f", "-i"], environment, shell.folder) as typist:
            typist.type(
                "PS1='$ '; autoload -U compinit; compinit -D -u; source <(cbx completion zsh); echo rea''dy\r"
            )
            typist.see("ready")
            yield typist

    def test_zsh_completes_commands_ids_and_files(self, zsh: Typist, boxes: list[str], shell: Shell) -> None:
        one, two = (box[-8:] for box in boxes)
        self.until(zsh, "cbx com\t", r"completion $")
        zsh.type("\x15")
        self.until(zsh, f"cbx -p p box show {one[:5]}\t", rf"show {one} $")
        zsh.type("\x15")
        self.until(zsh, "cbx box show \t", rf"{two} +-- second title *\n{one} +-- first: a title")
        zsh.type("\x15")
        self.until(zsh, "cbx render --format=a\t", r"--format=anthropic $")
        zsh.type("\x15")
        (shell.folder / "a chat.json").touch()
        self.until(zsh, "cbx card import a\t", r"import a\\ chat\.json $")

    def test_the_zsh_script_works_from_a_function_folder(self, shell: Shell, boxes: list[str]) -> None:
        (shell.folder / "_cbx").write_text(succeed(shell.run("completion", "zsh")))
        environment = {**shell.environment, "ZDOTDIR": str(shell.folder)}
        with Typist([program("zsh"), "-f", "-i"], environment, shell.folder) as typist:
            typist.type("PS1='$ '; fpath=($PWD $fpath); autoload -U compinit; compinit -D -u; echo rea''dy\r")
            typist.see("ready")
            self.until(typist, "cbx com\t", r"completion $")

    def fish(self, shell: Shell, line: str) -> dict[str, str]:
        """What fish offers for a line."""
        functions = shell.folder / "fish" / "completions"
        if not functions.exists():
            functions.mkdir(parents=True)
            (functions / "cbx.fish").write_text(succeed(shell.run("completion", "fish")))
        environment = {**shell.environment, "XDG_CONFIG_HOME": str(shell.folder), "HOME": str(shell.folder)}
        asking = replace(shell, environment=environment)
        for _ in range(8):
            shown = succeed(asking._run([program("fish"), "-c", f"complete -C {line!r}"], b"", {}))
            if shown:
                break
        return dict([*row.split("\t"), ""][:2] for row in shown.splitlines())

    def test_fish_completes_commands_ids_and_files(self, shell: Shell, boxes: list[str]) -> None:
        one, two = (box[-8:] for box in boxes)
        (shell.folder / "a chat.json").touch()
        assert self.fish(shell, "cbx com") == {"completion": "Print the completion script for your shell."}
        assert self.fish(shell, "A=1 cbx -p p box show ") == {two: "second title", one: "first: a title"}
        assert set(self.fish(shell, "cbx render --format=o")) == {
            "--format=openai",
            "--format=openai-responses",
        }
        assert "a chat.json" in self.fish(shell, "cbx card import a")
        assert "review" in self.fish(shell, "cbx pack -H rev")
