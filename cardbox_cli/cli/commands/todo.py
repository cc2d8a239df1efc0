"""`cbx todo`: the to-do list of a box. Each change is a new card at the end of the box."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from cardbox_cli.cli.actor import own_context, own_output, own_turn
from cardbox_cli.cli.last_ids import remember_made
from cardbox_cli.cli.options.input_files import read_text
from cardbox_cli.cli.options.shared_options import BoxId
from cardbox_cli.cli.options.value_types import FILE
from cardbox_cli.cli.project_database import open_stores
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.table_layout import Column, Shown
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import UsageError
from cardbox_cli.model.cards import OPERATOR, CardDraft
from cardbox_cli.model.ids import short_id, unique
from cardbox_cli.model.todo import TodoItem, find_item, new_item, replacement_card, todo_items
from cardbox_cli.text.error_messages import conflict_message
from cardbox_cli.text.escaping import flatten

if TYPE_CHECKING:
    from cardbox_cli.store.boxes import BoxStore
    from cardbox_cli.store.cards import CardStore


Items = Annotated[
    list[str],
    Argument(
        metavar="ITEM...",
        help="Item numbers, or unique parts of 4 or more characters at the start or end of their ids.",
    ),
]


class TodoList:
    """The to-do list of a box, changed by a person or by the turn that this process works for.

    Items in a turn's output box continue the list of its context box.
    """

    def __init__(self, cards: "CardStore", boxes: "BoxStore", given: str) -> None:
        self.cards, self.boxes = cards, boxes
        self.box_id = boxes.resolve(given)
        self.fence = own_output(self.box_id)
        turn = own_turn()
        self.author, self.turn = turn.get("author_id", OPERATOR), turn.get("agent_turn_id")

    def items(self) -> list[TodoItem]:
        """Return the current list. Raises NotFound for an unknown box."""
        self.boxes.require(self.box_id)
        context = None if self.fence is None else own_context()
        read = [self.box_id] if context is None else [context, self.box_id]
        return todo_items(slot for box_id in read for slot in self.boxes.slots(box_id))

    def write(self, drafts: Sequence[CardDraft]) -> None:
        self.cards.add_many(drafts)
        self.boxes.append(self.box_id, [draft.card_id for draft in drafts], fence=self.fence)
        remember_made(card_id=drafts[-1].card_id)


def _mark_items(box: str, given: Sequence[str], *, done: bool) -> None:
    with open_stores() as (cards, boxes), boxes.database.transaction():
        todo = TodoList(cards, boxes, box)
        items = todo.items()
        ids = unique(find_item(items, each, todo.box_id).first_card_id for each in given)
        chosen = [item for item in items if item.first_card_id in ids]
        notes = [f"unchanged: {item.number}" for item in chosen if item.done == done]
        old = cards.get_many([item.card_id for item in chosen if item.done != done]).cards
        if old:
            todo.write(
                [
                    replacement_card(card, done=done, author_id=todo.author, agent_turn_id=todo.turn)
                    for card in old
                ]
            )
            items = todo.items()
    for note in notes:
        announce(note)
    _emit_items([item for item in items if item.first_card_id in ids])


def _emit_items(items: Sequence[TodoItem], empty: str = "") -> None:
    output.emit_list(
        items, columns=Shown(_ITEM_COLUMNS), item_id=lambda item: item.first_card_id, empty=empty
    )


_ITEM_COLUMNS = (
    Column("#", lambda item: str(item.number), right=True),
    Column("ID", lambda item: short_id(item.first_card_id)),
    Column("STATE", lambda item: "done" if item.done else "open"),
    Column("TEXT", lambda item: flatten(item.text)),
)


@verb(
    "add",
    "cbx todo add 8b1f22c0 'Check the logs' 'Write to the customer'",
    "grep -rhoP 'TODO: \\K.*' src | cbx todo add 8b1f22c0 --file -",
    "cbx todo add $CBX_OUTPUT_BOX 'Ask for the invoice'",
)
def add_items(
    box: BoxId,
    texts: Annotated[list[str] | None, Argument(metavar="[TEXT...]", help="The items.")] = None,
    file: Annotated[
        str | None,
        Option("--file", "-f", click_type=FILE, help="A file with one item per line; - for stdin."),
    ] = None,
) -> None:
    """Add items to the to-do list of a box.

    Refuses a box that a turn reads or writes. A worker's command may add to the output box of its turn.
    """
    lines = [] if file is None else [line for line in read_text(file).splitlines() if line.strip()]
    new_texts = [*(texts or []), *lines]
    if not new_texts:
        raise UsageError("no items to add", hint="pass a TEXT for each item, or --file")
    with open_stores() as (cards, boxes), boxes.database.transaction():
        todo = TodoList(cards, boxes, box)
        drafts = [new_item(text, author_id=todo.author, agent_turn_id=todo.turn) for text in new_texts]
        todo.write(drafts)
        added = {draft.card_id for draft in drafts}
        items = [item for item in todo.items() if item.card_id in added]
    _emit_items(items)


@verb("done", "cbx todo done 8b1f22c0 1 3", "cbx todo done $CBX_OUTPUT_BOX 5f0c2a91")
def complete_items(box: BoxId, items: Items) -> None:
    """Mark items as done. Items that are already done do not change."""
    _mark_items(box, items, done=True)


@verb("reopen", "cbx todo reopen 8b1f22c0 3")
def reopen_items(box: BoxId, items: Items) -> None:
    """Mark items as not done. Items that are already open do not change."""
    _mark_items(box, items, done=False)


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
    only_open: Annotated[bool, Option("--open", help="Only open items.")] = False,
    only_done: Annotated[bool, Option("--done", help="Only items that are done.")] = False,
) -> None:
    """List the to-do items of a box in the order of their creation, with their current states."""
    if only_open and only_done:
        raise UsageError(conflict_message("--open", "--done"), hint="remove both to list all items")
    with open_stores() as (cards, boxes), boxes.database.snapshot():
        todo = TodoList(cards, boxes, box)
        items = todo.items()
    shown = [item for item in items if item.done != only_open] if only_open or only_done else items
    which = "open " if only_open else "done " if only_done else ""
    _emit_items(shown, empty=f"no {which}todo items in box {todo.box_id}")
