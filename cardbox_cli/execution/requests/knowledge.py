"""What knowledge is collected from, on Postgres: the project's own cards that speak to models.

Satisfies a protocol of `context/collector`, and reads where it is asked for alone; so does
`store/views/experience`. How the cards then read is `context/layer_texts`' affair.
"""

from cardbox_cli.model.cards import Card
from cardbox_cli.store.cards import CardFilter, CardStore
from cardbox_cli.store.connection.database import Database

# What speaks to no model, or only within the request that it belongs to.
_NO_KNOWLEDGE = (
    "sys.%",
    "meta.%",
    "session.event",
    "tool.call",
    "todo.item",
    "context.%",
    "task.result_fields",
    "agent.reasoning",
    "agent.aside",
)


class StoredKnowledge:
    """What the cards of a project say."""

    def __init__(self, database: Database, project_id: str) -> None:
        self._cards = CardStore(database, project_id)

    def knowledge(self, query: str, limit: int) -> list[Card]:
        """What `cbx card search` finds for the words, newest first, of the cards that speak to models."""
        where = CardFilter(text=query, except_types=_NO_KNOWLEDGE)
        return list(self._cards.newest(where, limit=limit))
