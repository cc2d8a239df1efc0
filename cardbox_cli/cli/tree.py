"""How the command tree is put together: groups whose commands are modules, loaded when they are called.

Owns what is common to all groups, and the answer to a mistyped name. Knows nothing of typer, whose import
would take more time than all else in help and completion. Which commands there are stands in `root.py`, and
in the `__init__.py` of each noun.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from keyword import iskeyword
from typing import Any

import click
from click.shell_completion import CompletionItem

from cardbox_cli.cli.boundary import PIPE_CLOSED
from cardbox_cli.cli.session import WORDS, common_options

HELP = {"help_option_names": ["--help", "-h"]}

# What people who come from other programs type, each for the first of these verbs that a noun has.
ALIASES = {"ls": ("list",), "rm": ("delete", "remove"), "get": ("show",)}


class Signed(click.Command):
    """A command whose refusals say whose they are, and all that is missing: click names the first alone.

    What it was called with stays under `WORDS` in the context, so that an option is named as it was typed.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = ctx.meta[WORDS] = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.MissingParameter as exc:
            missing = self._missing(ctx, given)
            if len(missing) > 1:
                raise click.UsageError(f"Missing {', '.join(missing)}.", ctx) from exc
            exc.ctx = exc.ctx or ctx
            raise
        except click.UsageError as exc:
            exc.ctx = exc.ctx or ctx
            raise

    def _missing(self, ctx: click.Context, args: list[str]) -> list[str]:
        """What is required and not given, as click calls each."""
        values, _, _ = self.make_parser(ctx).parse_args(args)
        return [
            f"{parameter.param_type_name} {parameter.get_error_hint(ctx)}"
            for parameter in self.get_params(ctx)
            if parameter.required and parameter.value_is_missing(parameter.consume_value(ctx, values)[0])
        ]


class LazyGroup(Signed, click.Group):
    """Commands that are modules of a package, each loaded when it is called.

    `entries`: each command's line in the help, by its name, in order. So help and completion load none.
    """

    def __init__(self, package: str, entries: Mapping[str, str], **attributes: Any) -> None:
        super().__init__(no_args_is_help=True, context_settings=HELP, **attributes)
        self.package = package
        self.entries = entries
        self.params += common_options()
        self.aliases = {
            alias: verb
            for alias, verbs in ALIASES.items()
            if alias not in entries and (verb := next((each for each in verbs if each in entries), None))
        }

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

    def verbs(self, *nouns: str) -> list[str]:
        """The verbs of these nouns, or of all, as "card list". For all it loads what stands alone, too."""
        context = click.Context(self)
        groups = ((name, self.get_command(context, name)) for name in nouns or self.entries)
        return [
            f"{name} {verb}"
            for name, group in groups
            if isinstance(group, LazyGroup)
            for verb in group.entries
        ]

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
        name = args[0] = self.aliases.get(args[0], args[0])
        if name not in self.entries and not name.startswith("-"):
            from cardbox_cli.text import did_you_mean

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
        if self.aliases:
            short = ", ".join(f"{alias} for {verb}" for alias, verb in self.aliases.items())
            formatter.write_paragraph()
            formatter.write_text(f"Also: {short}.")


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
