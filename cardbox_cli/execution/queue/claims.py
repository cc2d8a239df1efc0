"""Claims: an owner leases due inbox rows, and later returns each row as done, deferred or dead.

Returning a row also changes the state of its turn. A done row ends the turn, a deferred row makes the turn
wait for another claim, and a dead row ends it as failed. Only the owner of the lease may return the row.
"""

import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

import msgspec

from cardbox_cli.errors import LeaseLost
from cardbox_cli.execution.queue.messages import is_report, is_turn, type_of
from cardbox_cli.execution.queue.reports import EARLY_REPORT_DELAY, ReportOutcome, apply_report
from cardbox_cli.execution.queue.stopping import cancel_turn, carried_head, kill_row, return_row
from cardbox_cli.execution.queue.turn_ends import BY_RESULT, end_turn, finish
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.execution.situations import ClaimedSituation
from cardbox_cli.model.execution.turns import (
    DISPATCHED,
    QUEUED,
    WATCHDOG,
    Fence,
    Head,
    InboxRow,
    Lease,
    TurnEnd,
)
from cardbox_cli.text.command_lines import quote_argument


class ClaimedRow(msgspec.Struct, frozen=True, kw_only=True):
    row: InboxRow
    lease: Lease


def claim(runtime: Runtime, *, target: str | None, owner: str, limit: int = 1) -> list[ClaimedRow]:
    """Claim at most `limit` due rows, and at most one of each agent with this worker target.

    If `target` is None, agents of all targets count. Raises SchemaMissing if the table of leases is missing.
    """
    runtime.database.require_execution()
    claimed = runtime.inbox.claim(target=target, owner=owner, limit=limit, lease=runtime.settings.lease_time)
    return [ClaimedRow(row=row, lease=lease) for row, lease in claimed]


class ClaimedWork(msgspec.Struct, frozen=True, kw_only=True):
    """The work that a claimed row leaves to its owner, and a description of the claim (`outcome`).

    If `kind` is `run`, the owner must run the turn at `fence`. If it is `done`, no work is left.
    """

    kind: Literal["run", "done"]
    row: InboxRow
    fence: Fence
    outcome: str


def begin(runtime: Runtime, row: InboxRow, *, owner: str) -> ClaimedWork:
    """Apply a claimed report or stop at once, or return the turn that the owner must run.

    If the turn is no longer dispatched at the row's epoch, consumes the row. Raises LeaseLost.
    """
    with runtime.transaction():
        found = _hold_leased(runtime, row.inbox_id, owner, epoch=row.turn_epoch, claimed=row)
        row, head = found.row, carried_head(found)
        _note_output_start(runtime, found)
        if head is not None:
            return _resume_turn(runtime, row, head)
        kind = type_of(row)
        match kind and kind.claim:
            case "run":
                why = "its turn is not dispatched at its epoch"
                return _consume(runtime, row, f"dropped: {why}", why)
            case "apply":
                return _apply(runtime, found)
            case "stop":
                return _stop(runtime, row, found.head)
        return _kill_row(runtime, row, f"unknown message type {row.message_type!r}")


def _note_output_start(runtime: Runtime, found: ClaimedSituation) -> None:
    """Record where the turn's own output begins, unless it is recorded. Other programs record nothing."""
    row, head = found.row, found.head
    if found.output_start is not None or head is None or head.active_agent_turn_id != row.turn_id:
        return
    start = runtime.turns.output_start(head.output_box_id, row.turn_id) if head.output_box_id else 0
    runtime.turns.begin_record(row.turn_id, row.agent_id, output_start=start or 0, report_to=None)


def _resume_turn(runtime: Runtime, row: InboxRow, head: Head) -> ClaimedWork:
    if head.status == DISPATCHED:
        return ClaimedWork(kind="run", row=row, fence=head.fence, outcome="claimed")
    # Another program made the row due while its turn ran. The new epoch makes the old worker's writes fail.
    epoch = runtime.heads.move(head.fence, "reclaim")
    row = runtime.inbox.set_turn_epoch(row.inbox_id, epoch)
    return ClaimedWork(kind="run", row=row, fence=head.fence_at(epoch), outcome="taken over")


def _kill_row(runtime: Runtime, row: InboxRow, why: str) -> ClaimedWork:
    runtime.inbox.move([row.inbox_id], "kill", error=why)
    runtime.inbox.drop_leases([row.inbox_id])
    return _done(row, f"dead: {why}")


def _stop(runtime: Runtime, row: InboxRow, head: Head | None) -> ClaimedWork:
    reason = row.pointer("reason")
    rows = runtime.inbox.list_by_turn(row.turn_id)
    active = head is not None and head.active_agent_turn_id == row.turn_id
    outcome = "its turn had already ended"
    if active or any(is_turn(each) and each.status == QUEUED for each in rows):
        outcome = "stopped its turn" if active else "stopped its turn before it began"
        cancel_turn(runtime, head, row.fence, message=reason or "stopped")
    if head is not None and active:
        runtime.audit.write_of_turn(
            head.fence,
            action="stop",
            actor=WATCHDOG,
            reason=reason or "a stop was in the inbox",
            epoch_after=head.turn_epoch + 1,
        )
    return _consume(runtime, row, outcome)


def _consume(runtime: Runtime, row: InboxRow, outcome: str, error: str | None = None) -> ClaimedWork:
    runtime.inbox.move([row.inbox_id], "consume", error=error)
    runtime.inbox.drop_leases([row.inbox_id])
    return _done(row, outcome)


def _apply(runtime: Runtime, found: ClaimedSituation) -> ClaimedWork:
    applied = apply_report(runtime, found)
    row = applied.row or found.row
    match applied.outcome:
        case "resumed":
            return ClaimedWork(kind="run", row=row, fence=applied.fence, outcome="resumed its turn")
        case "terminate":
            return _done(row, f"ended its turn: {_end_by_result(runtime, applied).end_status}")
        case "early" | "busy":
            return _defer_report(runtime, found, applied)
        case "waiting":
            return _done(row, f"waiting: {applied.reason}")
        case "stale":
            return _consume(runtime, row, f"stale: {applied.reason}", applied.reason)


def _end_by_result(runtime: Runtime, applied: ReportOutcome) -> TurnEnd:
    if applied.end_status == "success":
        return finish(runtime, applied.fence, message=BY_RESULT)
    return end_turn(runtime, applied.fence, applied.end_status, message=BY_RESULT)


def _done(row: InboxRow, outcome: str) -> ClaimedWork:
    return ClaimedWork(kind="done", row=row, fence=row.fence, outcome=outcome)


def _defer_report(runtime: Runtime, found: ClaimedSituation, applied: ReportOutcome) -> ClaimedWork:
    """Defer a report that came too early. It does not count as a try while the turn is busy."""
    row = found.row
    reason = applied.reason or "too early"
    attempts = 0 if applied.outcome == "busy" else 1
    if row.retry_count + attempts >= runtime.settings.max_attempts:
        return _kill_row(runtime, row, f"gave up: {reason}")
    return_row(
        runtime, row, carried_head(found), "defer", attempts=attempts, delay=EARLY_REPORT_DELAY, error=reason
    )
    return _done(row, f"deferred: {reason}")


# --- returning rows


def ack(runtime: Runtime, inbox_id: str, *, owner: str, epoch: int | None = None) -> None:
    """Mark the row as done, and end the turn that it carries in success.

    Raises LeaseLost if `owner` has no lease of the row, or if the lease has another epoch than `epoch`.
    Raises StaleEpoch if another worker has the turn.
    """
    with runtime.transaction():
        found = _hold_leased(runtime, inbox_id, owner, epoch=epoch)
        if carried_head(found) is not None:
            finish(runtime, found.row.fence)
            return
        _refuse_stale(runtime, found)
        runtime.inbox.consume([inbox_id], owner=owner)


def fail(
    runtime: Runtime,
    inbox_id: str,
    *,
    owner: str,
    error: str,
    error_code: str = "failed",
    epoch: int | None = None,
) -> None:
    """Make the row a dead letter and end the turn that it carries as failed. Raises what `ack` raises."""
    with runtime.transaction():
        found = _hold_leased(runtime, inbox_id, owner, epoch=epoch)
        _refuse_stale(runtime, found)
        kill_row(runtime, found, error=error, error_code=error_code)


def defer(
    runtime: Runtime, row: InboxRow, *, owner: str, reason: str, delay: timedelta | None = None
) -> bool:
    """Make the row due again after `delay`, or after the configured backoff if `delay` is None.

    If no try is left, the row becomes a dead letter, its turn fails, and the result is False. Raises what
    `ack` raises.
    """
    settings = runtime.settings
    with runtime.transaction():
        found = _hold_leased(runtime, row.inbox_id, owner, epoch=row.turn_epoch)
        _refuse_stale(runtime, found)
        tries = found.row.retry_count
        if tries + 1 >= settings.max_attempts:
            kill_row(runtime, found, error=f"gave up: {reason}", error_code="max_attempts")
            return False
        wait = settings.delay(tries, random.random()) if delay is None else delay
        return_row(runtime, found.row, carried_head(found), "defer", attempts=1, delay=wait, error=reason)
    return True


def postpone(runtime: Runtime, row: InboxRow, *, owner: str, reason: str, delay: timedelta) -> None:
    """Defer the row by `delay` without counting a try. Raises LeaseLost as `ack` does."""
    with runtime.transaction():
        found = _hold_leased(runtime, row.inbox_id, owner, epoch=row.turn_epoch)
        return_row(runtime, found.row, carried_head(found), "defer", attempts=0, delay=delay, error=reason)


def hand_back(runtime: Runtime, row: InboxRow, *, owner: str, reason: str) -> None:
    """Release the row without counting a try, because the worker stops. Raises LeaseLost as `ack` does."""
    with runtime.transaction():
        found = _hold_leased(runtime, row.inbox_id, owner, epoch=row.turn_epoch)
        return_row(runtime, found.row, carried_head(found), "release", attempts=0, error=reason)


def heartbeat(runtime: Runtime, inbox_ids: Sequence[str], *, owner: str) -> dict[str, int]:
    """Extend the leases of these rows. Return the epoch of each row that is still leased to `owner`.

    Never waits for a lock. The next heartbeat extends a lease that is locked now.
    """
    with runtime.statement():
        return runtime.inbox.extend(inbox_ids, owner=owner, lease=runtime.settings.lease_time)


def _hold_leased(
    runtime: Runtime, inbox_id: str, owner: str, *, epoch: int | None, claimed: InboxRow | None = None
) -> ClaimedSituation:
    """Lock and return the row and its agent's head. Raises LeaseLost.

    Pass the row as `claimed` when its work begins. If it is a report, its results are then read with it.
    """
    runtime.database.require_execution()
    if claimed is not None and is_report(claimed):
        found = runtime.inbox.hold_report(inbox_id)
    else:
        found = runtime.inbox.hold(inbox_id, may_report=claimed is None)
    lease = found.lease
    if lease is None or lease.owner != owner or epoch not in (None, lease.turn_epoch):
        raise _lease_lost(runtime, found.row, lease, owner, epoch)
    return found


def _lease_lost(
    runtime: Runtime, row: InboxRow, lease: Lease | None, owner: str, epoch: int | None
) -> LeaseLost:
    if lease is None:
        state = f"it is {row.status}"
    elif lease.owner == owner:
        state = f"it was claimed again at epoch {lease.turn_epoch}"
    else:
        state = f"it is claimed by {lease.owner!r}"
    fence = Fence(row.agent_id, row.turn_id, -1 if epoch is None else epoch)
    return LeaseLost(
        f"inbox row {row.inbox_id} is not leased to {owner!r}: {state}{runtime.heads.what_happened(fence)}",
        hint=f"nothing was written; run `cbx inbox show {quote_argument(row.inbox_id)}` for details",
        details={"inbox_id": row.inbox_id, "status": row.status},
    )


def _refuse_stale(runtime: Runtime, found: ClaimedSituation) -> None:
    """Raise StaleEpoch if another program has given the turn to another worker without ending the lease."""
    if is_turn(found.row) and carried_head(found) is None:
        raise runtime.heads.stale_error(found.row.fence, found.head)
