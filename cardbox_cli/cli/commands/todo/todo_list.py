"""The todo list of one box, as `cbx todo` reads, changes and prints it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from typer import Argument

from cardbox_cli.cli.actor import own_context, own_output, own_turn
from cardbox_cli.cli.last_ids import remember_made
from cardbox_cli.cli.project_database import open_stores
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.table_layout import Column, Shown
from cardbox_cli.model.cards import OPERATOR, CardDraft
from cardbox_cli.model.ids import short_id, unique
from cardbox_cli.model.text.escaping import flat
from cardbox_cli.model.todo import TodoItem, find_item, settled, todo_items

if TYPE_CHECKING:
    from cardbox_cli.store.boxes import BoxStore
    from cardbox_cli.store.cards import CardStore


Items = Annotated[
    list[str],
    Argument(metavar="ITEM...", help="Numbers, or ids: 4 or more characters of their beginning or end."),
]


class TodoList:
    """The todo list of one box as this process may change it: as a person, or as the turn that it works for.

    What a turn adds to its output box continues the list of its context box.
    """

    def __init__(self, cards: "CardStore", boxes: "BoxStore", given: str) -> None:
        self.cards, self.boxes = cards, boxes
        self.box_id = boxes.resolve(given)
        self.fence = own_output(self.box_id)
        turn = own_turn()
        self.author, self.turn = turn.get("author_id", OPERATOR), turn.get("agent_turn_id")

    def items(self) -> list[TodoItem]:
        """The list as it is now. Raises NotFound for a box that there is not."""
        self.boxes.require(self.box_id)
        context = None if self.fence is None else own_context()
        read = [self.box_id] if context is None else [context, self.box_id]
        return todo_items(slot for box_id in read for slot in self.boxes.slots(box_id))

    def write(self, drafts: Sequence[CardDraft]) -> None:
        """Append these cards to the box."""
        self.cards.add_many(drafts)
        self.boxes.append(self.box_id, [draft.card_id for draft in drafts], fence=self.fence)
        remember_made(card_id=drafts[-1].card_id)


def settle(box: str, given: Sequence[str], *, done: bool) -> None:
    with open_stores() as (cards, boxes), boxes.database.transaction():
        todo = TodoList(cards, boxes, box)
        items = todo.items()
        named = unique(find_item(items, each, todo.box_id).first_card_id for each in given)
        chosen = {item.first_card_id: item for item in items if item.first_card_id in named}
        news = [f"unchanged: {item.number}" for item in chosen.values() if item.done == done]
        old = cards.get_many([item.card_id for item in chosen.values() if item.done != done]).cards
        if old:
            todo.write(
                [settled(card, done=done, author_id=todo.author, agent_turn_id=todo.turn) for card in old]
            )
            items = todo.items()
    for note in news:
        announce(note)
    emit([item for item in items if item.first_card_id in chosen])


def emit(items: Sequence[TodoItem], empty: str = "") -> None:
    output.emit_list(items, columns=Shown(_ITEM), item_id=lambda item: item.first_card_id, empty=empty)


_ITEM = (
    Column("#", lambda item: str(item.number), right=True),
    Column("ID", lambda item: short_id(item.first_card_id)),
    Column("STATE", lambda item: "done" if item.done else "open"),
    Column("TEXT", lambda item: flat(item.text)),
)
