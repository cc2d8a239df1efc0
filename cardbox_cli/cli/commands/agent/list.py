"""`cbx agent list`."""

from typing import Annotated

from typer import Option

from cardbox_cli.cli.options.shared_options import ColumnNames, Limit
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal.list_columns import AGENT_COLUMNS
from cardbox_cli.cli.terminal.list_output import Listing, filtered, nothing_here, show_list
from cardbox_cli.cli.terminal.table_layout import chosen
from cardbox_cli.cli.verb import verb


@verb(
    "list",
    "cbx agent list",
    "cbx agent list --worker-target gpu -o id",
    "cbx agent list --columns agent,status,turn,epoch",
    pages=True,
    reads=True,
)
def list_agents(
    limit: Limit = 50,
    worker_target: Annotated[
        str | None, Option(metavar="T", help="Only those that this pool of workers serves.")
    ] = None,
    tag: Annotated[str | None, Option(metavar="TEXT", help="Only those with this tag.")] = None,
    columns: ColumnNames = None,
) -> None:
    """List the agents of the project by id, each with what it does now."""
    from cardbox_cli.store.roster import AgentFilter, RosterStore

    shown = chosen(AGENT_COLUMNS, columns)
    where = AgentFilter(worker_target=worker_target, tag=tag)
    with open_database() as database:
        roster = RosterStore(database, session().project_id)
        what = "such agents" if worker_target or tag else "agents"
        empty = nothing_here(database, what, "`cbx agent provision AGENT --profile NAME` makes one")
        reading = filtered(roster.list, roster.further, where)
        listing = Listing(*reading, limit, shown, item_id=lambda entry: entry.agent_id, empty=empty)
        show_list(listing, database)
