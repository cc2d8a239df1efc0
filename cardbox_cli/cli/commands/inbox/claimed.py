"""What the verbs share that give a claimed row back: whose claim it is, and the row as it is then."""

import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Concatenate, ParamSpec

from typer import Option

from cardbox_cli.cli.actor import user_name
from cardbox_cli.cli.command_runtime import runtime
from cardbox_cli.cli.terminal import output
from cardbox_cli.model.execution.turns import InboxRow
from cardbox_cli.settings import OWNER

if TYPE_CHECKING:
    from cardbox_cli.execution.runtime import Runtime


P = ParamSpec("P")

Owner = Annotated[
    str | None, Option(metavar="NAME", help="Who claims. Default: CBX_OWNER, else this host and its user.")
]


def give_back(
    inbox: str, do: "Callable[Concatenate[Runtime, str, P], object]", *given: P.args, **named: P.kwargs
) -> None:
    """Give a row back by one of `queue.claims`, and print it as it is then."""
    with runtime() as run:
        inbox_id = resolve_row(run, inbox)
        do(run, inbox_id, *given, **named)
        row = run.inbox.get(inbox_id)
    print_row(row)


def resolve_row(run: "Runtime", named: str) -> str:
    from cardbox_cli.store.views.inbox import InboxViews

    return InboxViews(run.database, run.project_id).resolve(named)


def owner_name(named: str | None) -> str:
    return named or OWNER.text() or f"shell {user_name() or os.getuid()}@{socket.gethostname()}"


def print_row(row: InboxRow) -> None:
    output.emit(
        row,
        table=lambda: output.facts(
            ("inbox row", row.inbox_id),
            ("turn", row.turn_id),
            ("status", row.status),
            ("tries", str(row.retry_count)),
            ("error", row.last_error),
        ),
        ids=[row.inbox_id],
    )
