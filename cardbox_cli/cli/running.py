"""How commands reach the use cases of execution: a runtime on the session's database, its bells wired."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from cardbox_cli.cli.session import session

if TYPE_CHECKING:
    from cardbox_cli.execution.runtime import Runtime

Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; kept in the audit.")]
ExpectEpoch = Annotated[
    int,
    typer.Option("--expect-epoch", metavar="N", help="The epoch that you saw; refused when it is another."),
]


@contextmanager
def runtime() -> "Iterator[Runtime]":
    """The project of this run, for the time of one command; what it commits rings."""
    from cardbox_cli.execution.runtime import Runtime
    from cardbox_cli.execution.settings import settings_from

    settings = settings_from(os.environ)
    with session().database() as database:
        yield Runtime(database, session().project_id, settings=settings)


def actor() -> str:
    """Who a person at this command line is, for the audit."""
    import getpass
    import socket

    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = str(os.getuid())
    return f"{name}@{socket.gethostname()}"
