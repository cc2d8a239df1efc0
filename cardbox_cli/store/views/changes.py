"""What has changed in a project since it was looked at last: how its agents and its batches stand."""

from datetime import datetime
from typing import Any

import msgspec

from cardbox_cli.store.connection.project_store import ProjectStore
from cardbox_cli.store.connection.tables import BATCHES

_HEADS = "state.agent_state_head"


class HeadChange(msgspec.Struct, frozen=True):
    """How an agent stands."""

    agent_id: str
    agent_turn_id: str | None
    status: str
    turn_epoch: int
    updated_at: datetime | None


class BatchChange(msgspec.Struct, frozen=True):
    """How a batch stands."""

    batch_id: str
    status: str
    ended: int
    tasks: int


class Changes(msgspec.Struct, frozen=True):
    """A look: how everything stood, and what of that is new, each with its kind."""

    heads: dict[str, HeadChange]
    batches: dict[str, BatchChange]
    news: list[tuple[str, Any]]


class ChangeViews(ProjectStore):
    """Looks at one project."""

    def since(self, before: Changes | None) -> Changes:
        """How things stand, and what is new since the look before; nothing at the first."""
        heads = {each.agent_id: each for each in self._heads()}
        batches = {each.batch_id: each for each in self._batches()}
        if before is None:
            return Changes(heads, batches, [])
        news: list[tuple[str, Any]] = [
            ("head", each) for key, each in heads.items() if before.heads.get(key) != each
        ]
        news += [("batch", each) for key, each in batches.items() if before.batches.get(key) != each]
        return Changes(heads, batches, news)

    def _heads(self) -> list[HeadChange]:
        return self._all(HeadChange, "heads_in_short") if _HEADS in self.database.tables else []

    def _batches(self) -> list[BatchChange]:
        known = self.database.tables.issuperset(BATCHES)
        return self._all(BatchChange, "running_batches_in_short") if known else []
