"""Runs many commands in one process and on one connection: the lines of a script, or of a prompt.

The prompt has line editing, completion and history if Python has readline. The history is a file of CBX_HOME
that only its owner can read.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from glob import escape, glob
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Protocol, Self

from click.shell_completion import CompletionItem

from cardbox_cli.cli import boundary
from cardbox_cli.cli.command_table import root
from cardbox_cli.cli.completion_candidates import Completions, complete_words, split_unfinished
from cardbox_cli.cli.options.input_files import read_text, standard_input
from cardbox_cli.cli.options.value_types import FILES
from cardbox_cli.cli.session import ProcessContext, Session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.errors import InvalidInput, UsageError
from cardbox_cli.limits import VALUE_SIZE
from cardbox_cli.store.connection.target import may_hold_password
from cardbox_cli.text.escaping import excerpt, is_visible

if TYPE_CHECKING:
    from cardbox_cli.store.connection.database import Database
    from cardbox_cli.store.connection.target import Target


LEAVE = ("exit", "quit")
USE = "use"

# Maximum bytes of a line of a script.
_MAX_LINE = VALUE_SIZE.value << 20


class Shell(ProcessContext):
    """The process of commands that share a connection. Each command starts with a copy of `settings`."""

    history = "shell_history"

    def __init__(self, settings: Session) -> None:
        from cardbox_cli.store.connection.connection_pool import CachedDatabase

        self.settings = replace(settings, process=self)
        self.left = False
        self._cached = CachedDatabase()
        self._commands = root()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cached.close()

    def run_script(self, lines: Iterable[str], name: str, *, keep_going: bool) -> int:
        """Run lines up to the end, or without `keep_going` up to the first failure; return its exit code."""
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
        """Run one line, report its failure, and return the exit code. Its options affect no later lines."""
        try:
            words = split(line)
        except UsageError as exc:
            return self.refuse(exc, line.split())
        if len(words) == 1 and words[0] in LEAVE:
            self.left = True
            return 0
        if words[:1] == ["cbx"]:
            words = words[1:] or ["--help"]
        if not words:
            return 0
        if words[0] == USE:
            return boundary.run(lambda: self._use(words[1:]), words, replace(self.settings))
        return self.run_words(words)

    def refuse(self, error: UsageError, words: Sequence[str]) -> int:
        """Report an invalid line and return the exit code."""

        def fail() -> None:
            raise error

        return boundary.run(fail, words, replace(self.settings))

    def run_words(self, words: list[str]) -> int:
        own = replace(self.settings)
        run = partial(self._commands.main, words, prog_name="cbx", standalone_mode=False, obj=own)
        return boundary.run(run, words, own)

    def _use(self, words: list[str]) -> None:
        if len(words) != 1:
            raise UsageError("`use` takes one project", hint="list the projects with `cbx project list`")
        chosen = replace(self.settings, project_id=words[0])
        chosen.check_project()
        self.settings = chosen

    @property
    def prompt(self) -> str:
        return f"cbx {excerpt(self.settings.project_id, 30)}> "

    def matches(self, text: str) -> "Matches":
        """Return the commands, options and values that other shells complete, and this shell's own words."""
        words = split_unfinished(text)
        is_prefixed = len(words) > 1 and words[0] in ("cbx", "help")
        # Use a copy, because the project and database of a line must not affect later lines.
        completions = complete_words(words[1:] if is_prefixed else words, replace(self.settings))
        return [*_shell_words(words), *_quote_values(completions, words[-1])]

    # --- the context of a command

    def database(self, target: "Target") -> "AbstractContextManager[Database]":
        """Return the connection of this shell, or one to the database that the line names."""
        return self._cached.borrow(target)

    def run_program(self, program: str, arguments: Sequence[str], environment: Mapping[str, str]) -> int:
        """Run the program as a child with the terminal, and return its exit code."""
        sys.stdout.flush()
        # Ctrl-C is for the program. The handler is not SIG_IGN, because the child would inherit that.
        handler = signal.signal(signal.SIGINT, lambda *_: None)
        try:
            code = subprocess.call([program, *arguments], env=environment, stdin=sys.stdin, close_fds=False)
        finally:
            signal.signal(signal.SIGINT, handler)
        return code if code >= 0 else 128 - code


def split(line: str) -> list[str]:
    """Return the words of a line, quoted as in a shell, without its comment. Raises UsageError."""
    words: list[str] = []
    rest = line.lstrip(_SPACE)
    while rest and not rest.startswith("#"):
        word = _WORD.match(rest)
        if word is None:
            if rest.startswith("\\"):
                raise UsageError(
                    "the line ends with a backslash",
                    hint="write the command on one line, or quote the backslash",
                )
            raise UsageError(
                f"unclosed quotes: {rest[:40].rstrip()}", hint="close the quotes on the same line"
            )
        _refuse_redirection(word[0], line)
        words += shlex.split(word[0])
        rest = rest[word.end() :].lstrip(_SPACE)
    return words


def _refuse_redirection(word: str, line: str) -> None:
    bare = _QUOTED.sub("", word)
    refused = bare if bare in (";", "&", "&&") else next((mark for mark in "|<>" if mark in bare), None)
    if refused is not None:
        raise UsageError(
            f"cbx shell does not support {refused!r}: run one command per line",
            hint=f"quote it, or use your own shell: cbx {line.strip().removeprefix('cbx ')}",
        )


_QUOTED = re.compile(r"""\\.|'[^']*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
_SPACE = " \t\r\n"
_WORD = re.compile(r"""(?:[^ \t\r\n'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+""", re.DOTALL)


@contextmanager
def open_script(path: str) -> Iterator[Iterable[str]]:
    """Yield the lines of a file, or of stdin as they arrive. Commands then get an empty stdin."""
    if path != "-":
        yield read_text(path).split("\n")
        return
    source, lines = sys.stdin, standard_input()
    with open(os.devnull) as nothing:
        sys.stdin = nothing
        try:
            yield _decode_lines(iter(partial(lines.readline, _MAX_LINE + 1), b""))
        finally:
            sys.stdin = source


def _decode_lines(lines: Iterable[bytes]) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if len(line) > _MAX_LINE:
            raise InvalidInput(f"standard input:{number}: the line is longer than {VALUE_SIZE}")
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as exc:
            raise InvalidInput(
                f"standard input:{number} is not UTF-8",
                hint="convert the input to UTF-8, for example with iconv",
            ) from exc


# --- the prompt

REMEMBERED = 2000

# The text to insert, with a space after a complete word, and its description.
Matches = Sequence[tuple[str, CompletionItem]]


class Repl(Protocol):
    """The reader of a prompt's lines. `history` is the name of its history file in CBX_HOME."""

    history: str
    left: bool

    @property
    def prompt(self) -> str: ...

    def run(self, line: str) -> object: ...

    def matches(self, text: str) -> Matches:
        """Return the completions of the last word before the cursor."""


def run_repl(partner: Repl) -> int:
    """Read lines and run them until the person leaves; return 0."""
    editor = _editor(partner)
    while not partner.left:
        try:
            line = input(partner.prompt)
            if editor is not None:
                editor.remember(line)
            partner.run(line)
        except EOFError:
            print()
            break
        except KeyboardInterrupt:
            print()
    return 0


def _editor(partner: Repl) -> "_Editor | None":
    try:
        import readline
    except ImportError:
        return None
    return _Editor(partner, readline)


class _Editor:
    """Line editing, completion and history by readline."""

    def __init__(self, partner: Repl, readline: ModuleType) -> None:
        self._partner = partner
        self._readline = readline
        self._matches: list[str] = []
        self._descriptions: dict[str, str] = {}
        self._history = _history_file(partner.history)
        # Answers to questions do not belong in the history.
        readline.set_auto_history(False)
        readline.set_history_length(REMEMBERED)
        if self._history is not None:
            with suppress(OSError):
                readline.read_history_file(self._history)
        readline.set_completer_delims(" \t\n")
        readline.set_completer(self._complete)
        if "libedit" in (readline.__doc__ or ""):
            readline.parse_and_bind("bind ^I rl_complete")
        else:
            readline.parse_and_bind("tab: complete")
            readline.set_completion_display_matches_hook(self._show)

    def remember(self, line: str) -> None:
        """Add a line to the history, unless it repeats the last one or may contain a password."""
        last = self._readline.get_current_history_length()
        if (
            not line.strip()
            or may_hold_password(line)
            or (last and self._readline.get_history_item(last) == line)
        ):
            return
        self._readline.add_history(line)
        if self._history is not None:
            with suppress(OSError):
                self._readline.append_history_file(1, self._history)

    def _complete(self, text: str, state: int) -> str | None:
        if state == 0:
            self._matches = []
            # readline ignores exceptions, so clear the matches first.
            text = self._readline.get_line_buffer()[: self._readline.get_endidx()]
            matches = self._partner.matches(text)
            self._descriptions = {value: item.help or "" for value, item in matches}
            self._matches = [value for value, _ in matches]
        return self._matches[state] if state < len(self._matches) else None

    def _show(self, _: str, matches: Sequence[str], __: int) -> None:
        """Print the matches with their descriptions, then the prompt and the line again."""
        shown = [match for match in self._matches if match in matches]  # readline has sorted them
        width = max(len(match.rstrip()) for match in shown)
        columns = os.get_terminal_size().columns if sys.stdout.isatty() else 80
        print()
        for match in shown:
            description = self._descriptions[match]
            text = excerpt(description, max(10, columns - width - 3))
            print(f"{match.rstrip().ljust(width)}  {text}".rstrip())
        print(self._partner.prompt + self._readline.get_line_buffer(), end="", flush=True)


def _history_file(name: str) -> Path | None:
    """Return the history file, which is created if it is missing, or None if that fails."""
    from cardbox_cli.home import default_home, make_home

    file = default_home() / name
    try:
        make_home(file.parent)
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600))
        file.chmod(0o600)
    except OSError:
        return None
    return file


def _shell_words(words: list[str]) -> list[tuple[str, CompletionItem]]:
    known = {
        "help": "Show the help of a command.",
        USE: "Switch to another project.",
        **dict.fromkeys(LEAVE, "Leave the shell."),
    }
    return [
        (f"{word} ", CompletionItem(word, help=description))
        for word, description in known.items()
        if len(words) == 1 and word.startswith(words[0])
    ]


def _quote_values(completions: Completions, typed: str) -> Iterator[tuple[str, CompletionItem]]:
    """Yield the text to insert for each item, quoted and followed by a space."""
    for item in completions.items:
        if item.type == FILES:
            value = typed.removeprefix(completions.prefix)
            for path in filter(is_visible, sorted(glob(escape(os.path.expanduser(value)) + "*"))):
                yield completions.prefix + shlex.quote(path) + ("/" if os.path.isdir(path) else " "), item
        else:
            yield f"{completions.prefix}{shlex.quote(str(item.value))} ", item
