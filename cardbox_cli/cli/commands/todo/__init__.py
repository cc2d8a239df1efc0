"""`cbx todo`: the todo list of a box. A change is a new card at the end of the box; nothing is rewritten."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cardbox_cli.cli.parameters.inputs import read_text
from cardbox_cli.cli.parameters.options import BoxId
from cardbox_cli.cli.parameters.worker_environment import own_context, own_output
from cardbox_cli.cli.session import announce, session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.tree import examples, noun
from cardbox_cli.errors import UsageError
from cardbox_cli.model.cards import OPERATOR, CardDraft
from cardbox_cli.model.ids import short_id, unique
from cardbox_cli.model.todo import TodoItem, find_item, new_item, settled, todo_items

if TYPE_CHECKING:
    from cardbox_cli.store.boxes import BoxStore
    from cardbox_cli.store.cards import CardStore

app = noun("Keep the todo list of a box: add, settle and list its items.")

Items = Annotated[
    list[str],
    typer.Argument(
        metavar="ITEM...", help="Numbers, or ids: 4 or more characters of their beginning or end."
    ),
]


@app.command(
    epilog=examples(
        "  cbx todo add 8b1f22c0 'Check the logs' 'Write to the customer'\n"
        "  grep -rhoP 'TODO: \\K.*' src | cbx todo add 8b1f22c0 --file -\n"
        "  cbx todo add $CBX_OUTPUT_BOX 'Ask for the invoice'"
    )
)
def add(
    box: BoxId,
    texts: Annotated[list[str] | None, typer.Argument(metavar="[TEXT...]", help="An item each.")] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", metavar="FILE", help="A file with an item on each line; - for stdin."),
    ] = None,
) -> None:
    """Add items to the todo list of a box.

    Refused while a turn reads or writes the box. A worker's command adds to its turn's own output box.
    """
    read = [] if file is None else [line for line in read_text(file).splitlines() if line.strip()]
    wanted = [*(texts or []), *read]
    if not wanted:
        raise UsageError("there is nothing to add", hint="give a TEXT for each item, or --file")
    with session().stores() as (cards, boxes), boxes.database.transaction():
        desk = _Desk(cards, boxes, box)
        drafts = [new_item(text, author_id=desk.author, agent_turn_id=desk.turn) for text in wanted]
        desk.write(drafts)
        added = {draft.card_id for draft in drafts}
        items = [item for item in desk.items() if item.card_id in added]
    _emit(items)


@app.command(epilog=examples("  cbx todo done 8b1f22c0 1 3\n  cbx todo done $CBX_OUTPUT_BOX 5f0c2a91"))
def done(box: BoxId, items: Items) -> None:
    """Mark items as done. One that is done already stays as it is."""
    _settle(box, items, done=True)


@app.command(epilog=examples("  cbx todo reopen 8b1f22c0 3"))
def reopen(box: BoxId, items: Items) -> None:
    """Mark items as not done after all. One that is open already stays as it is."""
    _settle(box, items, done=False)


@app.command(
    "list",
    epilog=examples(
        "  cbx todo list 8b1f22c0\n"
        "  cbx todo list 8b1f22c0 --open\n"
        "  cbx todo list 8b1f22c0 -o json | jq -r '.[] | select(.done) | .text'"
    ),
)
def list_(
    box: BoxId,
    only_open: Annotated[bool, typer.Option("--open", help="Only what is still to be done.")] = False,
    only_done: Annotated[bool, typer.Option("--done", help="Only what is done.")] = False,
) -> None:
    """List the todo items of a box, each where it was added, as it is now."""
    if only_open and only_done:
        raise UsageError("--open and --done exclude each other", hint="give neither for all items")
    with session().stores() as (cards, boxes), boxes.database.snapshot():
        desk = _Desk(cards, boxes, box)
        items = desk.items()
    wanted = [item for item in items if not (only_open and item.done) and not (only_done and not item.done)]
    which = "open " if only_open else "done " if only_done else ""
    _emit(wanted, empty=f"no {which}todo items in box {desk.box_id}")


class _Desk:
    """The todo list of one box as this process may change it: as a person, or as the turn that it works for.

    What a turn adds to its output box continues the list of its context box.
    """

    def __init__(self, cards: "CardStore", boxes: "BoxStore", typed: str) -> None:
        self.cards, self.boxes = cards, boxes
        self.box_id = boxes.resolve(typed)
        self.fence = own_output(self.box_id)
        self.author = OPERATOR if self.fence is None else self.fence.agent_id
        self.turn = None if self.fence is None else self.fence.agent_turn_id

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
        session().made(card_id=drafts[-1].card_id)


def _settle(box: str, typed: Sequence[str], *, done: bool) -> None:
    with session().stores() as (cards, boxes), boxes.database.transaction():
        desk = _Desk(cards, boxes, box)
        items = desk.items()
        named = unique(find_item(items, each, desk.box_id).first_card_id for each in typed)
        chosen = {item.first_card_id: item for item in items if item.first_card_id in named}
        news = [f"unchanged: {item.number}" for item in chosen.values() if item.done == done]
        old = cards.get_many([item.card_id for item in chosen.values() if item.done != done]).cards
        if old:
            desk.write(
                [settled(card, done=done, author_id=desk.author, agent_turn_id=desk.turn) for card in old]
            )
            items = desk.items()
    for note in news:
        announce(note)
    _emit([item for item in items if item.first_card_id in chosen])


def _emit(items: Sequence[TodoItem], empty: str = "") -> None:
    output.emit_list(
        items,
        columns=["#", "ID", "STATE", "TEXT"],
        row=lambda item: [
            str(item.number),
            short_id(item.first_card_id),
            "done" if item.done else "open",
            item.text,
        ],
        item_id=lambda item: item.first_card_id,
        empty=empty,
    )
