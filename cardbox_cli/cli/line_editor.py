"""A terminal that is typed at: line editing, history and Tab, by Python's readline if there is one.

The history is a file of CBX_HOME that only its owner can read. What a line means, and what completes it, is
for who is talked to.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Protocol

from click.shell_completion import CompletionItem

from cardbox_cli.model.text.escaping import one_line
from cardbox_cli.store.connection.target import may_hold_password

REMEMBERED = 2000

# What is inserted, a space behind it where the word is whole, and what there is to say of it.
Matches = Sequence[tuple[str, CompletionItem]]


class Partner(Protocol):
    """Who a person talks to, a line at a time, until they have left. `history` names its file in CBX_HOME."""

    history: str

    @property
    def left(self) -> bool:
        """Whether the person wants to go."""

    @property
    def prompt(self) -> str:
        """What stands before the next line."""

    def run(self, line: str) -> object:
        """Do what a line says; failures are reported."""

    def matches(self, text: str) -> Matches:
        """What the last word of the text before the cursor can become."""


def converse(partner: Partner) -> int:
    """Ask for lines and run them until the person leaves; 0."""
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


def _editor(partner: Partner) -> "_Editor | None":
    try:
        import readline
    except ImportError:
        return None
    return _Editor(partner, readline)


class _Editor:
    """What readline does for the prompt."""

    def __init__(self, partner: Partner, readline: ModuleType) -> None:
        self._partner = partner
        self._readline = readline
        self._matches: list[str] = []
        self._descriptions: dict[str, str] = {}
        self._history = _history_file(partner.history)
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
            text = self._readline.get_line_buffer()[: self._readline.get_endidx()]
            found = self._partner.matches(text)
            self._descriptions = {value: item.help or "" for value, item in found}
            self._matches = [value for value, _ in found]
        return self._matches[state] if state < len(self._matches) else None

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
        print(self._partner.prompt + self._readline.get_line_buffer(), end="", flush=True)


def _history_file(name: str) -> Path | None:
    """The file of the history, made if it is not there; None where it cannot be."""
    from cardbox_cli.home import default_home, make_home

    home = default_home(os.environ)
    try:
        make_home(home)
        descriptor = os.open(home / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        os.close(descriptor)
        (home / name).chmod(0o600)
    except OSError:
        return None
    return home / name
