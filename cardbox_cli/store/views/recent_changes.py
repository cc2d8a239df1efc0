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


class Standing(msgspec.Struct, frozen=True):
    """A look: how everything stood."""

    heads: dict[str, HeadChange]
    batches: dict[str, BatchChange]

    def news(self, before: "Standing") -> list[tuple[str, Any]]:
        """What stands otherwise than at the look before, each with its kind: `head` or `batch`."""
        heads = [("head", each) for key, each in self.heads.items() if before.heads.get(key) != each]
        batches = [("batch", each) for key, each in self.batches.items() if before.batches.get(key) != each]
        return [*heads, *batches]


class ChangeViews(ProjectStore):
    """Looks at one project."""

    def look(self) -> Standing:
        """How things stand."""
        return Standing(
            heads={each.agent_id: each for each in self._heads()},
            batches={each.batch_id: each for each in self._batches()},
        )

    def _heads(self) -> list[HeadChange]:
        return self._all(HeadChange, "heads_in_short") if _HEADS in self.database.tables else []

    def _batches(self) -> list[BatchChange]:
        known = self.database.tables.issuperset(BATCHES)
        return self._all(BatchChange, "running_batches_in_short") if known else []
