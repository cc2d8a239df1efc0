"""What `card list` and `card search` share: cards as a list."""

from typing import TYPE_CHECKING, Annotated

from typer import Option

from cardbox_cli.cli.parameters.types import CARD_TYPE
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal.columns import CARD
from cardbox_cli.cli.terminal.lists import Listing, filtered, none_of, show_list
from cardbox_cli.cli.terminal.shown import chosen

if TYPE_CHECKING:
    from cardbox_cli.store.cards import CardFilter

CardTypes = Annotated[
    list[str] | None, Option("--type", "-t", click_type=CARD_TYPE, help="Only this type; repeat for several.")
]


def list_cards(where: "CardFilter", limit: int, columns: str | None, interval: float | None = None) -> None:
    shown = chosen(CARD, columns)
    with session().stores() as (cards, _):
        reading = filtered(cards.newest, cards.further, where)
        empty = none_of("cards", narrowed=True)
        listing = Listing(*reading, limit, shown, item_id=lambda card: card.card_id, empty=empty)
        show_list(listing, cards.database, interval=interval)
