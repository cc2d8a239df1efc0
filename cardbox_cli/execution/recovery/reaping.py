"""Reaping: one pass over everything of a project that is overdue, safe from many places at once.

Leases that have expired, what followers have to catch up with, results whose report was lost, deadlines that
have passed, turns queued on idle agents, promoted turns that nobody came for. Each thing is a transaction of
its own; what another one holds is passed over.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Literal

import msgspec

from cardbox_cli.errors import CardConflict, Conflict, InvalidInput, NotFound
from cardbox_cli.execution.queue.messages import is_report
from cardbox_cli.execution.queue.promotion import promote_next
from cardbox_cli.execution.queue.reports import report_timeouts
from cardbox_cli.execution.queue.stopping import carried, give_back, kill, stop_turn
from cardbox_cli.execution.recovery.lost_reports import report_lost
from cardbox_cli.execution.runtime import Follower, Runtime
from cardbox_cli.model.execution.dispatching import ClaimedSituation
from cardbox_cli.model.execution.turns import (
    OPEN,
    PROCESSING,
    SUSPENDED,
    WAITING,
    WATCHDOG,
    EndStatus,
    Head,
    InboxRow,
    Lease,
    WaitingTool,
)
from cardbox_cli.store.execution import workers

_AT_ONCE = 500


class Reaped(msgspec.Struct, frozen=True, kw_only=True):
    """What a pass did: `released` and `dead` are inbox ids; `failed`, `promoted` and `notified` turn ids.

    `timed_out` and `reported`, whose reports were lost, are ids of tool calls. `dispatched` and `stopped` are
    turns of the children of batches, `batches` those that ended. `troubles` says what could not be done, and
    why.
    """

    released: list[str] = []
    dead: list[str] = []
    timed_out: list[str] = []
    reported: list[str] = []
    failed: list[str] = []
    promoted: list[str] = []
    notified: list[str] = msgspec.field(name="rung", default_factory=list)
    dispatched: list[str] = []
    stopped: list[str] = []
    batches: list[str] = []
    troubles: list[str] = []

    @property
    def total(self) -> int:
        """Everything together."""
        return sum(len(getattr(self, name)) for name in self.__struct_fields__)


def reap(runtime: Runtime) -> Reaped:
    """Do what is overdue in the project; what was done. What cannot be done keeps nothing else up."""
    runtime.database.require_execution()
    reaped = Reaped()
    for lease in runtime.inbox.expired(limit=_AT_ONCE):
        with _trouble(reaped, f"the lease of {lease.inbox_id}"):
            _take_back(runtime, lease, reaped)
    for follower in runtime.followers:
        _catch_up(runtime, follower, reaped)
    with _trouble(reaped, "the reports that were lost"):
        reaped.reported.extend(report_lost(runtime))
    for head in runtime.turns.overdue():
        with _trouble(reaped, f"the deadline of turn {head.active_agent_turn_id}"):
            _time_out(runtime, head, reaped)
    for agent_id in runtime.inbox.idle_with_queued():
        with _trouble(reaped, f"the queue of agent {agent_id!r}"):
            reaped.promoted.extend(_promote(runtime, agent_id))
    reaped.notified.extend(_notify(runtime))
    workers.forget_dead(runtime.database)
    return reaped


def _catch_up(runtime: Runtime, follower: Follower, reaped: Reaped) -> None:
    caught = follower.catch_up(runtime)
    reaped.dispatched.extend(caught.dispatched)
    reaped.stopped.extend(caught.stopped)
    reaped.batches.extend(caught.ended)
    reaped.troubles.extend(caught.troubles)


@contextmanager
def _trouble(reaped: Reaped, what: str) -> Iterator[None]:
    try:
        yield
    except (NotFound, InvalidInput, Conflict) as exc:
        reaped.troubles.append(f"{what}: {exc.message}")


def _take_back(runtime: Runtime, known: Lease, reaped: Reaped) -> None:
    with runtime.transaction():
        head = runtime.heads.try_lock(known.agent_id)
        if head is None and runtime.heads.get(known.agent_id) is not None:
            return
        try:
            found = runtime.inbox.hold(known.inbox_id)
        except NotFound:
            runtime.inbox.drop_leases([known.inbox_id])
            return
        tries, row = found.row.retry_count + 1, found.row
        reason = f"the lease of {known.owner} expired"
        epoch = None
        match decide_expiry(found, known, max_attempts=runtime.settings.max_attempts):
            case "kept":
                return
            case "over":
                runtime.inbox.drop_leases([known.inbox_id])
                return
            case "dead":
                kill(runtime, found, error=f"{reason}, try {tries}", error_code="max_attempts")
                reaped.dead.append(row.inbox_id)
            case "released":
                epoch = give_back(runtime, row, carried(found), "release", attempts=1, error=reason)
                reaped.released.append(row.inbox_id)
        runtime.audit.write_of_turn(
            row.fence, action="lease-expired", actor=WATCHDOG, reason=reason, epoch_after=epoch
        )


def decide_expiry(
    found: ClaimedSituation, known: Lease, *, max_attempts: int
) -> Literal["kept", "over", "dead", "released"]:
    """What becomes of a row whose lease was found to be over, as `known`.

    `kept`: somebody else has it by now, or its owner lived; `over`: it is not claimed any more.
    """
    if found.lease != known:
        return "kept"
    if found.row.status != PROCESSING:
        return "over"
    return "dead" if found.row.retry_count + 1 >= max_attempts else "released"


def _time_out(runtime: Runtime, known: Head, reaped: Reaped) -> None:
    with runtime.transaction():
        head = runtime.heads.try_lock(known.agent_id)
        turn_id = known.fence.agent_turn_id
        calls, rows = runtime.turns.waiting_tools(turn_id), runtime.inbox.of_turn(turn_id)
        due = decide_deadline(known, head, calls, rows)
        if head is None or due == "kept":
            return
        if due == "report":
            try:
                with runtime.transaction():
                    reports = report_timeouts(runtime, calls)
            except CardConflict as exc:
                # A database may allow one result per call id, and another turn's call of this id has it.
                why = f"no result came before the deadline, and none can be reported: {exc.message}"
                _fail(runtime, head, reaped, "timeout", "tool_timeout", why)
                return
            reaped.timed_out.extend(report.tool_call_id for report in reports)
            # Another program may have reported each of them, and not noted that beside the call.
            due = "wait" if reports else decide_deadline(known, head, (), rows)
        if due == "lost":
            why = "its deadline passed, and no result that it waits for is on its way"
            _fail(runtime, head, reaped, "failed", "result_lost", why)
            return
        # Once more, should these reports not be applied either.
        runtime.heads.extend_deadline(head.fence, timedelta(seconds=runtime.settings.tool_wait))


def decide_deadline(
    known: Head, head: Head | None, calls: Sequence[WaitingTool], rows: Sequence[InboxRow]
) -> Literal["kept", "report", "wait", "lost"]:
    """What becomes of a turn that was found to be overdue, as `known`. `head` is None where it is not held.

    `calls` are those that it waits for, `rows` those of its inbox. `report`: some calls have no result on its
    way; `wait`: one is, and has time again; `lost`: none will come. `kept`: the turn goes on, or somebody has
    given it time by now.
    """
    if head is None or head.status != SUSPENDED:
        return "kept"
    if (head.fence, head.resume_deadline) != (known.fence, known.resume_deadline):
        return "kept"
    if any(call.wait_status == WAITING for call in calls):
        return "report"
    return "wait" if any(is_report(row) and row.status in OPEN for row in rows) else "lost"


def _fail(
    runtime: Runtime, head: Head, reaped: Reaped, end_status: EndStatus, error_code: str, message: str
) -> None:
    stop_turn(runtime, head, head.fence, end_status, error_code=error_code, message=message)
    reaped.failed.append(head.fence.agent_turn_id)


def _promote(runtime: Runtime, agent_id: str) -> list[str]:
    with runtime.transaction():
        if runtime.heads.try_lock(agent_id) is None:
            return []
        promoted = promote_next(runtime, agent_id, reason="reap")
    return [promoted.turn_id] if promoted else []


def _notify(runtime: Runtime) -> list[str]:
    turns = []
    with runtime.transaction():
        for row in runtime.inbox.unclaimed(runtime.settings.unclaimed_time):
            runtime.notify(row, "unclaimed")
            turns.append(row.turn_id)
    return turns
