"""The options that every command takes: project, database, output format, colours, debugging.

They are accepted before and after the subcommand; the later one wins. The session keeps their values.
"""

from typing import Any, Literal, NamedTuple

import click

from cardbox_cli.errors import UsageError

# The key under which a click context keeps the words of its command line.
WORDS = "cardbox_cli.words"


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


def known_format(place: str, name: str) -> str:
    """Return `name`, which variable or file `place` gives. Raises UsageError unless it is a format."""
    if name not in FORMATS:
        from cardbox_cli.text import did_you_mean

        raise UsageError(
            f"{place}: there is no format {name!r}{did_you_mean(name, FORMATS)}",
            hint=f"formats are {', '.join(FORMATS)}",
        )
    return name


class _Choice(click.Choice[str]):
    """One of some words, with a guess at what another one meant."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as exc:
            from cardbox_cli.text import did_you_mean

            guess = did_you_mean(str(value), self.choices)
            self.fail(f"{exc.message.removesuffix('.')}{guess or '.'}", param, ctx)


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
