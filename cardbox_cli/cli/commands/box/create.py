"""`cbx box create`."""

from typing import Annotated

from typer import Option

from cardbox_cli.cli.commands.box.members import AllowDangling, CardIds, emit_box, given_cards
from cardbox_cli.cli.last_ids import remember_made
from cardbox_cli.cli.options.value_types import BOX
from cardbox_cli.cli.project_database import open_stores
from cardbox_cli.cli.verb import verb


@verb(
    "create",
    "cbx box create",
    "cbx card list --type task.instruction -o id | cbx box create - --title orders",
)
def create_box(
    card_ids: CardIds = None,
    title: Annotated[str | None, Option(metavar="T", help="A name for people.")] = None,
    parent: Annotated[
        list[str] | None, Option(click_type=BOX, help="A box that this one is derived from.")
    ] = None,
    allow_dangling: AllowDangling = False,
) -> None:
    """Make a box of cards, in the order given."""
    with open_stores() as (cards, boxes), boxes.database.transaction():
        ids = given_cards(cards, card_ids, allow_dangling)
        parents = [boxes.get(boxes.resolve(given)).box_id for given in parent or []]
        box = boxes.create(ids, parent_ids=parents, title=title, allow_dangling=allow_dangling)
        remember_made(box_id=box.box_id)
    emit_box(box)
