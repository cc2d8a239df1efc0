"""The question before a command deletes data, and the option that answers it."""

import sys
from typing import Annotated, NoReturn

import click
from typer import Option

from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.errors import UsageError
from cardbox_cli.text.escaping import escape_invisible

# The exit code after a person declined. Ctrl-C has the same code.
_DECLINED = 130

Yes = Annotated[bool, Option("--yes", "-y", help="Do not ask.")]


def confirm(question: str, *, yes: bool) -> None:
    """Ask before data is deleted, unless `yes` is set. Raises UsageError if there is no terminal either."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"{question} Cannot ask for confirmation without a terminal", hint="pass --yes")
    if not click.confirm(escape_invisible(question), err=True):
        decline("canceled")


def decline(reason: str) -> NoReturn:
    announce(reason)
    raise click.exceptions.Exit(_DECLINED)
