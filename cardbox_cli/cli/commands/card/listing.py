"""What `card list` and `card search` share: cards as a list."""

from typing import TYPE_CHECKING

from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal.columns import CARD, chosen
from cardbox_cli.cli.terminal.lists import Listing, none_of, show_list

if TYPE_CHECKING:
    from cardbox_cli.store.cards import CardFilter


def list_cards(where: "CardFilter", limit: int, columns: str | None, interval: float | None = None) -> None:
    shown = chosen(CARD, columns)
    with session().stores() as (cards, _):
        listing = Listing(
            read=lambda size: cards.newest(where, limit=size),
            further=lambda last: cards.further(where, last),
            limit=limit,
            columns=shown,
            item_id=lambda card: card.card_id,
            empty=none_of("cards", narrowed=True),
        )
        show_list(listing, cards.database, interval=interval)
