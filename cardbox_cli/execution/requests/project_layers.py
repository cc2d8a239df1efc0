"""What a project brings to the composing of its requests: its one switch of sharing, and its own cards."""

import msgspec

from cardbox_cli.context.collector import ContextCollector
from cardbox_cli.context.request import ComposeOptions
from cardbox_cli.execution.requests.knowledge import StoredKnowledge
from cardbox_cli.model.identity import ProjectSettings
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.views.experience import ExperienceStore


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
