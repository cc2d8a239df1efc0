"""`cbx db destroy`."""

from cardbox_cli.cli.commands.db.embedded_server import embedded_server
from cardbox_cli.cli.options.confirmation import Yes, confirm
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb


@verb("destroy", "cbx db destroy --yes")
def destroy_database(yes: Yes = False) -> None:
    """Stop the embedded server and delete all of its data."""
    server = embedded_server("destroy")
    confirm(f"Delete the embedded database of {server.home}, every project in it?", yes=yes)
    removed = [str(path) for path in server.destroy()]
    text = "\n".join(f"removed {path}" for path in removed) or "there was nothing to remove"
    output.emit({"removed": removed}, table=lambda: output.print_text(text))
