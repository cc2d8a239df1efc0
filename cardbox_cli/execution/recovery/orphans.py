"""Turns that have not ended although their agent is not at them: what other programs leave behind.

Puts them back into their agent's queue, or ends them. The caller opens the transaction and writes the audit.
"""

from datetime import timedelta

import msgspec

from cardbox_cli.execution.dispatch.promotion import end_unpromoted, promote_next
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.execution.turns import (
    CONSUMED,
    DEFAULT_CHANNEL,
    ERROR,
    OPEN,
    PROCESSING,
    QUEUED,
    SKIPPED,
    TURN,
    End,
    Fence,
    Head,
    InboxRow,
    last_is_over,
)


class Orphan(msgspec.Struct, frozen=True, kw_only=True):
    """Such a turn, and the head of its agent, which is held. `row` is None where the turn's is lost."""

    agent_turn_id: str
    head: Head
    row: InboxRow | None

    @property
    def fence(self) -> Fence:
        """The turn at the epoch of its agent, which is what a fix compares and the audit tells."""
        return Fence(self.head.agent_id, self.agent_turn_id, self.head.turn_epoch)


def find_orphan(runtime: Runtime, agent_turn_id: str, expect_epoch: int) -> Orphan | None:
    """The turn as a stray; None for one that is active, queued or over, or that nothing tells of.

    Raises StaleEpoch where its agent is not at that epoch any more.
    """
    agent_id = _agent_of(runtime, agent_turn_id)
    if agent_id is None or not runtime.database.keeps_turns:
        return None
    head = runtime.heads.lock(agent_id)
    row = runtime.inbox.turn_row(agent_turn_id)
    if head is None or head.active_agent_turn_id == agent_turn_id or _over(runtime, agent_turn_id, row):
        return None
    if head.turn_epoch != expect_epoch:
        raise runtime.heads.stale(Fence(agent_id, agent_turn_id, expect_epoch), head)
    return Orphan(agent_turn_id=agent_turn_id, head=head, row=row)


def requeue_orphan(runtime: Runtime, orphan: Orphan, *, reason: str) -> InboxRow | None:
    """Put the turn back into its agent's queue; the row that was promoted, if the agent is idle."""
    assert orphan.row is not None
    rows = runtime.inbox.of_turn(orphan.agent_turn_id)
    runtime.inbox.drop_leases([each.inbox_id for each in rows])
    runtime.inbox.move(
        [orphan.row.inbox_id],
        "requeue",
        turn_epoch=0,
        attempts=-orphan.row.retry_count,
        delay=timedelta(0),
        error=reason,
    )
    return promote_next(runtime, orphan.head.agent_id, reason="requeue")


def fail_orphan(runtime: Runtime, orphan: Orphan, *, message: str) -> End:
    """End the turn as failed, and whoever waits for its end is told."""
    row = orphan.row or _bare(runtime, orphan)
    runtime.inbox.close(orphan.agent_turn_id)
    return end_unpromoted(runtime, row, "failed", error_code="failed_by_operator", message=message)


def _agent_of(runtime: Runtime, agent_turn_id: str) -> str | None:
    row = runtime.inbox.turn_row(agent_turn_id)
    if row is not None:
        return row.agent_id
    edge = runtime.turns.enqueue_edge(agent_turn_id)
    return None if edge is None else edge.target_agent_id


def _over(runtime: Runtime, agent_turn_id: str, row: InboxRow | None) -> bool:
    record = runtime.turns.record(agent_turn_id)
    if record is not None and record.end_status is not None:
        return True
    if row is not None and row.status in OPEN and row.status != PROCESSING:
        return row.status == QUEUED
    if row is not None and (row.status == SKIPPED or (row.status == CONSUMED and record is None)):
        return True
    # Other systems end turns without closing the rows that a dead worker had claimed.
    return last_is_over(runtime.turns.steps(agent_turn_id))


def _bare(runtime: Runtime, orphan: Orphan) -> InboxRow:
    """What stands for a row that is lost."""
    edge = runtime.turns.enqueue_edge(orphan.agent_turn_id)
    return InboxRow(
        inbox_id=orphan.agent_turn_id,
        project_id=runtime.project_id,
        agent_id=orphan.head.agent_id,
        channel_id=(edge.channel_id if edge else None) or DEFAULT_CHANNEL,
        message_type=TURN,
        enqueue_mode=None,
        correlation_id=None,
        agent_turn_id=orphan.agent_turn_id,
        turn_epoch=0,
        context_headers={},
        payload={},
        status=ERROR,
        retry_count=0,
        next_retry_at=runtime.database.now(),
        last_error=None,
        defer_reason=None,
        processed_at=None,
        archived_at=None,
        created_at=None,
    )
