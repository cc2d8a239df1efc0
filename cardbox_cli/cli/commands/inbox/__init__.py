"""`cbx inbox`: what agents must process, row by row."""

from typing import TYPE_CHECKING, Annotated

import typer

from cardbox_cli.cli.commands.inbox import work
from cardbox_cli.cli.parameters.inputs import check_choice
from cardbox_cli.cli.parameters.options import InboxId
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.columns import INBOX, INBOX_DEFAULT, chosen
from cardbox_cli.cli.terminal.describe import time
from cardbox_cli.cli.terminal.lists import ColumnNames, Limit, Listing, OfAgent, show_list
from cardbox_cli.cli.terminal.watch import Interval, Watch, between_looks
from cardbox_cli.cli.tree import examples, noun
from cardbox_cli.errors import UsageError
from cardbox_cli.model import exact_json
from cardbox_cli.model.execution.turns import CONSUMED, ERROR, OPEN, SKIPPED

if TYPE_CHECKING:
    from cardbox_cli.model.execution.turns import InboxRow, Lease

STATES = (*OPEN, CONSUMED, ERROR, SKIPPED)

app = noun("List, show, claim and give back what agents must process.")
work.add_to(app)


@app.command(
    "list",
    epilog=examples(
        "  cbx inbox list --agent clerk --status queued\n"
        "  cbx inbox list --dead --columns full-id,agent,tries,why\n"
        "  cbx inbox list --watch"
    ),
)
def list_(
    limit: Limit = 50,
    agent: OfAgent = None,
    status: Annotated[str | None, typer.Option(metavar="|".join(STATES), help="Only in this state.")] = None,
    message_type: Annotated[
        str | None,
        typer.Option("--type", "-t", metavar="turn|tool_result|timeout|stop", help="Only of this type."),
    ] = None,
    dead: Annotated[bool, typer.Option("--dead", help="Only dead letters: those given up.")] = False,
    columns: ColumnNames = None,
    watch: Watch = False,
    interval: Interval = 1.0,
) -> None:
    """List inbox rows, newest first."""
    from cardbox_cli.store.views.inbox import InboxFilter

    if status is not None:
        check_choice(status, "--status", STATES, what="state")
    if dead and status not in (None, ERROR):
        raise UsageError(f"--dead is --status {ERROR}, not {status!r}", hint="leave out one of them")
    where = InboxFilter(agent_id=agent, status=ERROR if dead else status, message_type=message_type)
    pause = between_looks(watch, interval)
    names = chosen(INBOX, INBOX_DEFAULT, columns)
    with session().inbox() as inbox:
        listing = Listing(
            read=lambda size: inbox.newest(where, limit=size),
            further=lambda last: inbox.further(where, last),
            limit=limit,
            columns=INBOX,
            names=names,
            item_id=lambda row: row.inbox_id,
            empty=f"no inbox rows in project {session().project_id!r}"
            if where == InboxFilter()
            else f"no such inbox rows in project {session().project_id!r}",
        )
        show_list(listing, inbox.database, interval=pause)


@app.command(epilog=examples("  cbx inbox show 1d5c8f72\n  cbx inbox show 1d5c8f72 -o json | jq .payload"))
def show(inbox_id: InboxId) -> None:
    """Show an inbox row whole, and who has claimed it."""
    from cardbox_cli.store.inbox import InboxStore

    with session().inbox() as inbox, inbox.database.snapshot():
        rows = InboxStore(inbox.database, inbox.project_id)
        found = rows.get(inbox.resolve(inbox_id))
        lease = rows.lease(found.inbox_id) if inbox.database.keeps_turns else None
    output.emit(found, table=lambda: _say(found, lease), ids=[found.inbox_id])


def _claim(lease: "Lease | None") -> str | None:
    return None if lease is None else f"{lease.owner}, until {time(lease.expires_at)}"


def _say(row: "InboxRow", lease: "Lease | None") -> None:
    output.facts(
        [
            ("inbox row", row.inbox_id),
            ("agent", row.agent_id),
            ("type", row.message_type),
            ("status", row.status),
            ("turn", f"{row.turn_id}, epoch {row.turn_epoch}"),
            ("correlation", row.correlation_id),
            ("channel", row.channel_id),
            ("tries", str(row.retry_count)),
            ("created", time(row.created_at)),
            ("due", time(row.next_retry_at)),
            ("claimed by", _claim(lease)),
            ("processed", time(row.processed_at)),
            ("closed", time(row.archived_at)),
            ("deferred", row.defer_reason),
            ("error", row.last_error),
            ("payload", exact_json.encode(row.payload).decode()),
            ("headers", exact_json.encode(row.context_headers).decode()),
        ]
    )
