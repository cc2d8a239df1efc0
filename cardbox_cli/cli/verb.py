"""What makes a command of a function: its options, its help, and whether its answers go through a pager."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import click
import typer.core
import typer.main
from typer.models import CommandInfo

from cardbox_cli.cli.session import common_options, session
from cardbox_cli.cli.terminal.pager import paged
from cardbox_cli.cli.tree import HELP, Signed


class Verb(Signed, typer.core.TyperCommand):
    """What a function does. `pages`: whether long answers go through a pager; those of --watch never end."""

    pages = False

    def invoke(self, ctx: click.Context) -> Any:
        with paged() if self.pages and session().pages and not ctx.params.get("watch") else nullcontext():
            return super().invoke(ctx)


def verb(
    *examples: str, pages: bool = False, takes_unknown_options: bool = False
) -> Callable[[Callable[..., Any]], Verb]:
    """Make a command of a function: its docstring is the help, its parameters are typer's.

    `examples` are command lines, for the end of the help.
    """

    def make(function: Callable[..., Any]) -> Verb:
        lines = "".join(f"\n  {line}" for line in examples)
        info = CommandInfo(
            cls=Verb,
            callback=function,
            epilog=f"\b\nExamples:{lines}",
            context_settings={**HELP, "ignore_unknown_options": takes_unknown_options},
        )
        # Plain help: rich would cost every call its import.
        command = typer.main.get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode=None)
        assert isinstance(command, Verb)
        command.pages = pages
        for parameter in command.params:
            if isinstance(parameter, click.Argument) and parameter.metavar is None:
                # typer calls an argument by its variable, unless it has a metavar.
                kind = parameter.type.get_metavar(parameter, click.Context(command)) or parameter.type.name
                parameter.metavar = kind + "..." * (parameter.nargs != 1)
        command.params += common_options()
        return command

    return make
