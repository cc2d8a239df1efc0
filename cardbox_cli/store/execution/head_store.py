"""Heads in Postgres: one row per agent that says which turn it is at, in which state and at which epoch.

The head is the first lock of every change of a turn. A change is one of `model/execution/turns.py`, by
compare-and-set on the turn and its epoch.
"""

from datetime import datetime, timedelta
from typing import Any

import msgspec

from cardbox_cli.errors import StaleEpoch
from cardbox_cli.model.execution.turns import HEAD_MOVES, Fence, Head, InboxRow, Move
from cardbox_cli.store.connection.project_store import ProjectStore
from cardbox_cli.text import argument


class HeadStore(ProjectStore):
    """The heads of one project."""

    def ensure(self, agent_id: str) -> bool:
        """Make an idle head for an agent that has none; False where it has one."""
        return self._run("ensure_head", agent_id=agent_id) > 0

    def free_turnless(self, agent_id: str) -> bool:
        """Make a head idle that names no turn and is not; False where there is none."""
        return self._run("free_turnless_head", agent_id=agent_id) > 0

    def highest_epoch(self, agent_id: str) -> int:
        """The highest epoch of the agent that is written down anywhere."""
        return int(self._value("highest_epoch", agent_id=agent_id))

    def set_epoch(self, agent_id: str, turn_epoch: int, profile_box_id: str | None) -> None:
        """Give a head that was made anew its epoch, and its profile's box if it is known."""
        self._run("set_epoch", agent_id=agent_id, turn_epoch=turn_epoch, profile_box_id=profile_box_id)

    def get(self, agent_id: str) -> Head | None:
        """The head of this agent."""
        return self._one(Head, "head", agent_id=agent_id)

    def lock(self, agent_id: str) -> Head | None:
        """The head of this agent, held until the end of the transaction."""
        return self._one(Head, "lock_head", agent_id=agent_id)

    def try_lock(self, agent_id: str) -> Head | None:
        """`lock`, or None where another transaction holds it."""
        return self._one(Head, "try_lock_head", agent_id=agent_id)

    def hold(self, fence: Fence) -> Head:
        """Lock the head for a write of this turn. Raises StaleEpoch, which says why it is elsewhere."""
        head = self.lock(fence.agent_id)
        if head is None or head.fence != fence:
            raise self.stale(fence, head)
        return head

    def assign(self, row: InboxRow) -> int | None:
        """Assign the agent of a queued turn to it; the new epoch, or None where the agent is not idle."""
        epoch: int | None = self._value("assign_head", **assignment_of(row), now=self.database.now())
        return epoch

    def move(self, fence: Fence, move: str, *, waiting: int = 0, deadline: datetime | None = None) -> int:
        """Make the move of this name; the epoch after it. Raises StaleEpoch where it may not be made."""
        known = HEAD_MOVES[move]
        return self._moved("move_head", fence, known, target=known.target, waiting=waiting, deadline=deadline)

    def free(self, fence: Fence, move: str) -> int:
        """Make the agent idle by `end` or `stop`; the epoch after it. Raises StaleEpoch."""
        return self._moved("free_head", fence, HEAD_MOVES[move])

    def _moved(self, query: str, fence: Fence, move: Move, **values: Any) -> int:
        place = {**msgspec.structs.asdict(fence), "sources": list(move.sources), "epoch": move.epoch}
        epoch: int | None = self._value(query, **place, **values)
        if epoch is None:
            raise self.stale(fence, self.get(fence.agent_id))
        return epoch

    def point(self, agent_id: str, *, context_box_id: str | None, output_box_id: str | None) -> None:
        """Replace the boxes of the agent's active turn; None keeps one."""
        self._run("point_head", agent_id=agent_id, context_box_id=context_box_id, output_box_id=output_box_id)

    def extend_deadline(self, fence: Fence, delay: timedelta) -> None:
        """What the deadline was for has been done; the next one is `delay` from now."""
        self._run("extend_deadline", **msgspec.structs.asdict(fence), delay=delay)

    def stale(self, fence: Fence, head: Head | None) -> StaleEpoch:
        """The error that says what became of a turn since `fence` was valid."""
        found = "nothing (its head is lost)" if head is None else _standing(head)
        return StaleEpoch(
            f"turn {fence.agent_turn_id} is not at epoch {fence.turn_epoch} any more: "
            f"agent {fence.agent_id!r} is at {found}{self.what_happened(fence)}",
            hint=f"nothing was written; `cbx turn show {argument(fence.agent_turn_id)}` tells the story",
            details={"agent_turn_id": fence.agent_turn_id, "turn_epoch": fence.turn_epoch},
        )

    def what_happened(self, fence: Fence) -> str:
        """What became of a turn after `fence`, as the end of a sentence; empty where nothing is known."""
        if not self.database.keeps_turns:
            return ""
        row = self._row("why_fence_fell", agent_turn_id=fence.agent_turn_id)
        end_status, action, actor, reason, epoch = row or (None,) * 5
        known = []
        if end_status is not None:
            known.append(f"it ended ({end_status})")
        if action is not None and epoch is not None and epoch > fence.turn_epoch:
            known.append(f"{action} by {actor}" + (f": {reason}" if reason else ""))
        return f"; {', '.join(known)}" if known else ""


def assignment_of(row: InboxRow) -> dict[str, Any]:
    """What the head of an agent says that is assigned to the turn of this row."""
    lineage = row.lineage
    return {
        "agent_id": row.agent_id,
        "agent_turn_id": row.turn_id,
        "channel_id": row.channel_id,
        "depth": lineage.depth,
        "trace_id": lineage.trace_id,
        "parent_step_id": lineage.parent_step_id,
        "profile_box_id": row.pointer("profile_box_id"),
        "context_box_id": row.pointer("context_box_id"),
        "output_box_id": row.pointer("output_box_id"),
    }


def _standing(head: Head) -> str:
    if head.active_agent_turn_id is None:
        return f"none, {head.status}, epoch {head.turn_epoch}"
    return f"turn {head.active_agent_turn_id}, {head.status}, epoch {head.turn_epoch}"
