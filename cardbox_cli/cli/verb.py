"""Turns a function into a command with options, help and a pager."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import click
import typer.core
import typer.main
from typer.models import CommandInfo

from cardbox_cli.cli.common_options import common_options, list_options
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal.pager import page_output
from cardbox_cli.cli.tree import HELP, CommandBase, Definition, LazyGroup
from cardbox_cli.errors import UsageError
from cardbox_cli.text.command_lines import quote_argument


class Verb(CommandBase, typer.core.TyperCommand):
    """The command of a function. `pages` sends long answers through a pager, except with --watch.

    `reads` is True if the command only reads, so that a replica can answer. It can also be the name of a flag
    with which the command only reads.
    """

    pages = False
    reads: bool | str = False
    renamed: Mapping[str, str] = {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        current = [self._current_name(word) for word in args]
        try:
            return super().parse_args(ctx, list(current))
        except click.MissingParameter as exc:
            _suggest_option(self, ctx, exc, current)
            raise

    def _current_name(self, word: str) -> str:
        option, equals, value = word.partition("=")
        return self.renamed.get(option, option) + equals + value

    @property
    def lists(self) -> bool:
        return any("--columns" in parameter.opts for parameter in self.params)

    def invoke(self, ctx: click.Context) -> Any:
        session().configure(cast(LazyGroup, ctx.find_root().command).verbs)
        session().reads = bool(ctx.params[self.reads] if isinstance(self.reads, str) else self.reads)
        self._refuse_format()
        with (
            page_output() if self.pages and session().pages and not ctx.params.get("watch") else nullcontext()
        ):
            return super().invoke(ctx)

    def _refuse_format(self) -> None:
        """Raise UsageError for a format that only lists have. If the config sets it, use a table instead."""
        here = session()
        if here.format.delimiter is not None and not self.lists:
            if "--output" in here.given:
                raise UsageError(
                    f"-o {here.output} works only for lists, such as `cbx card list`", hint="use -o json"
                )
            here.output = "table"
        if here.null and here.output != "id":
            raise UsageError(f"-0 requires -o id, not -o {here.output}", hint="use -o id, or remove -0")


def _suggest_option(
    command: click.Command, ctx: click.Context, missing: click.MissingParameter, words: list[str]
) -> None:
    """Raise UsageError if a word without an option is probably the value of the missing option."""
    option = missing.param
    if not isinstance(option, click.Option):
        return
    _, unused, _ = command.make_parser(ctx).parse_args(list(words))
    takes_files = getattr(option.type, "takes_files", False)
    if unused and (takes_files or not Path(unused[0]).suffix):
        typed = f"{ctx.command_path} {option.opts[0]} {quote_argument(unused[0])}"
        raise UsageError(missing.format_message(), hint=f"did you mean `{typed}`?")


@dataclass
class VerbDefinition(Definition):
    name: str
    examples: tuple[str, ...]
    function: Callable[..., Any]
    pages: bool
    reads: bool | str
    takes_unknown_options: bool
    renamed: Mapping[str, str]
    panels: Mapping[str, str]

    @cached_property
    def command(self) -> Verb:
        lines = "".join(f"\n  {line}" for line in self.examples)
        info = CommandInfo(
            name=self.name,
            cls=Verb,
            callback=self.function,
            epilog=f"\b\nExamples:{lines}",
            context_settings={**HELP, "ignore_unknown_options": self.takes_unknown_options},
        )
        # Plain help, because importing rich takes time.
        command = typer.main.get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode=None)
        assert isinstance(command, Verb)
        command.pages, command.reads, command.renamed = self.pages, self.reads, self.renamed
        panels = {name: panel for panel, names in self.panels.items() for name in names.split()}
        for parameter in command.params:
            if panel := panels.pop(parameter.name or "", None):
                parameter.rich_help_panel = panel  # type: ignore[attr-defined]  # typer's parameters have one
            if isinstance(parameter, click.Argument) and parameter.metavar is None:
                # Without a metavar, typer shows the name of the variable.
                kind = parameter.type.get_metavar(parameter, click.Context(command)) or parameter.type.name
                parameter.metavar = kind + "..." * (parameter.nargs != 1)
        assert not panels, f"{self.name} has no parameters {', '.join(panels)}"
        command.params += [*(list_options() if command.lists else []), *common_options()]
        return command


def verb(
    name: str,
    *examples: str,
    pages: bool = False,
    reads: bool | str = False,
    takes_unknown_options: bool = False,
    renamed: Mapping[str, str] = {},
    panels: Mapping[str, str] = {},
) -> Callable[[Callable[..., Any]], VerbDefinition]:
    """Return a decorator that defines the command `name`. The function's docstring is the help.

    `examples` are command lines at the end of the help. `pages` and `reads` are as in `Verb`. `renamed` maps
    earlier names of options, which still work, to the current names. `panels` maps the heading of a panel of
    the help to the names of its parameters. All other parameters are under "Options".
    """

    def define(function: Callable[..., Any]) -> VerbDefinition:
        return VerbDefinition(name, examples, function, pages, reads, takes_unknown_options, renamed, panels)

    return define
