"""What a project brings to the composing of its requests: its one switch of sharing, and its own cards."""

import msgspec

from cardbox_cli.context.collector import ContextCollector
from cardbox_cli.context.request import ComposeOptions
from cardbox_cli.model.cards import Card
from cardbox_cli.model.identity import ProjectSettings
from cardbox_cli.store.cards import CardFilter, CardStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.views.experience import ExperienceStore

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
    """What the cards of a project say, read where it is asked for alone, as `context/collector` wants it."""

    def __init__(self, database: Database, project_id: str) -> None:
        self._cards = CardStore(database, project_id)

    def knowledge(self, query: str, limit: int) -> list[Card]:
        """What `cbx card search` finds for the words, newest first, of the cards that speak to models."""
        where = CardFilter(text=query, except_types=_NO_KNOWLEDGE)
        return list(self._cards.newest(where, limit=limit))


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
