"""What a project brings to the composing of its requests: its one switch of sharing, and its own cards.

What satisfies the protocols of `context/collector` reads where it is asked for alone; so does
`store/views/experience`. How the cards then read is `context/layer_texts`' affair.
"""

import msgspec

from cardbox_cli.context.collector import ContextCollector
from cardbox_cli.context.request import ComposeOptions
from cardbox_cli.model.card_types import CARD_TYPES
from cardbox_cli.model.cards import Card
from cardbox_cli.model.identity import ProjectSettings
from cardbox_cli.store.cards import CardFilter, CardStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.views.experience import ExperienceStore

_KNOWLEDGE = [name for name, known in CARD_TYPES.items() if known.is_knowledge]


class StoredKnowledge:
    """What the cards of a project hold."""

    def __init__(self, database: Database, project_id: str) -> None:
        self._cards = CardStore(database, project_id)

    def knowledge(self, query: str, limit: int) -> list[Card]:
        """What `cbx card search` finds for the words, newest first, among the types that are knowledge."""
        return list(self._cards.newest(CardFilter(text=query, types=_KNOWLEDGE), limit=limit))


def collector_for(database: Database, project_id: str) -> ContextCollector:
    """A collector that searches the project where it is asked to."""
    return ContextCollector(
        knowledge=StoredKnowledge(database, project_id), experience=ExperienceStore(database, project_id)
    )


def settled(options: ComposeOptions, settings: ProjectSettings) -> ComposeOptions:
    """The compose options, with the project's switch where the caller has none."""
    if options.share is not None:
        return options
    return msgspec.structs.replace(options, share=settings.enable_share_context)
