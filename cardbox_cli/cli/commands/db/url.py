"""`cbx db url`."""

from cardbox_cli.cli.project_database import database_target
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb
from cardbox_cli.store.connection.target import hide_password


@verb("url", 'psql "$(cbx db url)"', "DATABASE_URL=$(cbx db url) ./my-agent")
def print_url() -> None:
    """Print the database's address for other programs; starts the embedded server. Passwords are left out."""
    target = database_target()
    if target.embedded:
        server = target.server()
        server.start()
        address = server.url()
    else:
        assert target.conninfo is not None
        address = hide_password(target.conninfo)
    output.emit({"url": address}, table=lambda: output.print_text(address), ids=[address])
