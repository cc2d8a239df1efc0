"""How the command tree is put together: nouns and verbs whose modules are loaded when they are called."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from typing import Any

import click
import typer
import typer.core
from click.shell_completion import CompletionItem

from cardbox_cli.cli.boundary import PIPE_CLOSED
from cardbox_cli.cli.session import common_options, session


class LazyGroup(click.Group):
    """The root group. Its help is a static table, so that showing it imports no command.

    `entries`: each command's line in the help, by its name, which is that of its module in `commands/`.
    """

    def __init__(self, *, entries: Mapping[str, str], **attributes: Any) -> None:
        super().__init__(**attributes)
        self.entries = entries
        self._loaded: dict[str, click.Command] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, loaded when it is first asked for."""
        if cmd_name in self.entries and cmd_name not in self._loaded:
            self._loaded[cmd_name] = self._load(cmd_name)
        return self._loaded.get(cmd_name)

    def _load(self, name: str) -> click.Command:
        return _loaded(name, f"cardbox_cli.cli.commands.{name}")

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The names of the table and the options that begin so; no command is loaded for it."""
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
            ctx.fail(f"there is no command {name!r}.{_did_you_mean(name, self.entries)}")
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


@contextmanager
def _past_click() -> Iterator[None]:
    """Keep click from making a closed pipe exit code 1, and from printing a line of its own at Ctrl-C."""
    try:
        yield
    except BrokenPipeError as exc:
        raise click.exceptions.Exit(PIPE_CLOSED) from exc
    except KeyboardInterrupt as exc:
        raise click.Abort(*exc.args) from exc


def _loaded(name: str, module: str) -> click.Command:
    """The command that the `app` of a module is."""
    app: typer.Typer = import_module(module).app
    command = typer.main.get_command(app)
    command.name = name
    for each in (command, *(command.commands.values() if isinstance(command, click.Group) else ())):
        each.params.extend(common_options())
        _sign_refusals(each)
        _page_answers(each)
    return command


def _sign_refusals(command: click.Command) -> None:
    """Let every refusal of a command line say whose it is: click forgets it where a value is missing."""
    parse = command.parse_args

    def parse_args(ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return parse(ctx, args)
        except click.UsageError as exc:
            exc.ctx = exc.ctx or ctx
            raise

    # typer makes the commands, verbs and nouns of several classes, so this one's method is replaced in place;
    # mypy forbids that of any method.
    command.parse_args = parse_args  # type: ignore[method-assign]


class _Group(typer.core.TyperGroup):
    """A noun. Verbs that have a module of their own, `elsewhere`, are loaded when they are called."""

    elsewhere: Mapping[str, str] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self.commands, *self.elsewhere})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self.elsewhere and cmd_name not in self.commands:
            self.commands[cmd_name] = _loaded(cmd_name, self.elsewhere[cmd_name])
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        verbs = self.list_commands(ctx)
        if name not in verbs and not name.startswith("-"):
            ctx.fail(f"`{ctx.command_path}` has no command {name!r}.{_did_you_mean(name, verbs)}")
        return super().resolve_command(ctx, args)


def noun(help: str, elsewhere: Mapping[str, str] | None = None) -> typer.Typer:
    """A group of verbs, such as `cbx box …`; `elsewhere` names the modules of those not in this one."""
    group = type("_Noun", (_Group,), {"elsewhere": elsewhere or {}})
    app = typer.Typer(cls=group, help=help, no_args_is_help=True, **_PLAIN)
    app.callback()(lambda: None)
    return app


def verbs(group: click.Group) -> dict[str, click.Command]:
    """The verbs of a noun by name, all of them loaded."""
    context = click.Context(group)
    names = group.list_commands(context)
    return {name: verb for name in names if (verb := group.get_command(context, name)) is not None}


def everyday(help: str) -> typer.Typer:
    """A verb that stands alone, such as `cbx pack`."""
    return typer.Typer(help=help, **_PLAIN)


# Plain help: rich would cost every call its import.
_PLAIN: dict[str, Any] = {
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "add_completion": False,
    "context_settings": {"help_option_names": ["--help", "-h"]},
}


def examples(text: str) -> str:
    """The epilog of a command's help, its lines kept as they are."""
    return f"\b\nExamples:\n{text}"


# The commands that only show something, by their last word.
_READING = frozenset({"diff", "export", "list", "refs", "render", "schema", "search", "show"})


def _page_answers(command: click.Command) -> None:
    """Let long answers of the commands that only read go through a pager; those of `--watch` never end."""
    if command.name not in _READING or command.callback is None or isinstance(command, click.Group):
        return
    answer = command.callback

    @wraps(answer)
    def answer_in_pages(**given: Any) -> Any:
        from cardbox_cli.cli.terminal.pager import paged

        if given.get("watch") or not session().pages:
            return answer(**given)
        with paged():
            return answer(**given)

    command.callback = answer_in_pages


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""
