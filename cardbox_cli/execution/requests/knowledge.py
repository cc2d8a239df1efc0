"""What knowledge is collected from, on Postgres: the project's own cards of the types that are knowledge.

Satisfies a protocol of `context/collector`, and reads where it is asked for alone; so does
`store/views/experience`. How the cards then read is `context/layer_texts`' affair.
"""

from cardbox_cli.model.card_types import CARD_TYPES
from cardbox_cli.model.cards import Card
from cardbox_cli.store.cards import CardFilter, CardStore
from cardbox_cli.store.connection.database import Database

_KNOWLEDGE = [name for name, known in CARD_TYPES.items() if known.is_knowledge]


class StoredKnowledge:
    """What the cards of a project say."""

    def __init__(self, database: Database, project_id: str) -> None:
        self._cards = CardStore(database, project_id)

    def knowledge(self, query: str, limit: int) -> list[Card]:
        """What `cbx card search` finds for the words, newest first, among the types that are knowledge."""
        return list(self._cards.newest(CardFilter(text=query, types=_KNOWLEDGE), limit=limit))
