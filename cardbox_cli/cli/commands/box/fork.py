"""`cbx box fork`."""

from typing import Annotated

from typer import Option

from cardbox_cli.cli.commands.box.members import emit_box
from cardbox_cli.cli.last_ids import remember_made
from cardbox_cli.cli.options.shared_options import BoxId
from cardbox_cli.cli.project_database import open_stores
from cardbox_cli.cli.verb import verb


@verb("fork", "cbx box fork 8b1f22c0 --title 'what if'")
def fork_box(
    box: BoxId, title: Annotated[str | None, Option(metavar="T", help="Default: the box's own title.")] = None
) -> None:
    """Make a new box with the same cards, whose parent is this one."""
    with open_stores() as (_, boxes):
        made = boxes.fork(boxes.resolve(box), title=title)
        remember_made(box_id=made.box_id)
    emit_box(made)
