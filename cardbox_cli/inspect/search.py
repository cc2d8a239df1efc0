"""Full-text searches for cards, for every surface. Each match has an excerpt and a box with the card."""

from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

from cardbox_cli.errors import UsageError
from cardbox_cli.model.cards import Card
from cardbox_cli.model.pairing import PREVIEW, full_text
from cardbox_cli.store.cards import CardFilter, CardStore
from cardbox_cli.store.connection.project_store import FurtherCount, ListPosition
from cardbox_cli.store.views.box_views import BoxViews
from cardbox_cli.text.escaping import excerpt
from cardbox_cli.text.search_terms import search_words, skip_to_match, word_pattern

# The number of cards whose boxes are read together.
_PAGE = 200


class FoundCard(Card, frozen=True, kw_only=True, gc=False):
    """A card that a search found, an excerpt at the match, and the box that has held it for longest."""

    match: str
    box_id: str | None


class CardSearch:
    """A search for `text` among the cards of some or all `types`. A page begins after `behind`.

    `pattern` matches the searched words in a card's text, or is None if no pattern can. Raises UsageError for
    a blank text.
    """

    def __init__(
        self, text: str, types: Sequence[str] | None = None, behind: ListPosition | None = None
    ) -> None:
        if not text.strip():
            raise UsageError("the search text is empty", hint="pass at least one word")
        self._where = CardFilter(text=text, types=types or None, behind=behind)
        self.pattern = word_pattern(search_words(text))

    def newest(self, cards: CardStore, limit: int | None = None) -> Iterator[FoundCard]:
        """Yield the cards, newest first, read in pages."""
        results = cards.newest(self._where, limit=limit)
        views = BoxViews(cards.database, cards.project_id)
        while page := list(islice(results, _PAGE)):
            box_ids = views.holding([card.card_id for card in page])
            for card in page:
                yield FoundCard(
                    **msgspec.structs.asdict(card),
                    match=excerpt(skip_to_match(full_text(card), self.pattern), PREVIEW),
                    box_id=box_ids.get(card.card_id),
                )

    def further(self, cards: CardStore, last: Card) -> FurtherCount:
        return cards.count_further(self._where, last)
