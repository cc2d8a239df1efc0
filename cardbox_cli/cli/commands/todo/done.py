"""`cbx todo done`."""

from cardbox_cli.cli.commands.todo.todo_list import Items, settle
from cardbox_cli.cli.options.shared_options import BoxId
from cardbox_cli.cli.verb import verb


@verb("done", "cbx todo done 8b1f22c0 1 3", "cbx todo done $CBX_OUTPUT_BOX 5f0c2a91")
def complete_items(box: BoxId, items: Items) -> None:
    """Mark items as done. One that is done already stays as it is."""
    settle(box, items, done=True)
