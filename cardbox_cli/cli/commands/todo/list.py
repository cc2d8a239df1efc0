"""`cbx todo list`."""

from typing import Annotated

from typer import Option

from cardbox_cli.cli.commands.todo.todo_list import TodoList, emit
from cardbox_cli.cli.options.shared_options import BoxId
from cardbox_cli.cli.project_database import open_stores
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import UsageError


@verb(
    "list",
    "cbx todo list 8b1f22c0",
    "cbx todo list 8b1f22c0 --open",
    "cbx todo list 8b1f22c0 -o json | jq -r '.[] | select(.done) | .text'",
    pages=True,
    reads=True,
)
def list_items(
    box: BoxId,
    only_open: Annotated[bool, Option("--open", help="Only what is still to be done.")] = False,
    only_done: Annotated[bool, Option("--done", help="Only what is done.")] = False,
) -> None:
    """List the todo items of a box, each where it was added, as it is now."""
    if only_open and only_done:
        raise UsageError("--open and --done exclude each other", hint="give neither for all items")
    with open_stores() as (cards, boxes), boxes.database.snapshot():
        todo = TodoList(cards, boxes, box)
        items = todo.items()
    wanted = [item for item in items if not (only_open and item.done) and not (only_done and not item.done)]
    which = "open " if only_open else "done " if only_done else ""
    emit(wanted, empty=f"no {which}todo items in box {todo.box_id}")
