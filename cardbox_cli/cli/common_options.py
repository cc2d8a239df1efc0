"""The options that every command takes: project, database, output format, colours, debugging.

They are valid before and after the subcommand. The last value wins, and the session stores it.
"""

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from cardbox_cli.errors import UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# The key under which a click context stores the words of its command line.
WORDS = "cardbox_cli.words"


class OutputFormat(NamedTuple):
    """A value of `-o`. `kind` is text for people, one document at the end, or lines as items arrive.

    A format with `shows_all` prints every column by default. A format with a `delimiter` is only for lists.
    """

    name: str
    kind: Literal["text", "document", "lines"]
    has_columns: bool = False
    shows_all: bool = False
    delimiter: str | None = None


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


def require_format(place: str, name: str) -> str:
    """Return the format `name` from a variable or file `place`. Raises UsageError if it is unknown."""
    if name not in FORMATS:
        from cardbox_cli.text.error_messages import unknown_message

        raise UsageError(
            f"{place}: {unknown_message('format', name, FORMATS)}", hint=f"formats are {', '.join(FORMATS)}"
        )
    return name


class _Choice(click.Choice[str]):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as exc:
            from cardbox_cli.text.error_messages import did_you_mean

            guess = did_you_mean(str(value), self.choices)
            self.fail(f"{exc.message.removesuffix('.')}{guess or '.'}", param, ctx)


def _session_option(*declarations: str, **attributes: Any) -> click.Option:
    """Return an option whose value becomes an attribute of the session."""

    def keep(context: click.Context, option: click.Parameter, value: Any) -> None:
        if value not in (None, False):
            session = context.find_root().obj
            setattr(session, "project_id" if option.name == "project" else str(option.name), value)
            session.given |= {declarations[0]}

    return click.Option(declarations, expose_value=False, callback=keep, **attributes)


def list_options() -> list[click.Option]:
    """Return new copies of the options of every command with `--columns`."""
    return [
        _session_option(
            "--sort", metavar="COLUMN[:desc]", help="Sort the listed rows by a column; add :desc to reverse."
        ),
        _session_option("--no-header", is_flag=True, help="Do not print the names of the columns."),
    ]


class _ProjectId(click.ParamType[str]):
    name = "ID"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        from cardbox_cli.cli.options.value_types import PROJECT

        return PROJECT.shell_complete(ctx, param, incomplete)


def common_options() -> list[click.Option]:
    """Return new copies of the options that every command takes."""
    return [
        _session_option(
            "--project",
            "-p",
            type=_ProjectId(),
            metavar="ID",
            help="Project (tenant). Default: CBX_PROJECT, the config file, else 'default'.",
        ),
        _session_option(
            "--database-url",
            metavar="URL",
            help="Database. Default: CBX_DATABASE_URL, libpq's variables, the config file, else "
            "the embedded server.",
        ),
        _session_option(
            "--read-url",
            metavar="URL",
            help="Connection string of a replica for reads. Default: CBX_READ_URL, else the config file.",
        ),
        _session_option(
            "--output",
            "-o",
            type=_Choice(tuple(FORMATS)),
            help="Output format. Default: CBX_OUTPUT, the config file, else table.",
        ),
        _session_option(
            "--color",
            type=_Choice(("auto", "always", "never")),
            help="Colours in tables. Default: auto, only on terminals.",
        ),
        _session_option("--null", "-0", is_flag=True, help="With -o id: end each id with NUL, for xargs -0."),
        _session_option("--debug", is_flag=True, help="Print a traceback with an error."),
    ]
