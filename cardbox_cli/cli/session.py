"""What every command gets besides its own arguments: project, database, output format, debugging.

The options are accepted before and after the subcommand; the later one wins.
"""

import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import click

from cardbox_cli.errors import UsageError
from cardbox_cli.model.text.escaping import printable
from cardbox_cli.model.text.visible_text import one_entry
from cardbox_cli.settings import DATABASE_URL, OUTPUT, PROJECT, READ_URL, Variable

if TYPE_CHECKING:
    from cardbox_cli.cli.config_file import ConfigFile, Configured
    from cardbox_cli.store.boxes import BoxStore
    from cardbox_cli.store.cards import CardStore
    from cardbox_cli.store.connection.database import Database
    from cardbox_cli.store.connection.target import Target
    from cardbox_cli.store.views.inbox import InboxViews
    from cardbox_cli.store.views.turns import TurnViews


class OutputFormat(NamedTuple):
    """A value of `-o`. `kind`: text for people, one document in the end, or lines as items come.

    `shows_all`: every column, unless some are named. `delimiter`: what stands between the values of a row for
    programs.
    """

    name: str
    kind: Literal["text", "document", "lines"]
    has_columns: bool = False
    shows_all: bool = False
    delimiter: str | None = None

    @property
    def for_lists(self) -> bool:
        """Whether only a list, which has columns, can be printed so."""
        return self.delimiter is not None


FORMATS = {
    each.name: each
    for each in (
        OutputFormat("table", "text", has_columns=True),
        OutputFormat("wide", "text", has_columns=True, shows_all=True),
        OutputFormat("json", "document"),
        OutputFormat("jsonl", "lines"),
        OutputFormat("yaml", "document"),
        OutputFormat("csv", "document", has_columns=True, shows_all=True, delimiter=","),
        OutputFormat("tsv", "document", has_columns=True, shows_all=True, delimiter="\t"),
        OutputFormat("id", "lines"),
    )
}


class ProcessContext:
    """What a command gets of its process: connections, and other programs. `cbx shell` has another one."""

    def database(self, target: "Target") -> "AbstractContextManager[Database]":
        """A connection for one command, with its tables in place."""
        import logging

        from cardbox_cli.store.connection.database import Database

        driver = logging.getLogger("psycopg")
        if not driver.handlers:
            # What it would print of a connection that breaks, the error of the command says.
            driver.addHandler(logging.NullHandler())
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

    `reads`: whether the command only reads. `committed`: whether it wrote something that stays. `given` are
    those of the options below that the command line has. `usual_project` is the one without them.
    """

    project_id: str = field(default_factory=PROJECT.value)
    usual_project: str = field(default_factory=PROJECT.value, compare=False)
    database_url: str | None = None
    read_url: str | None = None
    output: str = "table"
    color: str = "auto"
    sort: str | None = None
    no_header: bool = False
    null: bool = False
    debug: bool = False
    pages: bool = field(default=True, repr=False, compare=False)
    reads: bool = field(default=False, repr=False, compare=False)
    config: "ConfigFile | None" = field(default=None, repr=False, compare=False)
    given: frozenset[str] = field(default=frozenset(), repr=False, compare=False)
    process: ProcessContext = field(default_factory=ProcessContext, repr=False, compare=False)
    _made: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)
    committed: bool = field(default=False, init=False, repr=False, compare=False)
    _opened: "Database | None" = field(default=None, init=False, repr=False, compare=False)

    @property
    def format(self) -> OutputFormat:
        """How the answer is printed."""
        return FORMATS[self.output]

    @property
    def project_option(self) -> tuple[str, ...]:
        """What a command that is printed names besides, where the project is not the usual one."""
        return () if self.project_id == self.usual_project else ("--project", self.project_id)

    def configure(self, commands: Callable[..., Collection[str]]) -> None:
        """Take over what variables and the config file say, where no option does. Raises UsageError.

        Once: what somebody chose since stays. `commands` is as for `read_config`.
        """
        if self.config is not None:
            return
        from cardbox_cli.cli.config_file import read_config

        self.config = read_config(commands)
        project, output = self.config.get(PROJECT), OUTPUT.found()
        if project is not None and PROJECT.found() is None:
            self.usual_project = project.value
            self.project_id = self.project_id if "--project" in self.given else project.value
        if output is None and (configured := self.config.get(OUTPUT)) is not None:
            output = configured.place, configured.value
        if output is not None and "--output" not in self.given:
            self.output = _known_format(*output)

    def configured_columns(self) -> "Configured | None":
        """The columns that the config file names for the command that is running."""
        command = click.get_current_context().command_path.partition(" ")[2]
        return None if self.config is None else self.config.columns.get(command)

    def target(self) -> "Target":
        """The database that this run talks to, or a replica of it where the command only reads."""
        from cardbox_cli.store.connection.target import find_target

        configured = self._configured(DATABASE_URL)
        target = find_target(self.database_url, announce=announce, configured=configured)
        return self.read_target(target) if self.reads else target

    def read_target(self, database: "Target") -> "Target":
        """The replica of this database that commands ask which only read, if one is named; else itself."""
        from cardbox_cli.store.connection.target import find_read_target

        configured = self._configured(DATABASE_URL)
        return find_read_target(
            database,
            self.read_url,
            configured=self._configured(READ_URL),
            is_configured=configured is not None and database.named_by == configured.place,
        )

    def _configured(self, variable: Variable) -> "Configured | None":
        return None if self.config is None else self.config.get(variable)

    @contextmanager
    def database(self) -> "Iterator[Database]":
        """A connection with its tables in place, for the time of one command."""
        self.check_project()
        with self.process.database(self.target()) as database:
            before, self._opened = self._opened, database
            commits = database.commits
            try:
                with self._reading(database):
                    yield database
            finally:
                self._opened = before
                self.committed = self.committed or database.commits > commits
            self._remember(database)

    def _reading(self, database: "Database") -> "AbstractContextManager[None]":
        if database.target.stands_for is None:
            return nullcontext()
        from cardbox_cli.cli.replicas import lag_is_told

        return lag_is_told(database)

    @contextmanager
    def stores(self) -> "Iterator[tuple[CardStore, BoxStore]]":
        """The cards and boxes of this run's project."""
        from cardbox_cli.cli.id_resolution.boxes import ResolvingBoxes, ResolvingCards

        with self.database() as database:
            yield ResolvingCards(database, self.project_id), ResolvingBoxes(database, self.project_id)

    @contextmanager
    def turns(self) -> "Iterator[TurnViews]":
        """The turns of this run's project, to be looked at."""
        from cardbox_cli.cli.id_resolution.turns import ResolvingTurns

        with self.database() as database:
            yield ResolvingTurns(database, self.project_id)

    @contextmanager
    def inbox(self) -> "Iterator[InboxViews]":
        """The inbox rows of this run's project, to be looked at."""
        from cardbox_cli.store.views.inbox import InboxViews

        with self.database() as database:
            yield InboxViews(database, self.project_id)

    def made(
        self,
        *,
        card_id: str | None = None,
        box_id: str | None = None,
        turn_id: str | None = None,
        batch_id: str | None = None,
    ) -> None:
        """Say what this command made, or found made already: `@last` from when that is committed.

        That is at once; amid a transaction, when the database is given back: one that fails makes nothing.
        """
        given = {"card": card_id, "box": box_id, "turn": turn_id, "batch": batch_id}
        self._made.update({noun: made_id for noun, made_id in given.items() if made_id is not None})
        if self._opened is not None and self._opened.idle:
            self._remember(self._opened)

    def _remember(self, database: "Database") -> None:
        from cardbox_cli.cli.last import remember

        if self._made:
            remember(database.address, self.project_id, self._made)
            self._made.clear()

    def check_project(self) -> None:
        """Raise UsageError unless the project's id can be one."""
        project = self.project_id
        if not project.strip() or len(project) > 255 or not project.isprintable():
            raise UsageError(
                f"the project {project[:40]!r} must have 1 to 255 printable characters",
                hint="name it with --project, or CBX_PROJECT",
            )


# Under which name a context keeps the words of its command line.
WORDS = "cardbox_cli.words"


class _Choice(click.Choice[str]):
    """One of some words, with a guess at what another one meant."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as exc:
            from cardbox_cli.model.handwritten.wording import did_you_mean

            guess = did_you_mean(str(value), self.choices)
            self.fail(f"{exc.message.removesuffix('.')}{guess or '.'}", param, ctx)


def _known_format(place: str, name: str) -> str:
    if name not in FORMATS:
        from cardbox_cli.model.handwritten.wording import did_you_mean

        raise UsageError(
            f"{place}: there is no format {name!r}{did_you_mean(name, FORMATS)}",
            hint=f"formats are {', '.join(FORMATS)}",
        )
    return name


def session() -> Session:
    """The session of the command that is running."""
    return cast(Session, click.get_current_context().find_root().obj)


def session_or_none() -> Session | None:
    """The session of the command that is running, if one is."""
    context = click.get_current_context(silent=True)
    return None if context is None else cast("Session | None", context.find_root().obj)


def announce(message: str) -> None:
    """Tell the person something that is not data, after the data so far.

    Nothing in it acts on a terminal, and no further line of it passes for another message.
    """
    sys.stdout.flush()
    print(printable(one_entry(message)), file=sys.stderr, flush=True)


def _stored(name: str, *declarations: str, **attributes: Any) -> click.Option:
    """An option whose value becomes the session's attribute of this name."""

    def keep(context: click.Context, _: click.Parameter, value: Any) -> None:
        if value not in (None, False):
            obj = context.find_root().obj
            setattr(obj, name, value)
            obj.given |= {declarations[0]}

    return click.Option(declarations, expose_value=False, callback=keep, **attributes)


def list_options() -> list[click.Option]:
    """Fresh copies of the options that every command takes which has `--columns`."""
    return [
        _stored("sort", "--sort", metavar="C[:desc]", help="Sort by a column what is listed, after --limit."),
        _stored("no_header", "--no-header", is_flag=True, help="Leave the line with the columns' names out."),
    ]


def common_options() -> list[click.Option]:
    """Fresh copies of the options that every command takes."""
    return [
        _stored(
            "project_id",
            "--project",
            "-p",
            metavar="ID",
            help="Project (tenant). Default: CBX_PROJECT, the config file, else 'default'.",
        ),
        _stored(
            "database_url",
            "--database-url",
            metavar="URL",
            help="Database. Default: CBX_DATABASE_URL, libpq's, the config file, else the embedded one.",
        ),
        _stored(
            "read_url",
            "--read-url",
            metavar="URL",
            help="A replica of it, asked by commands that only read. Default: CBX_READ_URL, the config file.",
        ),
        _stored(
            "output",
            "--output",
            "-o",
            type=_Choice(tuple(FORMATS)),
            help="How to print the answer. Default: CBX_OUTPUT, the config file, else table.",
        ),
        _stored(
            "color",
            "--color",
            type=_Choice(("auto", "always", "never")),
            help="Whether tables have colours. Default: on terminals.",
        ),
        _stored("null", "--null", "-0", is_flag=True, help="With -o id: end each id by NUL, for xargs -0."),
        _stored("debug", "--debug", is_flag=True, help="Show a traceback with an error."),
    ]
