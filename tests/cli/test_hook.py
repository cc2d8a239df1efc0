"""`eval "$(cbx shell --hook SHELL)"`: what the function does is what the process does, in one co-process."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from tests.cli.conftest import PATIENCE, Shell, succeed
from tests.cli.test_processes import wait_until, waiting_for_a_lock
from tests.cli.typist import Typist
from tests.conftest import Cbx, Result
from tests.packages import program

# How a shell is started that reads nobody's files.
SHELLS = {"bash": ["bash"], "zsh": ["zsh", "-f"]}
TYPED_AT = {"bash": ["bash", "--norc", "-i"], "zsh": ["zsh", "-f", "-i", "+Z"]}
BOTH = pytest.mark.parametrize("name", list(SHELLS))

HOOK = 'eval "$(cbx shell --hook %s)"\n'
# From here on whatever is not the co-process's says so.
ELSE = "PATH=$PWD/else:$PATH\n"

Hooked = Callable[..., Result]


@pytest.fixture
def name() -> str:
    """Which shell has the hook, where a test does not ask for both."""
    return "bash"


@pytest.fixture
def hook(name: str) -> str:
    """The line that makes the function."""
    program(name)
    return HOOK % name


@pytest.fixture
def hooked(shell: Shell, name: str, hook: str, tmp_path: Path) -> Hooked:
    """Run lines of the shell after the hook; a command that is run as a process prints that, and its words."""
    (shell.folder / "else").mkdir()
    other = shell.folder / "else" / "cbx"
    other.write_text('#!/bin/sh\necho "process: $*"; cat\nexit 9\n')
    other.chmod(0o755)
    hooks = tmp_path / "hooks"
    hooks.mkdir()

    def run(text: str, **variables: str) -> Result:
        ran = shell.line(hook + ELSE + text, by=SHELLS[name], TMPDIR=str(hooks), **variables)
        assert gone(hooks), "the co-process ends with its shell, and leaves nothing"
        return ran

    return run


def gone(hooks: Path) -> bool:
    """Whether the folders of all hooks are removed, which is the last that a co-process does."""
    end = time.monotonic() + PATIENCE
    while any(hooks.iterdir()) and time.monotonic() < end:
        os.sched_yield()
    return not any(hooks.iterdir())


@BOTH
class TestAnswers:
    def test_a_command_prints_and_ends_as_its_process_does(
        self, hooked: Hooked, shell: Shell, box_of: Callable[..., str], add: Callable[..., str]
    ) -> None:
        card = add("one")
        box = box_of(card, add("zwei\n\n"), title="t")
        text = (
            f"cbx box show {box} -o json; echo $?; cbx box show nothing; echo $?; cbx box shwo ''; echo $?\n"
            f"cbx card show {card} nothing 2>&1; cbx card show nothing {card} 2>&1\n"
        )

        ran = hooked(text)

        assert "process:" not in ran.out
        assert ran == shell.line(text)

    def test_it_works_in_substitutions_pipelines_and_jobs(
        self, hooked: Hooked, add: Callable[..., str]
    ) -> None:
        card = add("hello")

        ran = hooked(
            "id=$(cbx card list -o id); echo $id\n"
            "cbx card list -o id | cat; cbx card show $id -o json | grep -c hello\n"
            "for n in 1 2 3; do cbx card list -o id >job$n & done; wait; cat job1 job2 job3\n"
        )

        assert ran.out.split() == [card, card, "1", card, card, card]

    def test_errexit_and_failures_are_those_of_a_command(self, hooked: Hooked) -> None:
        ran = hooked(
            "set -euo pipefail; trap 'echo trapped' ERR\ncbx box show nothing 2>/dev/null || echo failed $?\n"
            "if ! cbx box show nothing 2>/dev/null; then echo if; fi\n"
            "[[ -o errexit && -o nounset && ! -o noclobber ]] && echo kept\n"
            "cbx box show nothing\necho never\n"
        )

        assert (ran.code, ran.out) == (3, "failed 3\nif\nkept\ntrapped\n")

    def test_a_megabyte_comes_whole_or_ends_at_a_closed_pipe_or_a_full_disk(
        self, hooked: Hooked, cbx: Cbx, add: Callable[..., str]
    ) -> None:
        card = add("xé" * 400_000)

        ran = hooked(
            f"cbx card show {card} -o json; cbx card show {card} -o json | head -c 10; echo :$?\n"
            f"echo >&2; cbx card show {card} -o json >/dev/full; echo $?; cbx --version >/dev/full; echo $?"
        )

        whole = succeed(cbx("card", "show", card, "-o", "json"))
        assert ran.out.startswith(whole + whole[:10] + ":")
        assert ran.out.removeprefix(whole + whole[:10]) in (":0\n4\n4\n", ":141\n4\n4\n")
        assert ran.err.startswith("\n"), "a closed pipe is no error"
        assert ran.err.count("write") == 2


class TestSurroundings:
    @BOTH
    def test_folder_and_variables_are_those_of_the_moment(self, hooked: Hooked, cbx: Cbx) -> None:
        ran = hooked(
            "own=$CBX_PROJECT; mkdir sub; echo from-sub >sub/text; cd sub\n"
            "cbx card add --type task.instruction --file text --id here -o id; cd ..\n"
            "CBX_PROJECT=other cbx card list -o id; echo one\n"
            "export CBX_PROJECT=other; cbx card list -o id; echo two\n"
            "unset CBX_PROJECT; CBX_PROJECT=$own; CBX_OUTPUT=id cbx card list; echo three\n"
        )

        assert ran.out == "here\none\ntwo\nthree\n", ran.err
        assert "from-sub" in succeed(cbx("card", "show", "here", "-o", "json"))

    @BOTH
    def test_a_terminal_has_colours_and_width(
        self, name: str, hook: str, shell: Shell, box_of: Callable[..., str]
    ) -> None:
        box_of(title="word " * 60)
        environment = {**shell.environment, "CBX_PAGER": "cat"}
        with Typist(TYPED_AT[name], environment, shell.folder) as typist:
            typist.type("PS1='ready> '; " + hook)
            typist.see("ready> ")
            typist.type("cbx box create --title 'colour' ; cbx --color always box list; echo d''one\n")
            shown = typist.see(r"(?s)TITLE(.*)done")[0]
            typist.type("exit\n")
            typist.process.wait(PATIENCE)

        assert "colour" in shown
        assert max(map(len, shown.splitlines())) <= 140

    @BOTH
    def test_ctrl_c_gives_the_prompt_back_and_the_next_command_is_answered(
        self,
        name: str,
        hook: str,
        shell: Shell,
        database: Database,
        target: Target,
        box_of: Callable[..., str],
        add: Callable[..., str],
    ) -> None:
        box, card = box_of(title="held"), add("hello")
        with Typist(TYPED_AT[name], shell.environment, shell.folder) as typist:
            typist.type("PS1='ready> '; " + hook + "PATH=/usr/bin:/bin\n")
            typist.see("ready> ")
            with psycopg.connect(target.conninfo or "") as other:
                other.execute("SELECT FROM card_boxes FOR UPDATE")
                typist.type(f"cbx box append {box} {card}\n")
                wait_until(lambda: waiting_for_a_lock(database) == 1)
                typist.type("\x03")
                wait_until(lambda: waiting_for_a_lock(database) == 0)
                typist.type("cbx --version\n")
                typist.see("cbx 0.1.0")
            typist.type("exit\n")
            typist.process.wait(PATIENCE)

    def test_secrets_stay_in_a_folder_of_ones_own(self, hook: str, shell: Shell) -> None:
        ran = shell.line(
            hook + 'at=$(declare -f cbx | grep -o "/[^ ]*cbx-hook-[^; ]*" | head -1)\n'
            "stat -c %a $at\nPGPASSWORD=s3cret cbx --version\ngrep -r s3cret $at; echo $?"
        )

        assert ran.out == "700\ncbx 0.1.0\n1\n"

    @BOTH
    def test_nor_do_they_stay_where_the_co_process_dies_before_it_reads_them(
        self, name: str, hook: str, shell: Shell
    ) -> None:
        ran = shell.line(
            hook + 'at=$(declare -f cbx | grep -o "/[^ ]*cbx-hook-[^;/ ]*" | head -1)\n'
            "server=$(declare -f cbx | grep -o 'kill -0 [0-9]*' | head -1); server=${server##* }\n"
            "kill -STOP $server; (sleep .5; kill -9 $server) &\n"
            "PGPASSWORD=s3cret cbx --version; wait; grep -rc s3cret $at/*.request; rm -r $at",
            by=SHELLS[name],
        )

        assert ran.out == "cbx 0.1.0\n0\n", ran.err


@BOTH
class TestProcesses:
    def test_what_needs_the_shells_own_process_gets_one(self, hooked: Hooked) -> None:
        lines = [
            "card add --type task.instruction --file -",
            "card add --type task.instruction --file=/dev/stdin",
            "card add --type task.instruction -f-",
            "card add --type task.instruction -flink",
            "card add --type task.instruction --text @link",
            "card add --type task.instruction --text @dangling",
            "card add --type task.instruction --file a=link",
            "card list --watch",
            "db status",
            "worker run",
            "shell",
        ]

        given = "\n".join(f"echo given | cbx {line}; echo $?" for line in lines)
        ran = hooked(f"ln -sf /dev/stdin link; ln -s /dev/stdin a=link; ln -s /dev/fd/250 dangling\n{given}")

        assert ran.out == "".join(f"process: {line}\ngiven\n9\n" for line in lines), ran.err

    def test_what_stands_in_files_needs_none_wherever_they_lie(self, hooked: Hooked) -> None:
        """A folder may be called as that of devices is; a text of many slashes is no path to be followed."""
        ran = hooked(
            "mkdir -p dev/proc; cd dev/proc; mkdir card; echo hello > file; ln -s file link\n"
            "cbx card add --type task.instruction -flink; cbx card list >/dev/null; echo $?\n"
            "cbx card add --type task.instruction --text \"$(printf 'a/%.0s' {1..50000})\" >/dev/null; echo $?"
        )

        assert "process:" not in ran.out, ran.out
        assert ran.out.splitlines()[-2:] == ["0", "0"], ran.err

    def test_without_the_co_process_commands_are_processes(self, hooked: Hooked) -> None:
        ran = hooked(
            "cbx --version; server=$(declare -f cbx | grep -o 'kill -0 [0-9]*' | head -1); server=${server##* }\n"
            "kill $server; while kill -0 $server 2>/dev/null; do :; done; cbx card list </dev/null; echo $?"
        )

        assert ran.out.splitlines()[1:] == ["process: card list", "9"]


@BOTH
def test_the_variables_of_libpq_are_those_of_the_moment(hooked: Hooked, add: Callable[..., str]) -> None:
    """A connection that is kept is that of the address with what completes it."""
    add("hello")
    ran = hooked(
        "cbx card list -o json | jq length; PGOPTIONS='-c default_transaction_read_only=on' "
        "cbx card add --type task.instruction --text more </dev/null; echo $?; cbx card list -o json | jq length"
    )
    assert ran.out == "1\n7\n1\n", ran.err


class TestTheShellItself:
    """Whatever is set in it, the function does what the process does, and leaves it as it was."""

    @pytest.mark.parametrize(
        "settings",
        [
            "set -Eeuo pipefail; trap 'echo trapped' ERR",
            "shopt -s nocasematch",
            "set +B",
            "set -k",
            "COLUMNS=30",
            "shopt -s expand_aliases; alias kill='kill -9' printf='echo aliased'",
        ],
    )
    def test_its_settings_change_nothing(
        self, shell: Shell, add: Callable[..., str], settings: str, hook: str
    ) -> None:
        add("one")
        text = "cbx card list -o id -0 | od -c; cbx card list --help | cat; cbx card list -o json; echo $?\n"
        assert shell.line(f"{settings}\n{hook}{text}") == shell.line(f"{settings}\n{text}")

    def test_a_pipe_that_nobody_reads_ends_the_command_alone(
        self, hooked: Hooked, add: Callable[..., str]
    ) -> None:
        add("words " * 100)
        ran = hooked("for i in 1 2 3; do cbx card list -o json > >(true); sleep .1; done; echo alive")
        assert (ran.code, ran.out) == (0, "alive\n"), ran.err

    def test_an_answer_that_comes_as_the_time_is_over_is_whole(
        self, shell: Shell, hook: str, tmp_path: Path
    ) -> None:
        ran = shell.line(
            hook
            + "at=${_cbx_requests%/requests}; server=$(declare -f cbx | grep -o 'kill -0 [0-9]*' | head -1)\n"
            "server=${server##* }; kill -STOP $server; printf hello >$at/1.0\n"
            "(sleep .5; printf 0; sleep 1; printf ' o\\n') >$at/1.status &\n"
            "cbx card list; echo $?; kill -CONT $server",
            TMPDIR=str(tmp_path),
        )
        assert (ran.out, ran.err) == ("hello0\n", "")

    def test_who_traps_an_interrupt_has_the_command_interrupted(
        self,
        hook: str,
        shell: Shell,
        database: Database,
        target: Target,
        box_of: Callable[..., str],
        tmp_path: Path,
    ) -> None:
        box = box_of(title="held")
        script = hook + f"trap 'echo trapped' INT; cbx box append {box} x-1 --allow-dangling; echo $?"
        with psycopg.connect(target.conninfo or "") as other:
            other.execute("SELECT FROM card_boxes FOR UPDATE")
            with subprocess.Popen(
                ["bash", "-c", script],
                env={**shell.environment, "TMPDIR": str(tmp_path)},
                cwd=shell.folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            ) as process:
                wait_until(lambda: waiting_for_a_lock(database) == 1)
                os.killpg(process.pid, signal.SIGINT)
                out, err = process.communicate(timeout=PATIENCE)
            wait_until(lambda: waiting_for_a_lock(database) == 0)
        assert (out, err) == ("trapped\n130\n", "\ninterrupted\n")

    def test_evaluated_again_it_ends_the_one_of_before(self, shell: Shell, hook: str, tmp_path: Path) -> None:
        hooks = tmp_path / "hooks"
        hooks.mkdir()
        ran = shell.line(hook * 3 + "sleep 1.5; ls $TMPDIR | wc -l; cbx --version", TMPDIR=str(hooks))
        assert ran.out == "1\ncbx 0.1.0\n"
        assert gone(hooks)

    def test_without_its_fifos_commands_are_processes(self, shell: Shell, hook: str, tmp_path: Path) -> None:
        ran = shell.line(hook + "rm $_cbx_requests; cbx --version; echo $?", TMPDIR=str(tmp_path))
        assert ran.out == "cbx 0.1.0\n0\n"


class TestEnds:
    def test_a_command_that_nobody_waits_for_is_interrupted(
        self, hooked: Hooked, add: Callable[..., str]
    ) -> None:
        card = add("hello")

        ran = hooked(
            "cbx card list -o id >/dev/null; (cbx card list -o json) & kill -9 $!; wait\n"
            "for n in {1..40}; do cbx card list -o id; done"
        )

        assert ran.out.split()[-40:] == [card] * 40

    @BOTH
    def test_a_command_during_which_the_co_process_died_is_not_repeated(
        self,
        name: str,
        hook: str,
        shell: Shell,
        database: Database,
        target: Target,
        box_of: Callable[..., str],
        tmp_path: Path,
    ) -> None:
        box = box_of(title="held")
        with psycopg.connect(target.conninfo or "") as other:
            other.execute("SELECT FROM card_boxes FOR UPDATE")
            script = (
                hook + "declare -f cbx | grep -o 'kill -0 [0-9]*' | head -1 | cut -d' ' -f3 >server\n"
                f"cbx box append {box} x-1 --allow-dangling; echo $?; cbx --version"
            )
            with subprocess.Popen(
                [*SHELLS[name], "-c", script],
                env={**shell.environment, "TMPDIR": str(tmp_path)},
                cwd=shell.folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            ) as process:
                wait_until(lambda: waiting_for_a_lock(database) == 1)
                os.kill(int((shell.folder / "server").read_text()), signal.SIGKILL)
                out, err = process.communicate(timeout=PATIENCE)

        assert out == "1\ncbx 0.1.0\n"
        assert err.startswith("error: the co-process of cbx ended amid this command\n")

    def test_options_and_files_are_refused(self, cbx: Cbx) -> None:
        assert cbx("shell", "--hook", "fish").code == 2
        assert cbx("-p", "x", "shell", "--hook", "bash").code == 2
        assert cbx("shell", "lines", "--hook", "bash").code == 2

    def test_a_shell_that_cannot_is_told_why_and_gets_nothing(self, shell: Shell) -> None:
        program("zsh")
        bash = shell.line(HOOK % "zsh" + "type -t cbx")
        zsh = shell.line(HOOK % "bash" + "whence -w cbx", by=SHELLS["zsh"])

        assert (bash.out, zsh.out) == ("file\n", "cbx: command\n")
        assert bash.err == (
            "cbx: no hook: it takes zsh 5 or newer, with its modules, and this is another shell; "
            "cbx works as before\n"
        )
        assert zsh.err == (
            "cbx: no hook: it takes bash 4.4 or newer, and this is another shell; cbx works as before\n"
        )
