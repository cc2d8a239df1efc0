"""`cbx shell` as it is typed: its prompt, and what completes a line of it."""

import os
import shlex
from collections.abc import Iterator
from dataclasses import replace
from glob import escape, glob

from click.shell_completion import CompletionItem

from cardbox_cli.cli.completion_candidates import Offers, offers, words_of
from cardbox_cli.cli.line_editor import Matches
from cardbox_cli.cli.options.value_types import FILES
from cardbox_cli.cli.shell.lines import LEAVE, USE, Shell
from cardbox_cli.model.text.escaping import one_line
from cardbox_cli.model.text.visible_text import is_visible


class TypedShell:
    """A shell that a person types at."""

    history = "shell_history"

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    @property
    def left(self) -> bool:
        """Whether they said so."""
        return self._shell.left

    @property
    def prompt(self) -> str:
        """The project."""
        return f"cbx {one_line(self._shell.settings.project_id, 30)}> "

    def run(self, line: str) -> None:
        """Run a line."""
        self._shell.run(line)

    def matches(self, text: str) -> Matches:
        """Commands, options and values, as the completion of a shell has them, and the words of this one."""
        words = words_of(text)
        # A copy: what the line says of project and database is not for the lines after it.
        found = offers(_behind_prefix(words), replace(self._shell.settings))
        return [*_own_words(words), *_quoted(found, words[-1])]


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
