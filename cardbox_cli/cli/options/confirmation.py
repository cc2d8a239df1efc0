"""The question before something is destroyed, and the option that answers it."""

import sys
from typing import Annotated, NoReturn

import click
from typer import Option

from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.errors import UsageError
from cardbox_cli.text import printable

Yes = Annotated[bool, Option("--yes", "-y", help="Do not ask.")]


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is destroyed. Off a terminal it needs --yes."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"{question} Not without --yes here", hint="add --yes to do it without a question")
    if not click.confirm(printable(question), err=True):
        decline("nothing was done")


def decline(reason: str) -> NoReturn:
    """End the command where a person said no, or wants out."""
    announce(reason)
    raise click.exceptions.Exit(DECLINED)


# The exit code after a person said no.
DECLINED = 130
