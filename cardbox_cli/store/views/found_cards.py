"""Cards that a search has found, with what they say there, and where they are."""

import re
from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from cardbox_cli.model.card_words import PREVIEW, full_text
from cardbox_cli.model.cards import Card
from cardbox_cli.store.views.boxes import BoxViews
from cardbox_cli.text import around, one_line, pattern, searched_words

_PAGE = 200


class FoundCard(Card, frozen=True, kw_only=True, gc=False):
    """A card that a search found, what it says where that was, and the box that has held it for longest."""

    match: str
    box_id: str | None


def found_pattern(text: str) -> re.Pattern[str] | None:
    """What shows where a card says the words of a search; None where they are too odd to be shown."""
    return pattern(searched_words(text))


def found_cards(found: Iterable[Card], views: BoxViews, words: re.Pattern[str] | None) -> Iterator[FoundCard]:
    """The cards, in their order."""
    cards = iter(found)
    while page := list(islice(cards, _PAGE)):
        held = views.holding([card.card_id for card in page])
        for card in page:
            yield FoundCard(
                **msgspec.structs.asdict(card),
                match=one_line(around(full_text(card), words), PREVIEW),
                box_id=held.get(card.card_id),
            )
