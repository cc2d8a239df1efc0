"""How the command tree is put together: groups whose commands are modules, loaded when they are called.

Owns what is common to all groups, and the answer to a mistyped name. Which commands there are stands in
`root.py`, and in the `__init__.py` of each noun. Knows nothing of typer: its import takes longer than all
else in help and completion.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from keyword import iskeyword
from typing import Any

import click
from click.shell_completion import CompletionItem

from cardbox_cli.cli.boundary import PIPE_CLOSED
from cardbox_cli.cli.session import common_options

HELP = {"help_option_names": ["--help", "-h"]}


class Signed(click.Command):
    """A command whose refusals say whose they are: click forgets it where a value is missing."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as exc:
            exc.ctx = exc.ctx or ctx
            raise


class LazyGroup(Signed, click.Group):
    """Commands that are modules of a package, each loaded when it is called.

    `entries`: each command's line in the help, by its name, in order. So help and completion load none.
    """

    def __init__(self, package: str, entries: Mapping[str, str], **attributes: Any) -> None:
        super().__init__(no_args_is_help=True, context_settings=HELP, **attributes)
        self.package = package
        self.entries = entries
        self.params += common_options()

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name: what its module calls `command`."""
        if cmd_name not in self.entries:
            return None
        module = cmd_name.replace("-", "_") + "_" * iskeyword(cmd_name)
        command: click.Command = import_module(f"{self.package}.{module}").command
        command.name = cmd_name
        command.help = command.help or self.entries[cmd_name]
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The names of the table and the options that begin so."""
        names = [
            CompletionItem(name, help=line)
            for name, line in self.entries.items()
            if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with a guess at what a mistyped name meant."""
        name = args[0]
        if name not in self.entries and not name.startswith("-"):
            from cardbox_cli.model.handwritten.wording import did_you_mean

            ctx.fail(f"`{ctx.command_path}` has no command {name!r}{did_you_mean(name, self.entries)}")
        return super().resolve_command(ctx, args)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """As click does; `--help` prints here."""
        with _past_click():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """As click does."""
        with _past_click():
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table of commands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.entries.items()))


def noun(package: str, entries: Mapping[str, str]) -> LazyGroup:
    """A group of verbs, such as `cbx box …`. What it says of itself is its line in the table of `root.py`."""
    return LazyGroup(package, entries)


@contextmanager
def _past_click() -> Iterator[None]:
    """Keep click from making a closed pipe exit code 1, and from printing a line of its own at Ctrl-C."""
    try:
        yield
    except BrokenPipeError as exc:
        raise click.exceptions.Exit(PIPE_CLOSED) from exc
    except KeyboardInterrupt as exc:
        raise click.Abort(*exc.args) from exc
