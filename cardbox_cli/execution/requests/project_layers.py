"""What a project brings to the composing of its requests: its one switch of sharing, and its own cards.

What satisfies the protocols of `context/collector` reads where it is asked for alone; so does
`store/views/experience`. How the cards then read is `context/layer_texts`' affair.
"""

from collections.abc import Sequence

import msgspec

from cardbox_cli.context.composer import ContextCollector
from cardbox_cli.context.request import ComposeOptions
from cardbox_cli.model.card_types import CARD_TYPES
from cardbox_cli.model.cards import Card
from cardbox_cli.model.identity import ProjectSettings
from cardbox_cli.model.ids import unique
from cardbox_cli.model.layers import KnowledgeScope
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardFilter, CardStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.projects import ProjectsStore
from cardbox_cli.store.views.experience import ExperienceStore

_KNOWLEDGE = [name for name, known in CARD_TYPES.items() if known.is_knowledge]


class StoredKnowledge:
    """What the cards of a project hold, as far as its `knowledge_scope` reaches.

    Where that is `boxes`, it reaches the boxes that are named for the search, and those that the recipe of a
    context box named: what it was packed from.
    """

    def __init__(
        self,
        database: Database,
        project_id: str,
        scope: KnowledgeScope = "project",
        *,
        context_box_ids: Sequence[str] = (),
    ) -> None:
        self._cards = CardStore(database, project_id)
        self._boxes = BoxStore(database, project_id)
        self._scope = scope
        self._context_box_ids = context_box_ids

    @property
    def refusal(self) -> str | None:
        """Why nothing is looked for, where the project wants that."""
        return "the project's knowledge_scope is none" if self._scope == "none" else None

    def knowledge(self, query: str, limit: int, boxes: Sequence[str] = ()) -> list[Card]:
        """What `cbx card search` finds for the words, newest first, among the types that are knowledge."""
        if self._scope == "none":
            return []
        with self._cards.database.snapshot():
            if self._scope == "boxes":
                return self._cards.found_in(self._reach(boxes), query, types=_KNOWLEDGE, limit=limit)
            return list(self._cards.newest(CardFilter(text=query, types=_KNOWLEDGE), limit=limit))

    def _reach(self, named: Sequence[str]) -> list[str]:
        packed = self._boxes.get_many(list(self._context_box_ids)).boxes
        return unique([*named, *(parent for box in packed for parent in box.parent_ids)])


def collector_for(
    database: Database, project_id: str, *context_box_ids: str, settings: ProjectSettings | None = None
) -> ContextCollector:
    """A collector that searches the project where it is asked to, for requests with these context boxes.

    `settings` are the project's, where the caller has read them.
    """
    known = settings or ProjectsStore(database).settings(project_id)
    knowledge = StoredKnowledge(database, project_id, known.knowledge_scope, context_box_ids=context_box_ids)
    return ContextCollector(knowledge=knowledge, experience=ExperienceStore(database, project_id))


def settled(options: ComposeOptions, settings: ProjectSettings) -> ComposeOptions:
    """The compose options, with the project's switch where the caller has none."""
    if options.share is not None:
        return options
    return msgspec.structs.replace(options, share=settings.enable_share_context)
