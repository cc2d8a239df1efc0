"""`cbx todo add`."""

from typing import Annotated

from typer import Argument, Option

from cardbox_cli.cli.commands.todo.todo_list import TodoList, emit
from cardbox_cli.cli.options.input_files import read_text
from cardbox_cli.cli.options.shared_options import BoxId
from cardbox_cli.cli.options.value_types import FILE
from cardbox_cli.cli.project_database import open_stores
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import UsageError
from cardbox_cli.model.todo import new_item


@verb(
    "add",
    "cbx todo add 8b1f22c0 'Check the logs' 'Write to the customer'",
    "grep -rhoP 'TODO: \\K.*' src | cbx todo add 8b1f22c0 --file -",
    "cbx todo add $CBX_OUTPUT_BOX 'Ask for the invoice'",
)
def add_items(
    box: BoxId,
    texts: Annotated[list[str] | None, Argument(metavar="[TEXT...]", help="An item each.")] = None,
    file: Annotated[
        str | None,
        Option("--file", "-f", click_type=FILE, help="A file with an item on each line; - for stdin."),
    ] = None,
) -> None:
    """Add items to the todo list of a box.

    Refused while a turn reads or writes the box. A worker's command adds to its turn's own output box.
    """
    read = [] if file is None else [line for line in read_text(file).splitlines() if line.strip()]
    wanted = [*(texts or []), *read]
    if not wanted:
        raise UsageError("there is nothing to add", hint="give a TEXT for each item, or --file")
    with open_stores() as (cards, boxes), boxes.database.transaction():
        todo = TodoList(cards, boxes, box)
        drafts = [new_item(text, author_id=todo.author, agent_turn_id=todo.turn) for text in wanted]
        todo.write(drafts)
        added = {draft.card_id for draft in drafts}
        items = [item for item in todo.items() if item.card_id in added]
    emit(items)
