"""`cbx db stop`."""

from cardbox_cli.cli.commands.db.embedded_server import embedded_server
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb


@verb("stop", "cbx db stop")
def stop_server() -> None:
    """Stop the embedded server. Nothing is lost; the next command starts it again."""
    stopped = embedded_server("stop").stop()
    output.emit(
        {"stopped": stopped}, table=lambda: output.print_text("stopped" if stopped else "it was not running")
    )
