"""Changes of the agents and batches of a project since the last poll."""

from datetime import datetime
from typing import Any

import msgspec

from cardbox_cli.store.connection.project_store import ProjectStore
from cardbox_cli.store.connection.tables import BATCHES

_HEADS = "state.agent_state_head"


class HeadChange(msgspec.Struct, frozen=True):
    """State of an agent."""

    agent_id: str
    agent_turn_id: str | None
    status: str
    turn_epoch: int
    updated_at: datetime | None


class BatchChange(msgspec.Struct, frozen=True):
    """State of a batch."""

    batch_id: str
    status: str
    ended: int
    tasks: int


class ProjectState(msgspec.Struct, frozen=True):
    """State of all agents and running batches at a poll."""

    heads: dict[str, HeadChange]
    batches: dict[str, BatchChange]

    def changes_since(self, before: "ProjectState") -> list[tuple[str, Any]]:
        """Return the states that differ from `before`, each with its type: `head` or `batch`."""
        heads = [("head", each) for key, each in self.heads.items() if before.heads.get(key) != each]
        batches = [("batch", each) for key, each in self.batches.items() if before.batches.get(key) != each]
        return [*heads, *batches]


class ChangeViews(ProjectStore):
    def poll(self) -> ProjectState:
        tables = self.database.tables
        heads = self._all(HeadChange, "heads_in_short") if _HEADS in tables else []
        has_batches = tables.issuperset(BATCHES)
        batches = self._all(BatchChange, "running_batches_in_short") if has_batches else []
        return ProjectState(
            {each.agent_id: each for each in heads}, {each.batch_id: each for each in batches}
        )
