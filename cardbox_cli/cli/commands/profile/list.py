"""`cbx profile list`."""

from cardbox_cli.cli.options.shared_options import ColumnNames, Limit
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal.list_columns import PROFILE_COLUMNS
from cardbox_cli.cli.terminal.list_output import Listing, held_whole, nothing_here, show_list
from cardbox_cli.cli.terminal.table_layout import chosen
from cardbox_cli.cli.verb import verb


@verb(
    "list",
    "cbx profile list",
    "cbx profile list -o json | jq -r '.[].name'",
    "cbx profile list --columns name,updated",
    pages=True,
    reads=True,
)
def list_profiles(limit: Limit = 50, columns: ColumnNames = None) -> None:
    """List the profiles of the project by name."""
    from cardbox_cli.store.profiles import ProfileStore

    shown = chosen(PROFILE_COLUMNS, columns)
    with open_database() as database:
        entries = ProfileStore(database, session().project_id).all()
        empty = nothing_here(database, "profiles", "`cbx profile import FILE.yaml` adds one")
        reading = held_whole(entries, limit)
        listing = Listing(*reading, limit, shown, item_id=lambda entry: entry.profile_box_id, empty=empty)
        show_list(listing, database)
