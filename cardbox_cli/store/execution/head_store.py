"""Heads in Postgres: one row per agent with its turn, state and epoch.

Every change of a turn locks the head first. A change of the state is a move of `HEAD_MOVES`, as a
compare-and-set on the turn and its epoch.
"""

from datetime import datetime, timedelta
from typing import Any

import msgspec

from cardbox_cli.errors import StaleEpoch
from cardbox_cli.model.execution.turns import HEAD_MOVES, Fence, Head, InboxRow
from cardbox_cli.store.connection.project_store import ProjectStore
from cardbox_cli.text.command_lines import quote_argument


class HeadStore(ProjectStore):
    def ensure(self, agent_id: str) -> bool:
        """Create an idle head for an agent. Returns False if the agent has a head."""
        return self._run("ensure_head", agent_id=agent_id) > 0

    def free_without_turn(self, agent_id: str) -> bool:
        return self._run("free_turnless_head", agent_id=agent_id) > 0

    def highest_epoch(self, agent_id: str) -> int:
        return int(self._value("highest_epoch", agent_id=agent_id))

    def set_epoch(self, agent_id: str, turn_epoch: int, profile_box_id: str | None) -> None:
        """Set the epoch of a rebuilt head, and the box of its profile if it is known."""
        self._run("set_epoch", agent_id=agent_id, turn_epoch=turn_epoch, profile_box_id=profile_box_id)

    def get(self, agent_id: str) -> Head | None:
        return self._one(Head, "head", agent_id=agent_id)

    def lock(self, agent_id: str) -> Head | None:
        return self._one(Head, "lock_head", agent_id=agent_id)

    def try_lock(self, agent_id: str) -> Head | None:
        """Lock the head as `lock` does, but return None if another transaction has locked it."""
        return self._one(Head, "try_lock_head", agent_id=agent_id)

    def hold(self, fence: Fence) -> Head:
        """Lock the head for a write of the turn. Raises StaleEpoch if the head has another turn or epoch."""
        head = self.lock(fence.agent_id)
        if head is None or head.fence != fence:
            raise self.stale_error(fence, head)
        return head

    def assign(self, row: InboxRow) -> int | None:
        """Assign the agent to its queued turn. Returns the new epoch, or None if the agent is not idle."""
        epoch: int | None = self._value("assign_head", **assignment_values(row), now=self.database.now())
        return epoch

    def move(self, fence: Fence, move: str, *, waiting: int = 0, deadline: datetime | None = None) -> int:
        """Make the named move. Returns the epoch after it. Raises StaleEpoch if the move is not allowed."""
        target = HEAD_MOVES[move].target
        return self._set_head("move_head", fence, move, target=target, waiting=waiting, deadline=deadline)

    def free(self, fence: Fence, move: str) -> int:
        """Make the agent idle by the move `end` or `stop`. Returns the epoch after it. Raises StaleEpoch."""
        return self._set_head("free_head", fence, move)

    def _set_head(self, query: str, fence: Fence, name: str, **values: Any) -> int:
        move = HEAD_MOVES[name]
        place = {**msgspec.structs.asdict(fence), "sources": list(move.sources), "epoch": move.epoch}
        epoch: int | None = self._value(query, **place, **values)
        if epoch is None:
            raise self.stale_error(fence, self.get(fence.agent_id))
        return epoch

    def set_boxes(self, agent_id: str, *, context_box_id: str | None, output_box_id: str | None) -> None:
        """Replace the boxes of the agent's active turn. None leaves a box unchanged."""
        self._run("point_head", agent_id=agent_id, context_box_id=context_box_id, output_box_id=output_box_id)

    def extend_deadline(self, fence: Fence, delay: timedelta) -> None:
        """Set the deadline to `delay` from now, after the action on the previous deadline."""
        self._run("extend_deadline", **msgspec.structs.asdict(fence), delay=delay)

    def stale_error(self, fence: Fence, head: Head | None) -> StaleEpoch:
        position = "no turn (its head is lost)" if head is None else _describe(head)
        show = f"cbx turn show {quote_argument(fence.agent_turn_id)}"
        return StaleEpoch(
            f"turn {fence.agent_turn_id} is no longer at epoch {fence.turn_epoch}: "
            f"agent {fence.agent_id!r} is at {position}{self.what_happened(fence)}",
            hint=f"nothing was written; run `{show}` for details",
            details={"agent_turn_id": fence.agent_turn_id, "turn_epoch": fence.turn_epoch},
        )

    def what_happened(self, fence: Fence) -> str:
        """Describe the changes of a turn after `fence`, as the end of a sentence. Returns "" if unknown."""
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


def assignment_values(row: InboxRow) -> dict[str, Any]:
    """Return the values of an agent's head after the assignment to the turn of this row."""
    turn = {"agent_id": row.agent_id, "agent_turn_id": row.turn_id, "channel_id": row.channel_id}
    boxes = {name: row.pointer(name) for name in ("profile_box_id", "context_box_id", "output_box_id")}
    return {**turn, **msgspec.structs.asdict(row.lineage), **boxes}


def _describe(head: Head) -> str:
    turn_id = head.active_agent_turn_id
    turn = "no turn" if turn_id is None else f"turn {turn_id}"
    return f"{turn}, {head.status}, epoch {head.turn_epoch}"
