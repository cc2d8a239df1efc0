"""The terminal of `cbx shell`: prompt, line editing, history and Tab, by Python's readline if there is one.

The history is a file of CBX_HOME that only its owner can read.
"""

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from glob import escape, glob
from pathlib import Path
from types import ModuleType

from click.shell_completion import CompletionItem

from cardbox_cli import __version__
from cardbox_cli.cli.completion.candidates import Offers, offers, words_of
from cardbox_cli.cli.escaping import one_line
from cardbox_cli.cli.parameters.types import FILES
from cardbox_cli.cli.session import announce
from cardbox_cli.cli.shell.lines import LEAVE, USE, Shell
from cardbox_cli.model.text.visible_text import is_visible
from cardbox_cli.store.connection.target import may_hold_password

HISTORY = "shell_history"
REMEMBERED = 2000


def converse(shell: Shell) -> int:
    """Ask for lines and run them until the person leaves; 0."""
    announce(f"cbx {__version__}: `help` lists the commands, Tab completes, Ctrl-D leaves")
    editor = _editor(shell)
    while not shell.left:
        try:
            line = input(_prompt(shell))
            if editor is not None:
                editor.remember(line)
            shell.run(line)
        except EOFError:
            print()
            break
        except KeyboardInterrupt:
            print()
    return 0


def _prompt(shell: Shell) -> str:
    return f"cbx {one_line(shell.settings.project_id, 30)}> "


def _editor(shell: Shell) -> "_Editor | None":
    try:
        import readline
    except ImportError:
        return None
    return _Editor(shell, readline)


class _Editor:
    """What readline does for the prompt."""

    def __init__(self, shell: Shell, readline: ModuleType) -> None:
        self._shell = shell
        self._readline = readline
        self._matches: list[str] = []
        self._descriptions: dict[str, str] = {}
        self._history = _history_file()
        # The answers to questions are no commands.
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
        """Add a line to the history, unless it says nothing new or may hold a password."""
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
            # readline swallows what is raised here; half an answer must not be left of it.
            found = self._found()
            self._descriptions = {value: item.help or "" for value, item in found}
            self._matches = [value for value, _ in found]
        return self._matches[state] if state < len(self._matches) else None

    def _found(self) -> list[tuple[str, CompletionItem]]:
        words = words_of(self._readline.get_line_buffer()[: self._readline.get_endidx()])
        # A copy: what the line says of project and database is not for the lines after it.
        session = replace(self._shell.settings)
        found = offers(_behind_prefix(words), session)
        return [*_own_words(words), *_quoted(found, words[-1])]

    def _show(self, _: str, matches: Sequence[str], __: int) -> None:
        """List the matches with what there is to say of them, and go on with the line below."""
        listed = [match for match in self._matches if match in matches]  # readline has sorted them
        width = max(len(match.rstrip()) for match in listed)
        columns = os.get_terminal_size().columns if sys.stdout.isatty() else 80
        print()
        for match in listed:
            description = self._descriptions[match]
            text = one_line(description, max(10, columns - width - 3))
            print(f"{match.rstrip().ljust(width)}  {text}".rstrip())
        print(_prompt(self._shell) + self._readline.get_line_buffer(), end="", flush=True)


def _behind_prefix(words: list[str]) -> list[str]:
    """The words without a leading `cbx` or `help` that is complete."""
    return words[1:] if len(words) > 1 and words[0] in ("cbx", "help") else words


def _own_words(words: list[str]) -> list[tuple[str, CompletionItem]]:
    known = {
        "help": "What a command takes.",
        USE: "Go on in another project.",
        **dict.fromkeys(LEAVE, "Leave the shell."),
    }
    if len(words) > 1:
        return []
    return [
        (f"{word} ", CompletionItem(word, help=description))
        for word, description in known.items()
        if word.startswith(words[0])
    ]


def _quoted(found: Offers, given: str) -> Iterator[tuple[str, CompletionItem]]:
    """What is inserted for each item: quoted where it must be, and a space behind it."""
    for item in found.items:
        if item.type == FILES:
            value = given.removeprefix(found.prefix)
            for path in filter(is_visible, sorted(glob(escape(os.path.expanduser(value)) + "*"))):
                yield found.prefix + shlex.quote(path) + ("/" if os.path.isdir(path) else " "), item
        else:
            yield f"{found.prefix}{shlex.quote(str(item.value))} ", item


def _history_file() -> Path | None:
    """The file of the history, made if it is not there; None where it cannot be."""
    from cardbox_cli.home import default_home, make_home

    home = default_home(os.environ)
    try:
        make_home(home)
        descriptor = os.open(home / HISTORY, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        os.close(descriptor)
        (home / HISTORY).chmod(0o600)
    except OSError:
        return None
    return home / HISTORY
