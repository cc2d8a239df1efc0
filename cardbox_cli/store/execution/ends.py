"""The ends of active turns in Postgres: one read of all that decides, one write of every row.

Methods take part in the caller's transaction, who holds the head.
"""

from datetime import datetime

import msgspec

from cardbox_cli.model.execution.ending import EndPlan, EndSituation
from cardbox_cli.model.execution.lifecycle import HEAD_MOVES
from cardbox_cli.model.execution.turns import Fence
from cardbox_cli.store.connection.project_store import ProjectStore
from cardbox_cli.store.connection.rows import decoded


class EndStore(ProjectStore):
    """The ends of one project's turns."""

    def situation(self, fence: Fence) -> EndSituation:
        """What decides on the end of the turn at `fence`."""
        asked = {"agent_id": fence.agent_id, "agent_turn_id": fence.agent_turn_id}
        row = self._row("end_situation", **asked)
        assert row is not None
        return msgspec.structs.replace(decoded(EndSituation, row[1]), now=row[0])

    def write(
        self, fence: Fence, plan: EndPlan, deliverable_card_id: str | None, now: datetime
    ) -> int | None:
        """Write every row of an end; the epoch after it, None where the turn is elsewhere."""
        move = HEAD_MOVES[plan.move]
        epoch: int | None = self._value(
            "write_end",
            **msgspec.structs.asdict(fence),
            sources=list(move.sources),
            epoch=move.epoch,
            now=now,
            step_status=plan.step_status,
            end_status=plan.end_status,
            deliverable_card_id=deliverable_card_id,
            error_code=plan.error_code,
            error=plan.message,
            output_box_id=plan.remembered_box_id,
        )
        return epoch
