"""`cbx inbox list`."""

from typing import Annotated

import typer

from cardbox_cli.cli.parameters.options import ColumnNames, Interval, Limit, OfAgent, Watch
from cardbox_cli.cli.parameters.types import OneOf
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal.columns import INBOX, chosen
from cardbox_cli.cli.terminal.lists import Listing, none_of, show_list
from cardbox_cli.cli.terminal.watch import between_looks
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import UsageError
from cardbox_cli.model.execution.turns import CONSUMED, ERROR, OPEN, SKIPPED

STATES = (*OPEN, CONSUMED, ERROR, SKIPPED)


@verb(
    examples="cbx inbox list --agent clerk --status queued\n"
    "cbx inbox list --dead --columns full-id,agent,tries,why\n"
    "cbx inbox list --watch",
    pages=True,
)
def command(
    limit: Limit = 50,
    agent: OfAgent = None,
    status: Annotated[
        str | None, typer.Option(click_type=OneOf(lambda: STATES, what="state"), help="Only in this state.")
    ] = None,
    message_type: Annotated[
        str | None,
        typer.Option(
            "--type",
            "-t",
            click_type=OneOf(lambda: ("turn", "tool_result", "timeout", "stop"), what=None),
            help="Only of this type.",
        ),
    ] = None,
    dead: Annotated[bool, typer.Option("--dead", help="Only dead letters: those given up.")] = False,
    columns: ColumnNames = None,
    watch: Watch = False,
    interval: Interval = 1.0,
) -> None:
    """List inbox rows, newest first."""
    from cardbox_cli.store.views.inbox import InboxFilter

    if dead and status not in (None, ERROR):
        raise UsageError(f"--dead is --status {ERROR}, not {status!r}", hint="leave out one of them")
    where = InboxFilter(agent_id=agent, status=ERROR if dead else status, message_type=message_type)
    pause = between_looks(watch, interval)
    shown = chosen(INBOX, columns)
    with session().inbox() as inbox:
        listing = Listing(
            read=lambda size: inbox.newest(where, limit=size),
            further=lambda last: inbox.further(where, last),
            limit=limit,
            columns=shown,
            item_id=lambda row: row.inbox_id,
            empty=none_of("inbox rows", narrowed=where != InboxFilter()),
        )
        show_list(listing, inbox.database, interval=pause)
