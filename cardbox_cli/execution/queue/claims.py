"""Claims: an owner takes due inbox rows for the time of a lease, and gives each back done, deferred or dead.

A claimed row that carries a turn is given back together with it: done ends the turn, deferred makes it wait
for another claim, dead ends it as failed. Only the owner of a lease may give a row back, and only at its
epoch.
"""

import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

import msgspec

from cardbox_cli.errors import LeaseLost
from cardbox_cli.execution.queue.applying import TOO_EARLY, Applied, apply_report
from cardbox_cli.execution.queue.ending import end_queued, end_turn
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.execution.turns import (
    ACTIVE,
    APPLIED,
    DISPATCHED,
    QUEUED,
    REPORTS,
    RUNNING,
    STOP,
    TURN,
    WATCHDOG,
    Fence,
    Head,
    InboxRow,
    Lease,
)


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """A claimed row. `lease` is who has it, and until when."""

    row: InboxRow
    lease: Lease


def claim(runtime: Runtime, *, target: str | None, owner: str, limit: int = 1) -> list[Claimed]:
    """Claim up to `limit` due rows of agents of a worker target (None: of any), one of each agent.

    Raises SchemaMissing where leases have no place.
    """
    runtime.database.require_execution()
    claimed = runtime.inbox.claim(target=target, owner=owner, limit=limit, lease=runtime.settings.lease_time)
    return [Claimed(row=row, lease=lease) for row, lease in claimed]


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What a claimed row asks for now: to `run` its turn at `fence`, or nothing more, since it is `done`.

    `said` tells what was done with it.
    """

    kind: Literal["run", "done"]
    row: InboxRow
    fence: Fence
    said: str


def begin(runtime: Runtime, row: InboxRow, *, owner: str) -> Task:
    """Find out what a claimed row asks for, and do what needs no worker: apply a report, carry out a stop.

    A row whose turn is elsewhere by now is consumed. Raises LeaseLost where `owner` has no lease of it.
    """
    with runtime.transaction():
        row, head = _own(runtime, row.inbox_id, owner, epoch=row.turn_epoch)
        if row.message_type == STOP:
            return _stop(runtime, row, head)
        if head is not None and carries(runtime, row, head):
            return _take_up(runtime, row, head)
        if row.message_type == TURN:
            return _drop(runtime, row, "consume", "its turn is not dispatched at its epoch")
        if row.message_type not in REPORTS:
            return _drop(runtime, row, "kill", f"unknown message type {row.message_type!r}")
        return _apply(runtime, row)


def _take_up(runtime: Runtime, row: InboxRow, head: Head) -> Task:
    _know(runtime, row, head)
    if head.status == DISPATCHED:
        return Task(kind="run", row=row, fence=head.fence, said="taken up")
    # Another program's sweep made the row due while its turn ran: whoever ran it is fenced off.
    epoch = runtime.heads.move(head.fence, "reclaim")
    return _carried(runtime, row, head.fence_at(epoch), "taken over")


def _know(runtime: Runtime, row: InboxRow, head: Head) -> None:
    """Begin the record of a turn that another program dispatched."""
    record = runtime.turns.record(row.turn_id)
    if record is None or record.output_start is None:
        length = runtime.turns.box_length(head.output_box_id or "") if head.output_box_id else 0
        runtime.turns.keep(row.turn_id, row.agent_id, output_start=length or 0, report_to=None)


def _carried(runtime: Runtime, row: InboxRow, fence: Fence, said: str) -> Task:
    """The row carries its turn on at a new epoch."""
    row = runtime.inbox.carry(row.inbox_id, fence.turn_epoch)
    return Task(kind="run", row=row, fence=fence, said=said)


def _drop(runtime: Runtime, row: InboxRow, move: Literal["consume", "kill"], why: str) -> Task:
    runtime.inbox.move([row.inbox_id], move, error=why)
    runtime.inbox.drop_leases([row.inbox_id])
    return _done(row, f"{'dropped' if move == 'consume' else 'dead'}: {why}")


def _stop(runtime: Runtime, row: InboxRow, head: Head | None) -> Task:
    reason = row.pointer("reason")
    said = "its turn has ended before"
    if head is not None and head.active_agent_turn_id == row.turn_id and head.status in ACTIVE:
        end_turn(
            runtime, head.fence, "canceled", move="stop", error_code="stopped", message=reason or "stopped"
        )
        _audit_stop(runtime, head, reason)
        said = "stopped its turn"
    for queued in runtime.inbox.of_turn(row.turn_id):
        if queued.message_type == TURN and queued.status == QUEUED:
            end_queued(runtime, queued, message=reason or "stopped before it began")
            said = "stopped its turn before it began"
    runtime.inbox.move([row.inbox_id], "consume")
    runtime.inbox.drop_leases([row.inbox_id])
    return _done(row, said)


def _audit_stop(runtime: Runtime, head: Head, reason: str | None) -> None:
    runtime.turns.audit(
        head.fence,
        action="stop",
        actor=WATCHDOG,
        reason=reason or "a stop was in the inbox",
        epoch_after=head.turn_epoch + 1,
    )


def _apply(runtime: Runtime, row: InboxRow) -> Task:
    applied = apply_report(runtime, row)
    match applied.outcome:
        case "resumed":
            return _carried(runtime, row, applied.fence, "resumed its turn")
        case "terminate":
            end_turn(runtime, applied.fence, applied.end_status, message="a tool's result ended the turn")
            return _done(row, f"ended its turn: {applied.end_status}")
        case "early" | "busy":
            return _defer_report(runtime, row, applied)
        case _:
            stale = applied.reason if applied.outcome == "stale" else None
            runtime.inbox.move([row.inbox_id], "consume", error=stale)
            runtime.inbox.drop_leases([row.inbox_id])
            return _done(row, f"{applied.outcome}: {applied.reason}")


def _done(row: InboxRow, said: str) -> Task:
    return Task(kind="done", row=row, fence=row.fence, said=said)


def _defer_report(runtime: Runtime, row: InboxRow, applied: Applied) -> Task:
    """Look again at a report that came early; that its turn is busy is no fault of it."""
    reason = applied.reason or "too early"
    attempts = 0 if applied.outcome == "busy" else 1
    if row.retry_count + attempts >= runtime.settings.max_attempts:
        return _drop(runtime, row, "kill", f"gave up: {reason}")
    runtime.inbox.move([row.inbox_id], "defer", attempts=attempts, delay=TOO_EARLY, error=reason)
    runtime.inbox.drop_leases([row.inbox_id])
    return _done(row, f"deferred: {reason}")


# --- giving back


def ack(runtime: Runtime, inbox_id: str, *, owner: str, epoch: int | None = None) -> None:
    """The row is done. If it carries a turn, the turn ends with success.

    Raises LeaseLost where `owner` has no lease of it (at `epoch`, if that is named: an owner may have lost a
    row and got it again), StaleEpoch where its turn is elsewhere.
    """
    with runtime.transaction():
        row, head = _own(runtime, inbox_id, owner, epoch=epoch)
        if head is not None and carries(runtime, row, head):
            end_turn(runtime, row.fence, "success")
            return
        _refuse_stale(runtime, row, head)
        runtime.inbox.consume([inbox_id], owner=owner)


def ack_many(runtime: Runtime, inbox_ids: Sequence[str], *, owner: str) -> list[str]:
    """Consume rows that carry no turn, in one statement; the ids of those that `owner` had."""
    return runtime.inbox.consume(inbox_ids, owner=owner)


def fail(
    runtime: Runtime,
    inbox_id: str,
    *,
    owner: str,
    error: str,
    error_code: str = "failed",
    epoch: int | None = None,
) -> None:
    """The row cannot be done: it is a dead letter, and a turn that it carries fails. Raises as `ack`."""
    with runtime.transaction():
        row, head = _own(runtime, inbox_id, owner, epoch=epoch)
        _refuse_stale(runtime, row, head)
        kill(runtime, row, head, error=error, error_code=error_code)


def defer(
    runtime: Runtime, row: InboxRow, *, owner: str, reason: str, delay: timedelta | None = None
) -> bool:
    """Ask for another try later, after `delay` or the backoff; False where that was one try too many.

    The row is a dead letter then, and a turn that it carries has failed. Raises as `ack`.
    """
    settings = runtime.settings
    with runtime.transaction():
        row, head = _own(runtime, row.inbox_id, owner, epoch=row.turn_epoch)
        _refuse_stale(runtime, row, head)
        if row.retry_count + 1 >= settings.max_attempts:
            kill(runtime, row, head, error=f"gave up: {reason}", error_code="max_attempts")
            return False
        epoch = _take_away(runtime, row, head)
        wait = settings.delay(row.retry_count, random.random()) if delay is None else delay
        runtime.inbox.move([row.inbox_id], "defer", turn_epoch=epoch, attempts=1, delay=wait, error=reason)
        runtime.inbox.drop_leases([row.inbox_id])
    return True


def hand_back(runtime: Runtime, row: InboxRow, *, owner: str, reason: str) -> None:
    """Give the row back untried, to be claimed at once: the worker stops. Raises LeaseLost as `ack`."""
    with runtime.transaction():
        row, head = _own(runtime, row.inbox_id, owner, epoch=row.turn_epoch)
        release(runtime, row, _take_away(runtime, row, head), attempts=0, error=reason)


def release(runtime: Runtime, row: InboxRow, turn_epoch: int | None, *, attempts: int, error: str) -> None:
    """Make a claimed row pending again, at a new epoch if it carries a turn, and ring for it.

    The head is held.
    """
    moved = runtime.inbox.move(
        [row.inbox_id], "release", turn_epoch=turn_epoch, attempts=attempts, delay=timedelta(0), error=error
    )
    runtime.inbox.drop_leases([row.inbox_id])
    for each in moved:
        runtime.call(each, "released")


def expire(runtime: Runtime, row: InboxRow, head: Head | None, *, reason: str) -> int | None:
    """The lease of a claimed row is lost: it becomes due again, or a dead letter after too many tries.

    The epoch after it of a turn that the row carries and that goes on. The head is held.
    """
    tries = row.retry_count + 1
    if tries >= runtime.settings.max_attempts:
        kill(runtime, row, head, error=f"{reason}, try {tries}", error_code="max_attempts")
        return None
    epoch = _take_away(runtime, row, head)
    release(runtime, row, epoch, attempts=1, error=reason)
    return epoch


def kill(runtime: Runtime, row: InboxRow, head: Head | None, *, error: str, error_code: str) -> None:
    """Make the row a dead letter, and a turn that it carries failed, whoever has it. The head is held."""
    carried = head is not None and carries(runtime, row, head)
    runtime.inbox.move([row.inbox_id], "kill", attempts=1, error=error)
    runtime.inbox.drop_leases([row.inbox_id])
    if head is not None and carried:
        end_turn(runtime, head.fence, "failed", move="stop", error_code=error_code, message=error)


def carries(runtime: Runtime, row: InboxRow, head: Head) -> bool:
    """Whether the turn of the head goes on by this row: its own row, or the report that resumed it."""
    if head.fence != row.fence or head.status not in (DISPATCHED, RUNNING):
        return False
    if row.message_type in REPORTS:
        tools = runtime.turns.waiting_tools(row.turn_id)
        return any(tool.tool_call_id == row.correlation_id and tool.wait_status == APPLIED for tool in tools)
    return row.message_type == TURN


def heartbeat(runtime: Runtime, inbox_ids: Sequence[str], *, owner: str) -> dict[str, int]:
    """Extend the leases of these rows; the epoch of each that `owner` still has."""
    with runtime.transaction():
        runtime.inbox.hold_agents(inbox_ids, owner=owner)
        return runtime.inbox.extend(inbox_ids, owner=owner, lease=runtime.settings.lease_time)


def _take_away(runtime: Runtime, row: InboxRow, head: Head | None) -> int | None:
    """Make a turn that the row carries wait for another claim; its new epoch."""
    if head is None or not carries(runtime, row, head):
        return None
    return runtime.heads.move(head.fence, "reclaim")


def _own(runtime: Runtime, inbox_id: str, owner: str, *, epoch: int | None) -> tuple[InboxRow, Head | None]:
    """The row and its agent's head, both held. Raises LeaseLost."""
    runtime.database.require_execution()
    known = runtime.inbox.get(inbox_id)
    head = runtime.heads.lock(known.agent_id)
    lease = runtime.inbox.lock_lease(inbox_id)
    row = runtime.inbox.lock(inbox_id) or known
    if lease is None or lease.owner != owner or epoch not in (None, lease.turn_epoch):
        raise _lost(runtime, row, lease, owner, epoch)
    return row, head


def _lost(runtime: Runtime, row: InboxRow, lease: Lease | None, owner: str, epoch: int | None) -> LeaseLost:
    if lease is None:
        found = f"it is {row.status}"
    elif lease.owner == owner:
        found = f"it is claimed anew, at epoch {lease.turn_epoch}"
    else:
        found = f"it is claimed by {lease.owner!r}"
    fence = Fence(row.agent_id, row.turn_id, -1 if epoch is None else epoch)
    return LeaseLost(
        f"{owner!r} has no lease of the inbox row {row.inbox_id} (any more): "
        f"{found}{runtime.heads.what_happened(fence)}",
        hint="nothing was written; `cbx inbox show` tells more",
        details={"inbox_id": row.inbox_id, "status": row.status},
    )


def _refuse_stale(runtime: Runtime, row: InboxRow, head: Head | None) -> None:
    """Another program may have given the turn to somebody else, and left the lease."""
    if row.message_type == TURN and (head is None or not carries(runtime, row, head)):
        raise runtime.heads.stale(row.fence, head)
