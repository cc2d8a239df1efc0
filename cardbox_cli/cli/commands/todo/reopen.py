"""`cbx todo reopen`."""

from cardbox_cli.cli.commands.todo.todo_list import Items, settle
from cardbox_cli.cli.options.shared_options import BoxId
from cardbox_cli.cli.verb import verb


@verb("reopen", "cbx todo reopen 8b1f22c0 3")
def reopen_items(box: BoxId, items: Items) -> None:
    """Mark items as not done after all. One that is open already stays as it is."""
    settle(box, items, done=False)
