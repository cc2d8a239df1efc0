"""`cbx agent list`."""

from typing import Annotated

import typer

from cardbox_cli.cli.parameters.options import ColumnNames, Limit
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal.columns import AGENT, chosen
from cardbox_cli.cli.terminal.lists import Listing, nothing_here, show_list
from cardbox_cli.cli.verb import verb


@verb(
    examples="cbx agent list\n"
    "cbx agent list --worker-target gpu -o id\n"
    "cbx agent list --columns agent,status,turn,epoch",
    pages=True,
)
def command(
    limit: Limit = 50,
    worker_target: Annotated[
        str | None, typer.Option(metavar="T", help="Only those that this pool of workers serves.")
    ] = None,
    tag: Annotated[str | None, typer.Option(metavar="TEXT", help="Only those with this tag.")] = None,
    columns: ColumnNames = None,
) -> None:
    """List the agents of the project by id, each with what it does now."""
    from cardbox_cli.store.roster import AgentFilter, RosterStore

    shown = chosen(AGENT, columns)
    where = AgentFilter(worker_target=worker_target, tag=tag)
    with session().database() as database:
        roster = RosterStore(database, session().project_id)
        listing = Listing(
            read=lambda size: roster.list(where, limit=size),
            further=lambda last: roster.further(where, last),
            limit=limit,
            columns=shown,
            item_id=lambda entry: entry.agent_id,
            empty=nothing_here(
                database,
                "such agents" if worker_target or tag else "agents",
                "`cbx agent provision AGENT --profile NAME` makes one",
            ),
        )
        show_list(listing, database)
