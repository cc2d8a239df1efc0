"""Turns that have not ended although their agent is not at them: what other programs leave behind."""

import msgspec

from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.execution.standing import ENDED
from cardbox_cli.model.execution.turns import QUEUED, Fence, Head, InboxRow
from cardbox_cli.store.views.turns import TurnViews


class Orphan(msgspec.Struct, frozen=True, kw_only=True):
    """Such a turn, and the head of its agent, which is held. `row` is None where the turn's is lost."""

    agent_turn_id: str
    head: Head
    row: InboxRow | None

    @property
    def fence(self) -> Fence:
        """The turn at the epoch of its agent, which is what a fix compares and the audit names."""
        return Fence(self.head.agent_id, self.agent_turn_id, self.head.turn_epoch)


def find_orphan(runtime: Runtime, agent_turn_id: str, expect_epoch: int) -> Orphan | None:
    """The turn as an orphan; None for one that is active, queued or over, or unknown.

    Raises StaleEpoch where its agent is not at that epoch any more.
    """
    agent_id = _agent_of(runtime, agent_turn_id)
    if agent_id is None or not runtime.database.keeps_turns:
        return None
    head = runtime.heads.lock(agent_id)
    row = runtime.inbox.turn_row(agent_turn_id)
    if head is None or head.active_agent_turn_id == agent_turn_id or _over(runtime, agent_turn_id):
        return None
    if head.turn_epoch != expect_epoch:
        raise runtime.heads.stale(Fence(agent_id, agent_turn_id, expect_epoch), head)
    return Orphan(agent_turn_id=agent_turn_id, head=head, row=row)


def _agent_of(runtime: Runtime, agent_turn_id: str) -> str | None:
    row = runtime.inbox.turn_row(agent_turn_id)
    if row is not None:
        return row.agent_id
    edge = runtime.turns.enqueue_edge(agent_turn_id)
    return None if edge is None else edge.target_agent_id


def _over(runtime: Runtime, agent_turn_id: str) -> bool:
    """Whether the turn has ended, or is still to begin."""
    turns = TurnViews(runtime.database, runtime.project_id).get_many([agent_turn_id])
    return any(turn.status in (ENDED, QUEUED) for turn in turns)
