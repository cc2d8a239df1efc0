"""What makes a command of a function: its options, its help, and whether its answers go through a pager."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, cast

import click
import typer.core
import typer.main
from typer.models import CommandInfo

from cardbox_cli.cli.session import common_options, list_options, session
from cardbox_cli.cli.terminal.pager import paged
from cardbox_cli.cli.tree import HELP, LazyGroup, Signed
from cardbox_cli.errors import UsageError


class Verb(Signed, typer.core.TyperCommand):
    """What a function does. `pages`: whether long answers go through a pager; those of --watch never end.

    `reads`: whether it only reads, so that a replica can be asked; the name of the flag that makes it so.
    `simple`: whether it ends soon by itself and asks nobody: without an editor, a question or other programs.
    The hook of a shell may run it then, unless its arguments name standard input or it would page or watch.
    """

    pages = False
    reads: bool | str = False
    simple: bool = False
    renamed: Mapping[str, str] = {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does, with today's names of options that are called by an earlier one."""
        return super().parse_args(ctx, [self._today(word) for word in args])

    def _today(self, word: str) -> str:
        option, equals, value = word.partition("=")
        return self.renamed.get(option, option) + equals + value

    @property
    def lists(self) -> bool:
        """Whether the answer is a list with columns."""
        return any("--columns" in parameter.opts for parameter in self.params)

    def invoke(self, ctx: click.Context) -> Any:
        if not session().process.admits(self, ctx):
            ctx.exit()
        session().configure(cast(LazyGroup, ctx.find_root().command).verbs)
        session().reads = bool(ctx.params[self.reads] if isinstance(self.reads, str) else self.reads)
        self._refuse_format()
        with paged() if self.pages and session().pages and not ctx.params.get("watch") else nullcontext():
            return super().invoke(ctx)

    def _refuse_format(self) -> None:
        """Raise UsageError for a format that is for lists. One that nobody asked for now gives way."""
        here = session()
        if here.format.for_lists and not self.lists:
            if "--output" in here.given:
                raise UsageError(
                    f"-o {here.output} is for lists, such as `cbx card list`",
                    hint="-o json is for all answers",
                )
            here.output = "table"
        if here.null and here.output != "id":
            raise UsageError(f"-0 is for ids, not for -o {here.output}", hint="add -o id, or leave -0 out")


def verb(
    *examples: str,
    pages: bool = False,
    reads: bool | str = False,
    simple: bool = False,
    takes_unknown_options: bool = False,
    renamed: Mapping[str, str] = {},
) -> Callable[[Callable[..., Any]], Verb]:
    """Make a command of a function: its docstring is the help, its parameters are typer's.

    `examples` are command lines, for the end of the help. `pages`, `reads` and `simple` are as in `Verb`.
    `renamed` are earlier names of options, which still work, by today's.
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
        command.reads = reads
        command.simple = simple
        command.renamed = renamed
        for parameter in command.params:
            if isinstance(parameter, click.Argument) and parameter.metavar is None:
                # typer calls an argument by its variable, unless it has a metavar.
                kind = parameter.type.get_metavar(parameter, click.Context(command)) or parameter.type.name
                parameter.metavar = kind + "..." * (parameter.nargs != 1)
        command.params += [*(list_options() if command.lists else []), *common_options()]
        return command

    return make
