"""The groups of the command tree. A command is imported and built when it is first used.

This module has the common parts of all groups, and suggestions for misspelled names. It does not import
typer, which would take most of the time of help and completion. `command_table.py` has the table of commands.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from cardbox_cli.cli.boundary import PIPE_CLOSED
from cardbox_cli.cli.common_options import WORDS, common_options

HELP = {"help_option_names": ["--help", "-h"]}

# Names from other programs. Each means the first of these verbs that a noun has.
ALIASES = {"ls": ("list",), "rm": ("delete", "remove"), "get": ("show",)}


_COMMON = "Common options: -p, -o, --database-url and more; see `cbx help options`."


class CommandBase(click.Command):
    """A command whose errors name the command and all missing parameters. click names only the first one.

    `WORDS` in the context holds the typed words, so that errors name options as they were typed.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = ctx.meta[WORDS] = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.MissingParameter as exc:
            missing = self._missing(ctx, words)
            if len(missing) > 1:
                raise click.UsageError(f"Missing {', '.join(missing)}.", ctx) from exc
            exc.ctx = exc.ctx or ctx
            raise
        except click.UsageError as exc:
            exc.ctx = exc.ctx or ctx
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own parameters in their panels, and one line about the common options."""
        common = {"help", *(option.name for option in common_options())}
        panels: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and parameter.name not in common:
                usual = "Arguments" if isinstance(parameter, click.Argument) else "Options"
                panel = getattr(parameter, "rich_help_panel", None) or usual
                panels.setdefault(panel, []).append((record[0], _BOUNDS.sub("", record[1])))
        for panel, records in panels.items():
            with formatter.section(panel):
                formatter.write_dl(records)
        formatter.write_paragraph()
        formatter.write_text(_COMMON)

    def _missing(self, ctx: click.Context, args: list[str]) -> list[str]:
        values, _, _ = self.make_parser(ctx).parse_args(args)
        return [
            f"{parameter.param_type_name} {parameter.get_error_hint(ctx)}"
            for parameter in self.get_params(ctx)
            if parameter.required and parameter.value_is_missing(parameter.consume_value(ctx, values)[0])
        ]


# Bounds such as [0<=x<=100], which the help leaves out because most are artificial.
_BOUNDS = re.compile(r"; [^;\[\]]*\bx[<>]=?[^;\]]*|  \[[^;\[\]]*\bx[<>]=?[^;\]]*\]")


class Definition(ABC):
    name: str

    @property
    @abstractmethod
    def command(self) -> click.Command: ...


class Noun(NamedTuple):
    """A group of verbs, for example `cbx box …`. It has a line in the help of `cbx`, and one for each verb.

    `modules` maps the modules of the noun's package to their verbs. It is empty if the noun is one module.
    `epilog` is printed after the verbs.
    """

    line: str
    verbs: Mapping[str, str]
    modules: Mapping[str, str] = {}
    epilog: str | None = None


class LazyGroup(CommandBase, click.Group):
    """The commands of a table. `module_of` returns the name of the module that defines a command.

    `entries` maps each command to its line in the help, so that help and completion import no command.
    """

    def __init__(
        self, table: Mapping[str, str | Noun], module_of: Callable[[str], str], **attributes: Any
    ) -> None:
        super().__init__(no_args_is_help=True, context_settings=HELP, **attributes)
        self.table = table
        self.module_of = module_of
        self.entries = {
            name: entry if isinstance(entry, str) else entry.line for name, entry in table.items()
        }
        self.params += common_options()
        self.aliases = {
            alias: verb
            for alias, verbs in ALIASES.items()
            if alias not in table and (verb := next((each for each in verbs if each in table), None))
        }

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.table.get(cmd_name)
        if entry is None:
            return None
        module = self.module_of(cmd_name)
        if isinstance(entry, Noun):
            return LazyGroup(
                entry.verbs,
                partial(_module_of_verb, module, entry),
                name=cmd_name,
                help=entry.line,
                epilog=entry.epilog and f"\b\n{entry.epilog}",
            )
        values = vars(import_module(module)).values()
        return next(each for each in values if isinstance(each, Definition) and each.name == cmd_name).command

    def verbs(self, *nouns: str) -> list[str]:
        """Return the commands of these nouns, or of all nouns, for example "card list"."""
        entries = ((name, self.table.get(name)) for name in nouns or self.table)
        return [f"{name} {verb}" for name, noun in entries if isinstance(noun, Noun) for verb in noun.verbs]

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [
            CompletionItem(name, help=line)
            for name, line in self.entries.items()
            if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] = self.aliases.get(args[0], args[0])
        if name not in self.entries and not name.startswith("-"):
            from cardbox_cli.text.error_messages import did_you_mean

            ctx.fail(f"`{ctx.command_path}` has no command {name!r}{did_you_mean(name, self.entries)}")
        return super().resolve_command(ctx, args)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _bypass_click_handlers():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _bypass_click_handlers():
            return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        super().format_options(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.entries.items()))
        if self.aliases:
            short = ", ".join(f"{alias} for {verb}" for alias, verb in self.aliases.items())
            formatter.write_paragraph()
            formatter.write_text(f"Also: {short}.")


def _module_of_verb(module: str, noun: Noun, verb: str) -> str:
    submodule = next((name for name, verbs in noun.modules.items() if verb in verbs.split()), None)
    return module if submodule is None else f"{module}.{submodule}"


@contextmanager
def _bypass_click_handlers() -> Iterator[None]:
    """Prevent click from exiting with code 1 at a closed pipe, and from printing at Ctrl-C."""
    try:
        yield
    except BrokenPipeError as exc:
        raise click.exceptions.Exit(PIPE_CLOSED) from exc
    except KeyboardInterrupt as exc:
        raise click.Abort(*exc.args) from exc
