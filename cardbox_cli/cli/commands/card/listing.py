"""What `card list` and `card search` share: cards as a list."""

from typing import TYPE_CHECKING, Annotated

import msgspec
from typer import Option

from cardbox_cli.cli.options.value_types import CARD_TYPE
from cardbox_cli.cli.project_database import open_stores
from cardbox_cli.cli.terminal.list_columns import CARD_COLUMNS
from cardbox_cli.cli.terminal.list_output import Listing, filtered, none_of, show_list
from cardbox_cli.cli.terminal.table_layout import chosen

if TYPE_CHECKING:
    from cardbox_cli.store.boxes import BoxStore
    from cardbox_cli.store.cards import CardFilter

CardTypes = Annotated[
    list[str] | None, Option("--type", "-t", click_type=CARD_TYPE, help="Only this type; repeat for several.")
]


def show_card_list(
    where: "CardFilter",
    limit: int,
    columns: str | None,
    interval: float | None = None,
    *,
    box: str | None = None,
) -> None:
    """Print the cards that `where` allows; those of a box alone, if one is named. Raises NotFound for it."""
    shown = chosen(CARD_COLUMNS, columns)
    with open_stores() as (cards, boxes):
        if box is not None:
            where = msgspec.structs.replace(where, card_ids=_held(boxes, box))
        reading = filtered(cards.newest, cards.further, where)
        empty = none_of("cards", narrowed=True)
        listing = Listing(*reading, limit, shown, item_id=lambda card: card.card_id, empty=empty)
        show_list(listing, cards.database, interval=interval)


def _held(boxes: "BoxStore", given: str) -> list[str]:
    box_id = boxes.resolve(given)
    boxes.require(box_id)
    return boxes.id_lists([box_id])[box_id]
