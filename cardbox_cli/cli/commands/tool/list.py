"""`cbx tool list`."""

from cardbox_cli.cli.options.shared_options import ColumnNames, Limit
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal.list_columns import TOOL_COLUMNS
from cardbox_cli.cli.terminal.list_output import Listing, held_whole, nothing_here, show_list
from cardbox_cli.cli.terminal.table_layout import chosen
from cardbox_cli.cli.verb import verb


@verb("list", "cbx tool list", "cbx tool list -o json | jq -r '.[].tool_name'", pages=True, reads=True)
def list_tools(limit: Limit = 50, columns: ColumnNames = None) -> None:
    """List the tools of the project by name."""
    from cardbox_cli.store.tools import ToolStore

    shown = chosen(TOOL_COLUMNS, columns)
    with open_database() as database:
        tools = ToolStore(database, session().project_id).all()
        empty = nothing_here(database, "tools", "`cbx tool add` adds one")
        reading = held_whole(tools, limit)
        listing = Listing(*reading, limit, shown, item_id=lambda tool: tool.tool_name, empty=empty)
        show_list(listing, database)
