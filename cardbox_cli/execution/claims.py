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
from cardbox_cli.execution.ending import end_turn
from cardbox_cli.execution.reports import TOO_EARLY, apply_report
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.turns import (
    ACTIVE,
    DISPATCHED,
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
    with runtime.transaction():
        rows = runtime.inbox.claim(target=target, owner=owner, limit=limit, lease=runtime.settings.lease_time)
        leases = [runtime.inbox.lease(row.inbox_id) for row in rows]
    return [Claimed(row=row, lease=lease) for row, lease in zip(rows, leases, strict=True) if lease]


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
        head = runtime.heads.lock(row.agent_id)
        _held(runtime, row.inbox_id, owner)
        if row.message_type == STOP:
            return _stop(runtime, row, head)
        if row.message_type == TURN:
            return _take_up(runtime, row, head)
        if row.message_type not in ("tool_result", "timeout"):
            runtime.inbox.move([row.inbox_id], "kill", error=f"unknown message type {row.message_type!r}")
            runtime.inbox.drop_leases([row.inbox_id])
            return _done(row, f"dead: unknown message type {row.message_type!r}")
        return _apply(runtime, row, owner)


def _take_up(runtime: Runtime, row: InboxRow, head: Head | None) -> Task:
    if head is not None and head.fence == row.fence and head.status == DISPATCHED:
        return Task(kind="run", row=row, fence=head.fence, said="taken up")
    if head is not None and head.fence == row.fence and head.status == RUNNING:
        # Another program's sweep made the row due while its turn ran: whoever ran it is fenced off.
        epoch = runtime.heads.move(head.fence, "reclaim")
        runtime.inbox.carry(row.inbox_id, epoch)
        return Task(
            kind="run", row=runtime.inbox.get(row.inbox_id), fence=head.fence_at(epoch), said="taken over"
        )
    runtime.inbox.move([row.inbox_id], "consume", error="its turn is not dispatched at its epoch")
    runtime.inbox.drop_leases([row.inbox_id])
    return _done(row, "dropped: its turn is elsewhere")


def _stop(runtime: Runtime, row: InboxRow, head: Head | None) -> Task:
    if head is not None and head.active_agent_turn_id == row.turn_id and head.status in ACTIVE:
        reason = row.pointer("reason")
        end_turn(
            runtime, head.fence, "canceled", move="stop", error_code="stopped", message=reason or "stopped"
        )
        _audit_stop(runtime, head, reason)
    runtime.inbox.move([row.inbox_id], "consume")
    runtime.inbox.drop_leases([row.inbox_id])
    return _done(row, "stopped its turn")


def _audit_stop(runtime: Runtime, head: Head, reason: str | None) -> None:
    runtime.turns.audit(
        head.fence,
        action="stop",
        actor=WATCHDOG,
        reason=reason or "a stop was in the inbox",
        epoch_after=head.turn_epoch + 1,
    )


def _apply(runtime: Runtime, row: InboxRow, owner: str) -> Task:
    applied = apply_report(runtime, row)
    match applied.outcome:
        case "resumed":
            runtime.inbox.carry(row.inbox_id, applied.fence.turn_epoch)
            row = runtime.inbox.get(row.inbox_id)
            return Task(kind="run", row=row, fence=applied.fence, said="resumed its turn")
        case "terminate":
            end_turn(runtime, applied.fence, applied.end_status, message="a tool's result ended the turn")
            return _done(row, f"ended its turn: {applied.end_status}")
        case "early":
            defer(runtime, row, owner=owner, reason=applied.reason or "too early", delay=TOO_EARLY)
            return _done(row, f"deferred: {applied.reason}")
        case _:
            stale = applied.reason if applied.outcome == "stale" else None
            runtime.inbox.move([row.inbox_id], "consume", error=stale)
            runtime.inbox.drop_leases([row.inbox_id])
            return _done(row, f"{applied.outcome}: {applied.reason}")


def _done(row: InboxRow, said: str) -> Task:
    return Task(kind="done", row=row, fence=row.fence, said=said)


# --- giving back


def ack(runtime: Runtime, inbox_id: str, *, owner: str) -> None:
    """The row is done. If it carries a turn, the turn ends with success.

    Raises LeaseLost where `owner` has no lease of it, StaleEpoch where its turn is at another epoch.
    """
    with runtime.transaction():
        row, head = _own(runtime, inbox_id, owner)
        if carries(row, head):
            end_turn(runtime, row.fence, "success")
        else:
            runtime.inbox.consume([inbox_id], owner=owner)


def ack_many(runtime: Runtime, inbox_ids: Sequence[str], *, owner: str) -> list[str]:
    """Consume raw rows that carry no turn, in one statement; the ids of those that `owner` had."""
    with runtime.transaction():
        return runtime.inbox.consume(inbox_ids, owner=owner)


def fail(runtime: Runtime, inbox_id: str, *, owner: str, error: str, error_code: str = "failed") -> None:
    """The row cannot be done: it is a dead letter, and a turn that it carries fails. Raises as `ack`."""
    with runtime.transaction():
        row, head = _own(runtime, inbox_id, owner)
        _kill(runtime, row, head, error=error, error_code=error_code)


def defer(
    runtime: Runtime, row: InboxRow, *, owner: str, reason: str, delay: timedelta | None = None
) -> bool:
    """Ask for another try later, after `delay` or the backoff; False where that was one try too many.

    The row is a dead letter then, and a turn that it carries has failed. Raises as `ack`.
    """
    settings = runtime.settings
    with runtime.transaction():
        row, head = _own(runtime, row.inbox_id, owner)
        if row.retry_count + 1 >= settings.max_attempts:
            _kill(runtime, row, head, error=f"gave up: {reason}", error_code="max_attempts")
            return False
        epoch = None
        if head is not None and carries(row, head):
            epoch = runtime.heads.move(head.fence, "reclaim")
        wait = settings.delay(row.retry_count, random.random()) if delay is None else delay
        runtime.inbox.move([row.inbox_id], "defer", turn_epoch=epoch, attempts=1, delay=wait, error=reason)
        runtime.inbox.drop_leases([row.inbox_id])
    return True


def hand_back(runtime: Runtime, row: InboxRow, *, owner: str, reason: str) -> None:
    """Give the row back untried, to be claimed at once: the worker stops. Raises as `ack`."""
    with runtime.transaction():
        row, head = _own(runtime, row.inbox_id, owner)
        release(runtime, row, head, attempts=0, error=reason)


def release(runtime: Runtime, row: InboxRow, head: Head | None, *, attempts: int, error: str) -> int | None:
    """Make a claimed row pending again, and its turn wait for another claim; the turn's new epoch.

    Rings for it. The head is held.
    """
    epoch = None
    if head is not None and carries(row, head):
        epoch = runtime.heads.move(head.fence, "reclaim")
    moved = runtime.inbox.move(
        [row.inbox_id], "release", turn_epoch=epoch, attempts=attempts, delay=timedelta(0), error=error
    )
    runtime.inbox.drop_leases([row.inbox_id])
    agent = runtime.roster.find(row.agent_id)
    if agent is not None:
        for each in moved:
            runtime.call(each, agent.worker_target, "released")
    return epoch


def _kill(runtime: Runtime, row: InboxRow, head: Head | None, *, error: str, error_code: str) -> None:
    runtime.inbox.move([row.inbox_id], "kill", attempts=1, error=error)
    runtime.inbox.drop_leases([row.inbox_id])
    if head is not None and carries(row, head):
        end_turn(runtime, head.fence, "failed", move="stop", error_code=error_code, message=error)


def kill(runtime: Runtime, row: InboxRow, head: Head | None, *, error: str, error_code: str) -> None:
    """Make the row a dead letter, and a turn that it carries failed, whoever has it. The head is held."""
    _kill(runtime, row, head, error=error, error_code=error_code)


def carries(row: InboxRow, head: Head | None) -> bool:
    """Whether the turn of the head goes on by this row."""
    return head is not None and head.fence == row.fence and head.status in (DISPATCHED, RUNNING)


def heartbeat(runtime: Runtime, inbox_ids: Sequence[str], *, owner: str) -> dict[str, int]:
    """Extend the leases of these rows; the epoch of each that `owner` still has.

    One head is locked at a time: who ends a turn may hold two, in an order of his own.
    """
    epochs: dict[str, int] = {}
    for inbox_id in inbox_ids:
        with runtime.transaction():
            epochs |= runtime.inbox.extend([inbox_id], owner=owner, lease=runtime.settings.lease_time)
    return epochs


def _own(runtime: Runtime, inbox_id: str, owner: str) -> tuple[InboxRow, Head | None]:
    known = runtime.inbox.get(inbox_id)
    head = runtime.heads.lock(known.agent_id)
    lease = _held(runtime, inbox_id, owner)
    row = runtime.inbox.lock(inbox_id)
    assert row is not None
    if head is not None and head.active_agent_turn_id == row.turn_id and row.message_type != STOP:
        fence = Fence(row.agent_id, row.turn_id, lease.turn_epoch)
        if head.fence != fence and head.status in (DISPATCHED, RUNNING):
            raise runtime.heads.stale(fence, head)
    return row, head


def _held(runtime: Runtime, inbox_id: str, owner: str) -> Lease:
    lease = runtime.inbox.lock_lease(inbox_id)
    if lease is None or lease.owner != owner:
        row = runtime.inbox.get(inbox_id)
        taken = f"it is claimed by {lease.owner!r}" if lease else f"it is {row.status}"
        raise LeaseLost(
            f"{owner!r} has no lease of the inbox row {inbox_id} (any more): {taken}",
            hint="nothing was written; `cbx inbox show` tells more",
            details={"inbox_id": inbox_id, "status": row.status},
        )
    return lease
