"""Reaping: one pass over everything of a project that is overdue, safe from many places at once.

Leases that have expired, deadlines that have passed, turns queued on idle agents, promoted turns that
nobody came for. Each thing is a transaction of its own; what another one holds is passed over.
"""

import msgspec

from cardbox_cli.errors import CardConflict
from cardbox_cli.execution.claims import kill, release
from cardbox_cli.execution.ending import end_turn
from cardbox_cli.execution.promotion import promote_next
from cardbox_cli.execution.reports import report_timeouts
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.turns import PROCESSING, SUSPENDED, WATCHDOG, Fence, Head, Lease
from cardbox_cli.store import workers

_AT_ONCE = 500


class Reaped(msgspec.Struct, frozen=True, kw_only=True):
    """What a pass did: `released` and `dead` are inbox ids, `timed_out` call ids, the others turn ids."""

    released: list[str] = []
    dead: list[str] = []
    timed_out: list[str] = []
    promoted: list[str] = []
    rung: list[str] = []

    @property
    def total(self) -> int:
        """Everything together."""
        return sum(map(len, (self.released, self.dead, self.timed_out, self.promoted, self.rung)))


def reap(runtime: Runtime) -> Reaped:
    """Do what is overdue in the project; what was done."""
    runtime.database.require_execution()
    reaped = Reaped()
    for lease in runtime.inbox.expired(limit=_AT_ONCE):
        _take_back(runtime, lease, reaped)
    for head in runtime.turns.overdue():
        reaped.timed_out.extend(_time_out(runtime, head))
    for agent_id in runtime.inbox.idle_with_queued():
        reaped.promoted.extend(_promote(runtime, agent_id))
    reaped.rung.extend(_ring(runtime))
    workers.forget_dead(runtime.database)
    return reaped


def _take_back(runtime: Runtime, known: Lease, reaped: Reaped) -> None:
    with runtime.transaction():
        head = runtime.heads.try_lock(known.agent_id)
        lease = runtime.inbox.lock_lease(known.inbox_id)
        if lease is None or lease != known:
            return
        row = runtime.inbox.lock(known.inbox_id)
        if row is None or row.status != PROCESSING:
            runtime.inbox.drop_leases([known.inbox_id])
            return
        if head is None and runtime.heads.get(known.agent_id) is not None:
            return
        reason = f"the lease of {lease.owner} expired"
        fence = Fence(row.agent_id, row.turn_id, row.turn_epoch)
        if row.retry_count + 1 >= runtime.settings.max_attempts:
            kill(runtime, row, head, error=f"{reason}, try {row.retry_count + 1}", error_code="max_attempts")
            reaped.dead.append(row.inbox_id)
            epoch = None
        else:
            epoch = release(runtime, row, head, attempts=1, error=reason)
            reaped.released.append(row.inbox_id)
        runtime.turns.audit(fence, action="lease-expired", actor=WATCHDOG, reason=reason, epoch_after=epoch)


def _time_out(runtime: Runtime, known: Head) -> list[str]:
    with runtime.transaction():
        head = runtime.heads.try_lock(known.agent_id)
        if head is None or head.fence != known.fence or head.status != SUSPENDED:
            return []
        try:
            with runtime.transaction():
                reports = report_timeouts(runtime, head)
                runtime.heads.clear_deadline(head.fence)
        except CardConflict as exc:
            # A database may allow one result per call id, and another turn's call of this id has it.
            end_turn(
                runtime,
                head.fence,
                "timeout",
                move="stop",
                error_code="tool_timeout",
                message=f"no result came before the deadline, and none can be reported: {exc.message}",
            )
            return []
    return [report.tool_call_id for report in reports]


def _promote(runtime: Runtime, agent_id: str) -> list[str]:
    with runtime.transaction():
        if runtime.heads.try_lock(agent_id) is None:
            return []
        promoted = promote_next(runtime, agent_id, reason="reap")
    return [promoted.turn_id] if promoted else []


def _ring(runtime: Runtime) -> list[str]:
    rung = []
    with runtime.transaction():
        for target, inbox_id, _ in runtime.inbox.unclaimed(runtime.settings.unclaimed_time):
            row = runtime.inbox.get(inbox_id)
            runtime.call(row, target, "unclaimed")
            rung.append(row.turn_id)
    return rung
