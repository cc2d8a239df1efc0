"""`cbx inbox list`."""

from typing import Annotated

from typer import Option

from cardbox_cli.cli.options.shared_options import ColumnNames, Interval, Limit, OfAgent, Watch
from cardbox_cli.cli.options.value_types import OneOf
from cardbox_cli.cli.project_database import open_inbox
from cardbox_cli.cli.terminal.list_columns import INBOX_COLUMNS
from cardbox_cli.cli.terminal.list_output import Listing, filtered, none_of, show_list
from cardbox_cli.cli.terminal.table_layout import chosen
from cardbox_cli.cli.terminal.watch import between_looks
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import UsageError
from cardbox_cli.model.execution.turns import CONSUMED, ERROR, OPEN, SKIPPED

STATES = (*OPEN, CONSUMED, ERROR, SKIPPED)


def _types() -> list[str]:
    from cardbox_cli.execution.queue.messages import TYPES

    return [each.name for each in TYPES.values() if each.claim is not None]


@verb(
    "list",
    "cbx inbox list --agent clerk --status queued",
    "cbx inbox list --dead --columns full-id,agent,tries,why",
    "cbx inbox list --watch",
    pages=True,
    reads=True,
)
def list_inbox_rows(
    limit: Limit = 50,
    agent: OfAgent = None,
    status: Annotated[
        str | None, Option(click_type=OneOf(lambda: STATES, what="state"), help="Only in this state.")
    ] = None,
    message_type: Annotated[
        str | None,
        Option(
            "--type",
            "-t",
            click_type=OneOf(_types, what=None),
            help="Only of this type.",
        ),
    ] = None,
    dead: Annotated[bool, Option("--dead", help="Only dead letters: those given up.")] = False,
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
    shown = chosen(INBOX_COLUMNS, columns)
    with open_inbox() as inbox:
        reading = filtered(inbox.newest, inbox.further, where)
        empty = none_of("inbox rows", narrowed=where != InboxFilter())
        listing = Listing(*reading, limit, shown, item_id=lambda row: row.inbox_id, empty=empty)
        show_list(listing, inbox.database, interval=pause)
