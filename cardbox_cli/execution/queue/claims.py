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
from cardbox_cli.execution.queue.messages import is_report, is_turn, type_of
from cardbox_cli.execution.queue.reports import TOO_EARLY, Applied, apply_report
from cardbox_cli.execution.queue.stopping import cancel_turn, carried, give_back, kill
from cardbox_cli.execution.queue.turn_ends import BY_RESULT, end_turn, finish
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.execution.situations import ClaimedSituation
from cardbox_cli.model.execution.turns import DISPATCHED, QUEUED, WATCHDOG, End, Fence, Head, InboxRow, Lease


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


class ClaimedWork(msgspec.Struct, frozen=True, kw_only=True):
    """What a claimed row asks for now: to `run` its turn at `fence`, or nothing more, since it is `done`.

    `outcome` is what was done with it.
    """

    kind: Literal["run", "done"]
    row: InboxRow
    fence: Fence
    outcome: str


def begin(runtime: Runtime, row: InboxRow, *, owner: str) -> ClaimedWork:
    """Find out what a claimed row asks for, and do what needs no worker: apply a report, carry out a stop.

    A row whose turn is elsewhere by now is consumed. Raises LeaseLost where `owner` has no lease of it.
    """
    with runtime.transaction():
        found = _own(runtime, row.inbox_id, owner, epoch=row.turn_epoch, claimed=row)
        row, head = found.row, carried(found)
        if head is not None:
            return _take_up(runtime, row, head, is_known=found.output_start is not None)
        kind = type_of(row)
        match kind and kind.claim:
            case "run":
                why = "its turn is not dispatched at its epoch"
                return _consumed(runtime, row, f"dropped: {why}", why)
            case "apply":
                return _apply(runtime, found)
            case "stop":
                return _stop(runtime, row, found.head)
        return _dead(runtime, row, f"unknown message type {row.message_type!r}")


def _take_up(runtime: Runtime, row: InboxRow, head: Head, *, is_known: bool) -> ClaimedWork:
    if not is_known:
        _know(runtime, row, head)
    if head.status == DISPATCHED:
        return ClaimedWork(kind="run", row=row, fence=head.fence, outcome="taken up")
    # Another program's sweep made the row due while its turn ran: whoever ran it is fenced off.
    epoch = runtime.heads.move(head.fence, "reclaim")
    return _carried(runtime, row, head.fence_at(epoch), "taken over")


def _know(runtime: Runtime, row: InboxRow, head: Head) -> None:
    """Begin the record of a turn that another program dispatched."""
    start = runtime.turns.output_start(head.output_box_id, row.turn_id) if head.output_box_id else 0
    runtime.turns.begin_record(row.turn_id, row.agent_id, output_start=start or 0, report_to=None)


def _carried(runtime: Runtime, row: InboxRow, fence: Fence, outcome: str) -> ClaimedWork:
    """The row carries its turn on at a new epoch."""
    row = runtime.inbox.carry(row.inbox_id, fence.turn_epoch)
    return ClaimedWork(kind="run", row=row, fence=fence, outcome=outcome)


def _dead(runtime: Runtime, row: InboxRow, why: str) -> ClaimedWork:
    runtime.inbox.move([row.inbox_id], "kill", error=why)
    runtime.inbox.drop_leases([row.inbox_id])
    return _done(row, f"dead: {why}")


def _stop(runtime: Runtime, row: InboxRow, head: Head | None) -> ClaimedWork:
    reason = row.pointer("reason")
    rows = runtime.inbox.of_turn(row.turn_id)
    active = head is not None and head.active_agent_turn_id == row.turn_id
    outcome = "its turn has ended before"
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
    return _consumed(runtime, row, outcome)


def _consumed(runtime: Runtime, row: InboxRow, outcome: str, error: str | None = None) -> ClaimedWork:
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
            return _done(row, f"ended its turn: {_ended_by_result(runtime, applied).end_status}")
        case "early" | "busy":
            return _defer_report(runtime, found, applied)
        case "waiting":
            return _done(row, f"waiting: {applied.reason}")
        case "stale":
            return _consumed(runtime, row, f"stale: {applied.reason}", applied.reason)


def _ended_by_result(runtime: Runtime, applied: Applied) -> End:
    if applied.end_status == "success":
        return finish(runtime, applied.fence, message=BY_RESULT)
    return end_turn(runtime, applied.fence, applied.end_status, message=BY_RESULT)


def _done(row: InboxRow, outcome: str) -> ClaimedWork:
    return ClaimedWork(kind="done", row=row, fence=row.fence, outcome=outcome)


def _defer_report(runtime: Runtime, found: ClaimedSituation, applied: Applied) -> ClaimedWork:
    """Look again at a report that came early; that its turn is busy is no fault of it."""
    row = found.row
    reason = applied.reason or "too early"
    attempts = 0 if applied.outcome == "busy" else 1
    if row.retry_count + attempts >= runtime.settings.max_attempts:
        return _dead(runtime, row, f"gave up: {reason}")
    give_back(runtime, row, carried(found), "defer", attempts=attempts, delay=TOO_EARLY, error=reason)
    return _done(row, f"deferred: {reason}")


# --- giving back


def ack(runtime: Runtime, inbox_id: str, *, owner: str, epoch: int | None = None) -> None:
    """The row is done. If it carries a turn, the turn has done its work, and ends.

    Raises LeaseLost where `owner` has no lease of it (at `epoch`, if that is named: an owner may have lost a
    row and got it again), StaleEpoch where its turn is elsewhere.
    """
    with runtime.transaction():
        found = _own(runtime, inbox_id, owner, epoch=epoch)
        if carried(found) is not None:
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
    """The row cannot be done: it is a dead letter, and a turn that it carries fails. Raises as `ack`."""
    with runtime.transaction():
        found = _own(runtime, inbox_id, owner, epoch=epoch)
        _refuse_stale(runtime, found)
        kill(runtime, found, error=error, error_code=error_code)


def defer(
    runtime: Runtime, row: InboxRow, *, owner: str, reason: str, delay: timedelta | None = None
) -> bool:
    """Ask for another try later, after `delay` or the backoff; False where that was one try too many.

    The row is a dead letter then, and a turn that it carries has failed. Raises as `ack`.
    """
    settings = runtime.settings
    with runtime.transaction():
        found = _own(runtime, row.inbox_id, owner, epoch=row.turn_epoch)
        _refuse_stale(runtime, found)
        tried = found.row.retry_count
        if tried + 1 >= settings.max_attempts:
            kill(runtime, found, error=f"gave up: {reason}", error_code="max_attempts")
            return False
        wait = settings.delay(tried, random.random()) if delay is None else delay
        give_back(runtime, found.row, carried(found), "defer", attempts=1, delay=wait, error=reason)
    return True


def hand_back(runtime: Runtime, row: InboxRow, *, owner: str, reason: str) -> None:
    """Give the row back untried, to be claimed at once: the worker stops. Raises LeaseLost as `ack`."""
    with runtime.transaction():
        found = _own(runtime, row.inbox_id, owner, epoch=row.turn_epoch)
        give_back(runtime, found.row, carried(found), "release", attempts=0, error=reason)


def heartbeat(runtime: Runtime, inbox_ids: Sequence[str], *, owner: str) -> dict[str, int]:
    """Extend the leases of these rows; the epoch of each that `owner` still has."""
    with runtime.transaction():
        runtime.inbox.hold_agents(inbox_ids, owner=owner)
        return runtime.inbox.extend(inbox_ids, owner=owner, lease=runtime.settings.lease_time)


def _own(
    runtime: Runtime, inbox_id: str, owner: str, *, epoch: int | None, claimed: InboxRow | None = None
) -> ClaimedSituation:
    """The row and its agent's head, both held. Raises LeaseLost.

    `claimed` is the row as it was claimed, where it is to be begun: a report is found with its results then.
    """
    runtime.database.require_execution()
    if claimed is not None and is_report(claimed):
        found = runtime.inbox.hold_report(inbox_id)
    else:
        found = runtime.inbox.hold(inbox_id, may_report=claimed is None)
    lease = found.lease
    if lease is None or lease.owner != owner or epoch not in (None, lease.turn_epoch):
        raise _lost(runtime, found.row, lease, owner, epoch)
    return found


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


def _refuse_stale(runtime: Runtime, found: ClaimedSituation) -> None:
    """Another program may have given the turn to somebody else, and left the lease."""
    if is_turn(found.row) and carried(found) is None:
        raise runtime.heads.stale(found.row.fence, found.head)
