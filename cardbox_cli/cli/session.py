"""What every command gets besides its own arguments: project, database, output format, debugging.

The four options are accepted before and after the subcommand; the later one wins.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import click

from cardbox_cli.cli.escaping import printable
from cardbox_cli.errors import UsageError
from cardbox_cli.settings import PROJECT

if TYPE_CHECKING:
    from cardbox_cli.store.boxes import BoxStore
    from cardbox_cli.store.cards import CardStore
    from cardbox_cli.store.connection.database import Database
    from cardbox_cli.store.connection.target import Target
    from cardbox_cli.store.views.inbox import InboxViews
    from cardbox_cli.store.views.turns import TurnViews


class OutputFormat(NamedTuple):
    """A value of `-o`. `kind`: text for people, one document in the end, or lines as items come."""

    name: str
    kind: Literal["text", "document", "lines"]
    has_columns: bool = False


FORMATS = {
    each.name: each
    for each in (
        OutputFormat("table", "text", has_columns=True),
        OutputFormat("json", "document"),
        OutputFormat("jsonl", "lines"),
        OutputFormat("yaml", "document"),
        OutputFormat("id", "lines"),
    )
}


class ProcessContext:
    """What a command gets of its process: connections, and other programs. `cbx shell` has another one."""

    def database(self, target: "Target") -> "AbstractContextManager[Database]":
        """A connection for one command, with its tables in place."""
        from cardbox_cli.store.connection.database import Database

        return Database.open_target(target)

    def completion_database(self, target: "Target") -> "AbstractContextManager[Database]":
        """A read-only connection for completing a value: it starts no server, and waits for little."""
        from cardbox_cli.store.views.completion import completion_snapshot

        return completion_snapshot(target, milliseconds=300)

    def run_program(self, program: str, arguments: Sequence[str], environment: Mapping[str, str]) -> int:
        """Go on as another program. Answers its exit code where this process stays."""
        os.execve(program, [program, *arguments], environment)


@dataclass
class Session:
    """The settings of one run, and the way to its database. `pages`: whether it may start a pager.

    `given` are those of the options below that the command line has.
    """

    project_id: str = field(default_factory=PROJECT.value)
    database_url: str | None = None
    output: str = "table"
    debug: bool = False
    pages: bool = field(default=True, repr=False, compare=False)
    given: frozenset[str] = field(default=frozenset(), repr=False, compare=False)
    process: ProcessContext = field(default_factory=ProcessContext, repr=False, compare=False)
    _made: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)
    _opened: "Database | None" = field(default=None, init=False, repr=False, compare=False)

    @property
    def format(self) -> OutputFormat:
        """How the answer is printed."""
        return FORMATS[self.output]

    def target(self) -> "Target":
        """The database that this run talks to."""
        from cardbox_cli.store.connection.target import find_target

        return find_target(self.database_url, announce=announce)

    @contextmanager
    def database(self) -> "Iterator[Database]":
        """A connection with its tables in place, for the time of one command."""
        self._check_project()
        with self.process.database(self.target()) as database:
            before, self._opened = self._opened, database
            try:
                yield database
            finally:
                self._opened = before
            self._remember(database)

    @contextmanager
    def stores(self) -> "Iterator[tuple[CardStore, BoxStore]]":
        """The cards and boxes of this run's project."""
        from cardbox_cli.cli.id_resolution import ResolvingBoxes, ResolvingCards

        with self.database() as database:
            yield ResolvingCards(database, self.project_id), ResolvingBoxes(database, self.project_id)

    @contextmanager
    def turns(self) -> "Iterator[TurnViews]":
        """The turns of this run's project, to be looked at."""
        from cardbox_cli.cli.id_resolution import ResolvingTurns

        with self.database() as database:
            yield ResolvingTurns(database, self.project_id)

    @contextmanager
    def inbox(self) -> "Iterator[InboxViews]":
        """The inbox rows of this run's project, to be looked at."""
        from cardbox_cli.store.views.inbox import InboxViews

        with self.database() as database:
            yield InboxViews(database, self.project_id)

    def made(
        self, *, card_id: str | None = None, box_id: str | None = None, turn_id: str | None = None
    ) -> None:
        """Say what this command made, or found made already: `@last` from when that is committed.

        That is at once; amid a transaction, when the database is given back: one that fails makes nothing.
        """
        given = {"card": card_id, "box": box_id, "turn": turn_id}
        self._made.update({noun: made_id for noun, made_id in given.items() if made_id is not None})
        if self._opened is not None and self._opened.idle:
            self._remember(self._opened)

    def _remember(self, database: "Database") -> None:
        from cardbox_cli.cli.last import remember

        if self._made:
            remember(database.address, self.project_id, self._made)
            self._made.clear()

    def _check_project(self) -> None:
        project = self.project_id
        if not project.strip() or len(project) > 255 or not project.isprintable():
            raise UsageError(
                f"the project {project[:40]!r} must have 1 to 255 printable characters",
                hint="name it with --project, or CBX_PROJECT",
            )


def session() -> Session:
    """The session of the command that is running."""
    return cast(Session, click.get_current_context().find_root().obj)


def announce(message: str) -> None:
    """Tell the person something that is not data, after the data so far. Nothing in it acts on a terminal."""
    sys.stdout.flush()
    print(printable(message), file=sys.stderr, flush=True)


def common_options() -> list[click.Option]:
    """Fresh copies of the options that every command takes."""

    def stored(name: str, *declarations: str, **attributes: Any) -> click.Option:
        def keep(context: click.Context, _: click.Parameter, value: Any) -> None:
            if value not in (None, False):
                obj = context.find_root().obj
                setattr(obj, name, value)
                obj.given |= {declarations[0]}

        return click.Option(declarations, expose_value=False, callback=keep, **attributes)

    return [
        stored(
            "project_id",
            "--project",
            "-p",
            metavar="ID",
            help="Project (tenant). Default: CBX_PROJECT, else 'default'.",
        ),
        stored(
            "database_url",
            "--database-url",
            metavar="URL",
            help="Database. Default: CBX_DATABASE_URL, libpq's variables, else the embedded one.",
        ),
        stored(
            "output",
            "--output",
            "-o",
            type=click.Choice(tuple(FORMATS)),
            help="How to print the answer. Default: table.",
        ),
        stored("debug", "--debug", is_flag=True, help="Show a traceback with an error."),
    ]
