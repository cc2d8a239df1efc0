"""`cbx db destroy`."""

from typing import Annotated

import typer

from cardbox_cli.cli.commands.db.embedded_server import embedded_server
from cardbox_cli.cli.parameters.inputs import confirm
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.tree import verb


@verb(examples="cbx db destroy --yes")
def command(yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False) -> None:
    """Stop the embedded server and delete all of its data."""
    server = embedded_server("destroy")
    confirm(f"Delete the embedded database of {server.home}, every project in it?", yes=yes)
    removed = [str(path) for path in server.destroy()]
    told = "\n".join(f"removed {path}" for path in removed) or "there was nothing to remove"
    output.emit({"removed": removed}, table=lambda: output.say(told))
