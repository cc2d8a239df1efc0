"""Completes a command line that is being typed.

click finds the position in the tree of commands, and asks the type of the expected value for completions
(`options/value_types.py`). The scripts in `completion_scripts/` pass the line and read the printed rows.
"""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from click.shell_completion import CompletionItem, ShellComplete, split_arg_string

from cardbox_cli.cli.command_table import COMPLETING, root
from cardbox_cli.cli.options.value_types import FILES
from cardbox_cli.cli.session import ProcessContext, Session
from cardbox_cli.text.escaping import excerpt, is_visible

if TYPE_CHECKING:
    from cardbox_cli.store.connection.database import Database
    from cardbox_cli.store.connection.target import Target


# The scripts of `cbx completion` set this variable to the command line up to the cursor.
LINE = "_CBX_LINE"
SECONDS = 0.3


def answer(shell: str) -> int:
    """Print the rows that a script of `cbx completion` reads. Failures print nothing."""
    try:
        session = Session(process=_TimeLimitedProcess())
        session.configure(root().verbs)
        completions = complete_words(_words_after_command(os.environ[LINE]), session)
        rows = [_row(shell, completions.prefix, item) for item in completions.items]
        sys.stdout.buffer.write("".join(rows).encode("utf-8", "replace"))
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt):
        return 1
    return 0


class _TimeLimitedProcess(ProcessContext):
    """A process that ends itself after `SECONDS` of reading the database.

    The process must end, because no exception can interrupt a name lookup or a network read in C code.
    """

    @contextmanager
    def completion_database(self, target: "Target") -> "Iterator[Database]":
        import faulthandler

        with open(os.devnull, "w") as nowhere:
            faulthandler.dump_traceback_later(SECONDS, exit=True, file=nowhere)
            try:
                with super().completion_database(target) as database:
                    yield database
            finally:
                faulthandler.cancel_dump_traceback_later()


@dataclass(frozen=True)
class Completions:
    """The completions at the cursor. `prefix` is the part of the word before a value, such as `--box=`."""

    prefix: str
    items: Sequence[CompletionItem]


def complete_words(words: Sequence[str], session: Session) -> Completions:
    """Return the completions of the last word. Common options among `words` change `session`."""
    *complete, given = words
    shell = ShellComplete(root(), {"obj": session}, "cbx", COMPLETING)
    candidates = shell.get_completions(list(complete), given)
    items = [item for item in candidates if _can_be_typed(str(item.value), given)]
    option, equals, _ = given.partition("=")
    return Completions(option + equals if equals and option.startswith("--") else "", items)


def _can_be_typed(value: str, given: str) -> bool:
    """Return whether to offer a value: it must be visible. Options are offered only if `given` is one."""
    return is_visible(value) and (given.startswith("-") or not value.startswith("-"))


def split_unfinished(line: str) -> list[str]:
    """Return the words of an unfinished line. The last word is the one at its end, or "" after a space."""
    # The mark shows whether the line ends within a word. It also follows a backslash at the end of the line.
    mark = "\0"
    words = split_arg_string(line + mark)
    return [*words[:-1], words[-1].removesuffix(mark)]


def _words_after_command(line: str) -> list[str]:
    """Return the words after `cbx` in a shell's line, which may begin with variables."""
    words = split_unfinished(line)
    while words and re.match(r"\w+=", words[0]):
        words.pop(0)
    return words[1:] or [""]


def _row(shell: str, prefix: str, item: CompletionItem) -> str:
    value = str(item.value)
    if shell == "bash":
        # bash treats the part before "=" as a word of its own, and inserts values without quotes.
        value = re.sub(r"^~|[^\w@%+=:,./~-]", r"\\\g<0>", value)
    elif item.type != FILES:
        value = prefix + value
    return f"{item.type}\t{value}\t{excerpt(item.help or '', 80)}\n"
