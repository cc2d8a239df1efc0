"""`cbx shell`: many commands in one process and on one connection, a line each.

Owns how lines are read, run and counted. What a terminal adds (prompt, history, Tab) is `cli/prompt.py`.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from cardbox_cli.cli import boundary
from cardbox_cli.cli.commands import everyday, examples
from cardbox_cli.cli.inputs import read_text, source_name, standard_input
from cardbox_cli.cli.main import root
from cardbox_cli.cli.session import OwnProcess, Session, announce, session
from cardbox_cli.errors import InvalidInput, UsageError

if TYPE_CHECKING:
    from cardbox_cli.store.database import Database
    from cardbox_cli.store.target import Target

LEAVE = ("exit", "quit")

app = everyday("Run commands line by line: one process, one connection.")


@app.command(
    epilog=examples(
        "  cbx -p demo shell\n"
        "  cbx shell nightly.cbx --keep-going\n"
        "  cbx box list -o id | sed 's/^/box verify /' | cbx shell -"
    )
)
def command(
    file: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help="Commands, one a line; - for stdin. Default: the terminal."),
    ] = None,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", "-k", help="Run the lines after a failure, too.")
    ] = False,
) -> int:
    """Run commands, one a line, with or without `cbx` before them; # begins a comment.

    Stops at the first failure, with its exit code. On a terminal it asks for lines and goes on after a
    failure; Tab completes, and Ctrl-D, exit or quit leave. Common options given here are those of each line
    that has none of its own.
    """
    if isinstance(session().ground, Shell):
        raise UsageError("a shell does not start another one", hint="go on in this one")
    with Shell(session()) as shell:
        if file is None and sys.stdin.isatty() and sys.stdout.isatty():
            from cardbox_cli.cli.prompt import converse

            return converse(shell)
        with _script(file or "-") as lines:
            return shell.run_script(lines, source_name(file or "-"), keep_going=keep_going)


class Shell(OwnProcess):
    """The ground of commands that share a process. `settings` are what each of them starts from."""

    def __init__(self, settings: Session) -> None:
        from cardbox_cli.store.kept import KeptDatabase

        self.settings = replace(settings, ground=self)
        self.left = False
        self._kept = KeptDatabase()
        self._commands = root()

    def __enter__(self) -> "Shell":
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.close()

    def run_script(self, lines: Iterable[str], name: str, *, keep_going: bool) -> int:
        """Run lines to the first failure, or to the end; the exit code of the first that failed."""
        failed = 0
        for number, line in enumerate(lines, 1):
            code = self.run(line)
            if self.left:
                break
            if code:
                announce(f"{name}:{number}: exit code {code}")
                failed = failed or code
                if not keep_going or code in (boundary.INTERRUPTED, boundary.PIPE_CLOSED):
                    return code
        return failed

    def run(self, line: str) -> int:
        """Run one line; its exit code, its failure told. Nothing that it was told stays for the next one."""
        own = replace(self.settings)
        try:
            words = split(line)
        except UsageError as exc:
            return boundary.run(_raising(exc), line.split(), own)
        if len(words) == 1 and words[0] in LEAVE:
            self.left = True
            return 0
        words = without_prefix(words)
        if not words:
            return 0

        def run_words() -> object:
            return self._commands.main(words, prog_name="cbx", standalone_mode=False, obj=own)

        return boundary.run(run_words, words, own)

    # --- the ground of a command

    def database(self, target: "Target") -> "AbstractContextManager[Database]":
        """The connection of this shell, or one to the other database that the line names."""
        return self._kept.lend(target)

    def hand_over(self, program: str, arguments: Sequence[str], environment: Mapping[str, str]) -> int:
        """Run the program as a child, the terminal its own; its exit code."""
        sys.stdout.flush()
        # Ctrl-C is for the program. Not SIG_IGN, which the child would inherit.
        ours = signal.signal(signal.SIGINT, lambda *_: None)
        try:
            code = subprocess.call([program, *arguments], env=environment, stdin=sys.stdin)
        finally:
            signal.signal(signal.SIGINT, ours)
        return code if code >= 0 else 128 - code


def split(line: str) -> list[str]:
    """The words of a line, quoted as in a shell, without its comment. Raises UsageError."""
    words: list[str] = []
    rest = line.lstrip(_SPACE)
    while rest and not rest.startswith("#"):
        word = _WORD.match(rest)
        if word is None:
            raise UsageError(
                f"{rest[:40].rstrip()!r} has no end", hint="close the quotes; a command is a line by itself"
            )
        words += shlex.split(word[0])
        rest = rest[word.end() :].lstrip(_SPACE)
    return words


_SPACE = " \t\r\n"
_WORD = re.compile(r"""(?:[^ \t\r\n'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+""", re.DOTALL)


def without_prefix(words: list[str]) -> list[str]:
    """The words of the command: a leading `cbx` says nothing, and `help X` means `X --help`."""
    if words[:1] == ["help"]:
        return [*words[1:], "--help"]
    return words[1:] or ["--help"] if words[:1] == ["cbx"] else words


def _raising(exc: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise exc

    return fail


@contextmanager
def _script(path: str) -> Iterator[Iterable[str]]:
    """The lines of a file, or those of standard input as they come; the commands then find that empty."""
    if path != "-":
        yield read_text(path).split("\n")
        return
    source, lines = sys.stdin, standard_input()
    with open(os.devnull) as nothing:
        sys.stdin = nothing
        try:
            yield _decoded(iter(lines.readline, b""))
        finally:
            sys.stdin = source


def _decoded(lines: Iterable[bytes]) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as exc:
            raise InvalidInput(f"standard input:{number} is not UTF-8", hint="convert it") from exc
