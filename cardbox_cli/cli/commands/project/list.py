"""`cbx project list`."""

from cardbox_cli.cli.options.shared_options import ColumnNames, Limit
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.terminal.list_columns import PROJECT_COLUMNS
from cardbox_cli.cli.terminal.list_output import Listing, show_list
from cardbox_cli.cli.terminal.table_layout import chosen
from cardbox_cli.cli.verb import verb


@verb(
    "list",
    "cbx project list",
    "cbx project list -o id --limit 0",
    "cbx project list --columns project,updated",
    pages=True,
    reads=True,
)
def list_projects(limit: Limit = 50, columns: ColumnNames = None) -> None:
    """List the projects of the database by id."""
    from cardbox_cli.store.projects import ProjectsStore

    shown = chosen(PROJECT_COLUMNS, columns)
    with open_database() as database:
        projects = ProjectsStore(database)
        listing = Listing(
            lambda size: projects.list(limit=size),
            projects.further,
            limit,
            shown,
            item_id=lambda project: project.project_id,
            empty="no projects; `cbx project create ID`, or the first profile, tool or agent, makes one",
        )
        show_list(listing, database)
