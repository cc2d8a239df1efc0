"""The settings of one run of a command, and the services of its process. `session()` returns the current one.

`project_database.py` opens the database of a session.
"""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import click

from cardbox_cli.cli.common_options import FORMATS, OutputFormat, require_format
from cardbox_cli.errors import UsageError
from cardbox_cli.settings import OUTPUT, PROJECT, Variable

if TYPE_CHECKING:
    from cardbox_cli.cli.config_file import ConfigFile, ConfiguredValue
    from cardbox_cli.store.connection.database import Database
    from cardbox_cli.store.connection.target import Target


class ProcessContext:
    """The services of a process for its commands: connections and other programs. `cbx shell` has its own."""

    def database(self, target: "Target") -> "AbstractContextManager[Database]":
        """Return a connection for one command. Its tables exist."""
        import logging

        from cardbox_cli.store.connection.database import Database

        driver = logging.getLogger("psycopg")
        if not driver.handlers:
            # The command's error already reports a broken connection.
            driver.addHandler(logging.NullHandler())
        return Database.open_target(target)

    def completion_database(self, target: "Target") -> "AbstractContextManager[Database]":
        """Return a read-only connection for completion. It starts no server and has a short timeout."""
        from cardbox_cli.store.views.completion import completion_snapshot

        return completion_snapshot(target, milliseconds=300)

    def run_program(self, program: str, arguments: Sequence[str], environment: Mapping[str, str]) -> int:
        """Replace this process by a program. Returns its exit code if this process stays."""
        os.execve(program, [program, *arguments], environment)


@dataclass
class Session:
    """The settings of one run. `pages` allows a pager; `reads` is True if the command only reads.

    `committed` is True after a commit. `given` are the common options on the command line. Without these
    options, `usual_project` would be the project.
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
    committed: bool = field(default=False, init=False, repr=False, compare=False)
    opened: "Database | None" = field(default=None, init=False, repr=False, compare=False)
    database_comment: tuple[str, ...] = field(default=(), init=False, repr=False, compare=False)
    made_ids: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def format(self) -> OutputFormat:
        return FORMATS[self.output]

    @property
    def project_option(self) -> tuple[str, ...]:
        """Return the options for printed commands: they may be pasted where another project is the usual one.

        A comment names the database unless it is the default one.
        """
        return ("--project", self.project_id, *self.database_comment)

    def configure(self, commands: Callable[..., Collection[str]]) -> None:
        """Apply variables and the config file, unless options override them. Raises UsageError.

        Runs only once, so that it does not undo later choices. `commands` is as for `read_config`.
        """
        if self.config is not None:
            return
        from cardbox_cli.cli.config_file import read_config

        self.config = read_config(commands)
        project, output = self.config.get(PROJECT), OUTPUT.find()
        if project is not None and PROJECT.find() is None:
            self.usual_project = project.value
            self.project_id = self.project_id if "--project" in self.given else project.value
        if output is None and (configured := self.config.get(OUTPUT)) is not None:
            output = configured.place, configured.value
        if output is not None and "--output" not in self.given:
            self.output = require_format(*output)

    def configured_columns(self) -> "ConfiguredValue | None":
        command = click.get_current_context().command_path.partition(" ")[2]
        return None if self.config is None else self.config.columns.get(command)

    def configured(self, variable: Variable) -> "ConfiguredValue | None":
        return None if self.config is None else self.config.get(variable)

    def check_project(self) -> None:
        """Raise UsageError unless the project's id is valid."""
        project = self.project_id
        if not project.strip() or len(project) > 255 or not project.isprintable():
            raise UsageError(
                f"the project {project[:40]!r} must have 1 to 255 printable characters",
                hint="set the project with --project or CBX_PROJECT",
            )


def session() -> Session:
    """Return the session of the current command."""
    return cast(Session, click.get_current_context().find_root().obj)


def session_or_none() -> Session | None:
    context = click.get_current_context(silent=True)
    return None if context is None else cast("Session | None", context.find_root().obj)
