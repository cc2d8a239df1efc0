"""`cbx card search`."""

import re
from typing import Annotated

from typer import Argument

from cardbox_cli.cli.commands.card.listing import CardTypes
from cardbox_cli.cli.options.shared_options import ColumnNames, Limit
from cardbox_cli.cli.project_database import open_stores
from cardbox_cli.cli.terminal.list_columns import CARD_COLUMNS, short_or_nothing
from cardbox_cli.cli.terminal.list_output import Listing, filtered, none_of, show_list
from cardbox_cli.cli.terminal.table_layout import Column, Columns, chosen, painted
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import UsageError


@verb(
    "search",
    "cbx card search 'payment timeout'",
    "cbx card search 超时 --type tool.result",
    pages=True,
    reads=True,
)
def search_cards(
    words: Annotated[
        list[str],
        Argument(
            metavar="TEXT...",
            help='Words, "a phrase", -word, or; for Chinese, Japanese and Korean any piece of the text.',
        ),
    ],
    limit: Limit = 50,
    types: CardTypes = None,
    columns: ColumnNames = None,
) -> None:
    """Find cards by what they say, newest first. Whole words, in any case.

    MATCH is what a card says around the first word that is found. BOX is the box that has held the card for
    longest without a change, among the 100 that changed last; `cbx card refs` looks further.
    """
    from cardbox_cli.store.cards import CardFilter
    from cardbox_cli.store.views.boxes import BoxViews
    from cardbox_cli.store.views.found_cards import found_cards, found_pattern

    text = " ".join(words)
    if not text.strip():
        raise UsageError("there is nothing to search for", hint="give a word")
    found = found_pattern(text)
    shown = chosen(_columns(found), columns)
    with open_stores() as (cards, _):
        views = BoxViews(cards.database, cards.project_id)
        read, further = filtered(cards.newest, cards.further, CardFilter(text=text, types=types or None))
        listing = Listing(
            lambda size: found_cards(read(size), views, found),
            further,
            limit,
            shown,
            item_id=lambda card: card.card_id,
            empty=none_of("cards", narrowed=True),
        )
        show_list(listing, cards.database)


*_OF_CARDS, _PREVIEW = CARD_COLUMNS
COLUMNS: Columns = (
    *_OF_CARDS,
    _PREVIEW._replace(extra=True),
    Column("BOX", lambda card: short_or_nothing(card.box_id), spare=1),
    Column("MATCH", lambda card: card.match, overflow="cut"),
)


def _columns(words: re.Pattern[str] | None) -> Columns:
    *others, match = COLUMNS
    return (*others, match._replace(paint=lambda text: _highlighted(text, words)))


def _highlighted(text: str, words: re.Pattern[str] | None) -> str:
    return text if words is None else words.sub(lambda word: painted("red", word[0]), text)
