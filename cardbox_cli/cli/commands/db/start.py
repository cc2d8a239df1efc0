"""`cbx db start`."""

from cardbox_cli.cli.commands.db.embedded_server import embedded_server
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb


@verb("start", "cbx db start")
def start_server() -> None:
    """Start the embedded server; any command that needs it does so too."""
    from cardbox_cli.cli.commands.db.status import print_status
    from cardbox_cli.store.views.status import database_status

    started = embedded_server("start").start()
    with open_database() as database:
        answer = database_status(database)
    announce("started" if started else "it runs already")
    output.emit(answer, table=lambda: print_status(answer))
