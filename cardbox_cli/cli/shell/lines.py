"""The lines of `cbx shell`: how each is split into words, run and counted, on one connection.

What a terminal adds is `typed.py`.
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
from functools import partial
from typing import TYPE_CHECKING, Self

from cardbox_cli.cli import boundary
from cardbox_cli.cli.command_table import root
from cardbox_cli.cli.options.input_files import read_text, standard_input
from cardbox_cli.cli.session import ProcessContext, Session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.errors import InvalidInput, UsageError
from cardbox_cli.limits import VALUE_SIZE

if TYPE_CHECKING:
    from cardbox_cli.store.connection.database import Database
    from cardbox_cli.store.connection.target import Target

LEAVE = ("exit", "quit")
USE = "use"

# Bytes of a line of a script.
_MOST = VALUE_SIZE.value << 20


class Shell(ProcessContext):
    """The context of commands that share a process. `settings` are what each of them starts from."""

    def __init__(self, settings: Session) -> None:
        from cardbox_cli.store.connection.cached import CachedDatabase

        self.settings = replace(settings, process=self)
        self.left = False
        self._cached = CachedDatabase()
        self._commands = root()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cached.close()

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
        """Run one line; its exit code, its failure reported. None of its options stay for the next one."""
        try:
            words = split(line)
        except UsageError as exc:
            return self.refuse(exc, line.split())
        if len(words) == 1 and words[0] in LEAVE:
            self.left = True
            return 0
        words = without_prefix(words)
        if not words:
            return 0
        if words[0] == USE:
            return boundary.run(lambda: self._use(words[1:]), words, replace(self.settings))
        return self.run_words(words)

    def refuse(self, error: UsageError, words: Sequence[str]) -> int:
        """Report what is wrong with a line; the exit code."""
        return boundary.run(_raising(error), words, replace(self.settings))

    def run_words(self, words: list[str]) -> int:
        """Run a command by its words; its exit code, its failure reported."""
        own = replace(self.settings)

        def run_words() -> object:
            return self._commands.main(words, prog_name="cbx", standalone_mode=False, obj=own)

        return boundary.run(run_words, words, own)

    def _use(self, words: list[str]) -> None:
        """Go on in another project. Raises UsageError."""
        if len(words) != 1:
            raise UsageError("`use` takes one project", hint="`project list` shows them")
        chosen = replace(self.settings, project_id=words[0])
        chosen.check_project()
        self.settings = chosen

    # --- the context of a command

    def database(self, target: "Target") -> "AbstractContextManager[Database]":
        """The connection of this shell, or one to the other database that the line names."""
        return self._cached.lend(target)

    def run_program(self, program: str, arguments: Sequence[str], environment: Mapping[str, str]) -> int:
        """Run the program as a child, the terminal its own; its exit code."""
        sys.stdout.flush()
        # Ctrl-C is for the program. Not SIG_IGN, which the child would inherit.
        ours = signal.signal(signal.SIGINT, lambda *_: None)
        try:
            code = subprocess.call([program, *arguments], env=environment, stdin=sys.stdin, close_fds=False)
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
        _refuse_redirection(word[0], line)
        words += shlex.split(word[0])
        rest = rest[word.end() :].lstrip(_SPACE)
    return words


def _refuse_redirection(word: str, line: str) -> None:
    """Raise UsageError for what a shell would take for a pipe, a file, or the end of a command."""
    bare = _QUOTED.sub("", word)
    found = bare if bare in (";", "&", "&&") else next((mark for mark in "|<>" if mark in bare), None)
    if found is not None:
        raise UsageError(
            f"{found!r} is no part of a command: a line here is one command, without pipes or files",
            hint=f"quote it, or ask a shell: cbx {line.strip().removeprefix('cbx ')}",
        )


_QUOTED = re.compile(r"""\\.|'[^']*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
_SPACE = " \t\r\n"
_WORD = re.compile(r"""(?:[^ \t\r\n'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+""", re.DOTALL)


def without_prefix(words: list[str]) -> list[str]:
    """The words of the command: a leading `cbx` says nothing."""
    return words[1:] or ["--help"] if words[:1] == ["cbx"] else words


def _raising(exc: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise exc

    return fail


@contextmanager
def script(path: str) -> Iterator[Iterable[str]]:
    """The lines of a file, or those of standard input as they come; the commands then find that empty."""
    if path != "-":
        yield read_text(path).split("\n")
        return
    source, lines = sys.stdin, standard_input()
    with open(os.devnull) as nothing:
        sys.stdin = nothing
        try:
            yield _decoded(iter(partial(lines.readline, _MOST + 1), b""))
        finally:
            sys.stdin = source


def _decoded(lines: Iterable[bytes]) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if len(line) > _MOST:
            raise InvalidInput(f"standard input:{number} is a line of more than {VALUE_SIZE}")
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as exc:
            raise InvalidInput(f"standard input:{number} is not UTF-8", hint="convert it") from exc
