"""What can stand next on a command line that is being typed.

click finds the place in the tree of commands; what kind of value stands there is told by its metavar, so
that an option is completed as its help reads: BOX, CARD, PROFILE, AGENT, TOOL, TURN, FILE, NAME, TYPE, or the
words themselves, as in openai|text. Looks at the database read-only, only where ids and names of it are asked
for.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, ShellComplete, split_arg_string

from cardbox_cli.cli.root import COMPLETING, root
from cardbox_cli.cli.session import Session
from cardbox_cli.cli.terminal.escaping import one_line
from cardbox_cli.cli.tree import LazyGroup, verbs

if TYPE_CHECKING:
    from cardbox_cli.store.connection.database import Database
    from cardbox_cli.store.connection.target import Target

# Set by the scripts of `cbx completion`: the command line up to the cursor.
LINE = "_CBX_LINE"
SECONDS = 0.3
FILES = "file"

Look = Callable[["Target"], AbstractContextManager["Database"]]
Pairs = Iterable[tuple[str, str]]


def answer(shell: str) -> int:
    """Print the rows that a script of `cbx completion` reads: kind, value and description between tabs.

    Whatever is wrong, the person who types hears nothing of it.
    """
    try:
        found = offers(_after_the_command(os.environ[LINE]), Session(), _hurried_look)
        rows = [_row(shell, found.prefix, item) for item in found.items]
        sys.stdout.buffer.write("".join(rows).encode("utf-8", "replace"))
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt):
        return 1
    return 0


@dataclass(frozen=True)
class Offers:
    """What can stand at the cursor. `prefix` is what of the word stays before a value, as in `--box=`."""

    prefix: str
    items: Sequence[CompletionItem]


def offers(words: Sequence[str], session: Session, look: Look) -> Offers:
    """What the last of `words`, the beginning of one, can become. `session` takes their common options."""

    class Tree(_CompletingTree):
        """The commands, their values completed by this look."""

        values = _Values(look)

    *complete, typed = words
    click_side = ShellComplete(root(Tree), {"obj": session}, "cbx", COMPLETING)
    items = click_side.get_completions(list(complete), typed)
    option, equals, _ = typed.partition("=")
    return Offers(option + equals if equals and option.startswith("--") else "", items)


def words_of(line: str) -> list[str]:
    """The words of an unfinished line; the last is the one at its end, empty after a space."""
    # The mark shows whether the line ends within a word, and keeps a last backslash from being one.
    mark = "\0"
    words = split_arg_string(line + mark)
    return [*words[:-1], words[-1].removesuffix(mark)]


def _after_the_command(line: str) -> list[str]:
    """The words behind `cbx` in a shell's line, which may set variables for the command before it."""
    words = words_of(line)
    while words and re.match(r"\w+=", words[0]):
        words.pop(0)
    return words[1:] or [""]


def _row(shell: str, prefix: str, item: CompletionItem) -> str:
    value = str(item.value)
    if shell == "bash":
        # It takes what stands before a "=" for a word of its own, and inserts what it gets as it is.
        value = re.sub(r"([^\w@%+=:,./~-])", r"\\\1", value)
    elif item.type != FILES:
        value = prefix + value
    return f"{item.type}\t{value}\t{one_line(item.help or '', 80)}\n"


@contextmanager
def _hurried_look(target: "Target") -> "Iterator[Database]":
    """A glance at the database that may take `SECONDS`; then this process is no more.

    Nothing less stops a name lookup or a silent network: they wait in C, out of reach of any exception.
    """
    import faulthandler

    from cardbox_cli.store.views.completion import glance

    with open(os.devnull, "w") as nowhere:
        faulthandler.dump_traceback_later(SECONDS, exit=True, file=nowhere)
        try:
            with glance(target, milliseconds=int(SECONDS * 1000)) as database:
                yield database
        finally:
            faulthandler.cancel_dump_traceback_later()


class _CompletingTree(LazyGroup):
    values: "_Values"

    def _load(self, name: str) -> click.Command:
        command = super()._load(name)
        self._tell_values(command)
        return command

    def _tell_values(self, command: click.Command) -> None:
        for parameter in command.params:
            offer = self.values.of(parameter)
            if offer is not None:
                parameter.type = _Completed(offer)
        if isinstance(command, click.Group):
            for child in verbs(command).values():
                self._tell_values(child)


Offer = Callable[[Session, str], list[CompletionItem]]


class _Completed(click.types.StringParamType):
    """A value that is a text as it is typed, and can be completed."""

    def __init__(self, offer: Offer) -> None:
        self.offer = offer

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """What begins with what is typed. Nothing where the database is not there to say it."""
        return self.offer(ctx.find_root().obj, incomplete)


def kind_of(parameter: click.Parameter) -> str:
    """What kind of value a parameter takes: its metavar without what says how many."""
    return (parameter.metavar or "").strip("[]").removesuffix("...")


class _Values:
    """What there is of each kind of value."""

    def __init__(self, look: Look) -> None:
        self.look = look

    def of(self, parameter: click.Parameter) -> Offer | None:
        """How the values of `parameter` are completed, if they are."""
        kind = kind_of(parameter)
        if _WORDS.fullmatch(kind):
            words = kind.split("|")
            return lambda _, typed: _beginning(typed, ((word, "") for word in words))
        offers: dict[str, Offer] = {
            "BOX": self._boxes,
            "CARD": self._cards,
            "PROFILE": self._profiles,
            "AGENT": self._agents,
            "TOOL": self._tools,
            "TURN": self._turns,
            "STEP": lambda _, typed: _beginning(typed, [("next", "the step that has not begun")]),
            "A B": lambda session, typed: [*self._boxes(session, typed), *self._turns(session, typed)],
            "INBOX": self._inbox,
            "TYPE": _types,
            "FILE": _files,
            "FILE|NAME": _recipes,
        }
        return offers.get(kind)

    def _boxes(self, session: Session, typed: str) -> list[CompletionItem]:
        from cardbox_cli.store.views.completion import recent_boxes

        return self._seen(
            session, typed, lambda database: _ids(recent_boxes(database, session.project_id), typed)
        )

    def _cards(self, session: Session, typed: str) -> list[CompletionItem]:
        from cardbox_cli.store.views.completion import recent_cards

        return self._seen(
            session, typed, lambda database: _ids(recent_cards(database, session.project_id), typed)
        )

    def _profiles(self, session: Session, typed: str) -> list[CompletionItem]:
        from cardbox_cli.store.views.completion import profile_names

        return self._seen(session, typed, lambda database: profile_names(database, session.project_id))

    def _agents(self, session: Session, typed: str) -> list[CompletionItem]:
        from cardbox_cli.store.views.completion import agent_ids

        return self._seen(session, typed, lambda database: agent_ids(database, session.project_id, typed))

    def _tools(self, session: Session, typed: str) -> list[CompletionItem]:
        from cardbox_cli.store.views.completion import tool_names

        return self._seen(session, typed, lambda database: tool_names(database, session.project_id))

    def _turns(self, session: Session, typed: str) -> list[CompletionItem]:
        from cardbox_cli.store.views.completion import recent_turns

        return self._seen(
            session, typed, lambda database: _ids(recent_turns(database, session.project_id), typed)
        )

    def _inbox(self, session: Session, typed: str) -> list[CompletionItem]:
        from cardbox_cli.store.views.completion import recent_inbox

        return self._seen(
            session, typed, lambda database: _ids(recent_inbox(database, session.project_id), typed)
        )

    def _seen(self, session: Session, typed: str, see: Callable[["Database"], Pairs]) -> list[CompletionItem]:
        with self.look(session.target()) as database:
            return _beginning(typed, see(database))


_WORDS = re.compile(r"[a-z][a-z_-]*(\|[a-z][a-z_-]*)*")


def _beginning(typed: str, pairs: Pairs) -> list[CompletionItem]:
    return [CompletionItem(value, help=said) for value, said in pairs if value.startswith(typed)]


def _ids(pairs: Pairs, typed: str) -> Iterator[tuple[str, str]]:
    """The short ids; the whole one where that is being typed."""
    from cardbox_cli.model.ids import short_id

    for full, said in pairs:
        short = short_id(full)
        yield (short if short.startswith(typed) else full), said


def _types(_: Session, typed: str) -> list[CompletionItem]:
    from cardbox_cli.model.card_types import CARD_TYPES

    return _beginning(typed, ((name, "") for name in CARD_TYPES))


def _files(_: Session, __: str) -> list[CompletionItem]:
    return [CompletionItem("", type=FILES)]


def _recipes(session: Session, typed: str) -> list[CompletionItem]:
    from cardbox_cli.cli.parameters.recipes import recipe_folders
    from cardbox_cli.packing.recipe_files import recipe_files

    names = _beginning(typed, ((name, str(path)) for name, path in recipe_files(recipe_folders()).items()))
    return [*names, *_files(session, typed)]
