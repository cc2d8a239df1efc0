"""Reaping: one pass over all overdue work of a project. Several processes may reap at the same time.

A pass handles expired leases, due work of followers, missing reports, missed deadlines, queued turns of idle
agents, and promoted turns that no worker claims. Each item has its own transaction. Items that another
transaction has locked are skipped.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Literal

import msgspec

from cardbox_cli.errors import CardConflict, CbxError, Conflict, DatabaseUnavailable, InvalidInput, NotFound
from cardbox_cli.execution.queue.messages import is_report
from cardbox_cli.execution.queue.promotion import promote_next
from cardbox_cli.execution.queue.reports import report_result, report_stored, report_timeouts, result_of_end
from cardbox_cli.execution.queue.stopping import carried_head, kill_row, return_row, stop_turn
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.turn_summary import summary
from cardbox_cli.model.execution.situations import ClaimedSituation
from cardbox_cli.model.execution.turns import (
    ENDED,
    OPEN,
    PROCESSING,
    SUSPENDED,
    WAITING,
    WATCHDOG,
    EndStatus,
    Fence,
    Head,
    InboxRow,
    Lease,
    TurnRecord,
    WaitingTool,
)
from cardbox_cli.store.execution import worker_store
from cardbox_cli.store.views.inbox_views import LostReport, LostReportStore
from cardbox_cli.store.views.turn_views import TurnViews


def report_lost(runtime: Runtime, agent_turn_id: str | None = None) -> list[str]:
    """Write missing reports for calls of a suspended turn whose result or dispatched turn is complete.

    Reports are missing if a dispatched turn ends before its caller suspends, or if another program fails to
    report. A suspension passes its turn, and `reap` passes None for all. Return the ids of reported calls.
    """
    lost = LostReportStore(runtime.database, runtime.project_id).find(
        agent_turn_id, age=runtime.settings.unclaimed_time
    )
    turn_ids = [each.child_turn_id for each in lost if each.child_turn_id]
    turns = TurnViews(runtime.database, runtime.project_id).get_many(turn_ids) if turn_ids else []
    ended = {turn.agent_turn_id for turn in turns if turn.status == ENDED}
    due = [each for each in lost if each.card_id is not None or each.child_turn_id in ended]
    return [each.tool_call_id for each in due if _report(runtime, each)]


def _report(runtime: Runtime, lost: LostReport) -> bool:
    with runtime.transaction():
        head = runtime.heads.try_lock(lost.agent_id)
        if head is None or head.active_agent_turn_id != lost.agent_turn_id:
            return False
        try:
            if lost.card_id is not None:
                return report_stored(runtime, lost.agent_turn_id, lost.tool_call_id, lost.card_id).created
            return lost.child_turn_id is not None and _report_child(runtime, lost, lost.child_turn_id)
        except (NotFound, Conflict):
            # Another process has just reported it, or it cannot be reported. Then the deadline ends the wait.
            return False


def _report_child(runtime: Runtime, lost: LostReport, child_turn_id: str) -> bool:
    record = ended_record(runtime, child_turn_id)
    if record is None or record.end_status is None:
        return False
    card_id = record.deliverable_card_id or ""
    content = result_of_end(runtime, child_turn_id, record.end_status, card_id, record.error)
    turn_id, call_id, source = lost.agent_turn_id, lost.tool_call_id, record.agent_id
    return report_result(runtime, turn_id, call_id, content, source_agent_id=source).created


def ended_record(runtime: Runtime, agent_turn_id: str) -> TurnRecord | None:
    """Return the record of a turn, or None. If another program ended the turn, first records that end."""
    record = runtime.turns.record(agent_turn_id)
    if record is None or record.end_status is not None:
        return record
    for turn in TurnViews(runtime.database, runtime.project_id).get_many([agent_turn_id]):
        left = summary(turn)
        if left.end_status is not None:
            runtime.turns.end(
                Fence(record.agent_id, agent_turn_id, 0),
                end_status=left.end_status,
                deliverable_card_id=left.deliverable_card_id,
                error_code=None,
                error=None,
            )
    return runtime.turns.record(agent_turn_id)


_BATCH_SIZE = 500


class ReapOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The ids of everything that a pass changed, and `troubles`: messages about work that failed.

    `released` and `dead` hold ids of inbox rows. `failed`, `promoted` and `notified` hold ids of turns.
    `timed_out` and `reported` hold ids of tool calls. The calls in `reported` had a result without a report.
    `dispatched` and `stopped` hold ids of turns of batch children. `batches` holds ids of ended batches.
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
        return sum(len(getattr(self, name)) for name in self.__struct_fields__)


def reap(runtime: Runtime) -> ReapOutcome:
    """Run one pass over the project's overdue work. An item that fails does not stop the rest of the pass."""
    runtime.database.require_execution()
    reaped = ReapOutcome()
    attempt = partial(record_trouble, reaped.troubles, errors=(NotFound, InvalidInput, Conflict))
    runtime.inbox.expire_leases_of_dead()
    for lease in runtime.inbox.expired(limit=_BATCH_SIZE):
        with attempt(f"the lease of {lease.inbox_id}"):
            _release_expired(runtime, lease, reaped)
    for follower in runtime.followers:
        caught = follower.catch_up(runtime)
        reaped.dispatched.extend(caught.dispatched)
        reaped.stopped.extend(caught.stopped)
        reaped.batches.extend(caught.ended)
        reaped.troubles.extend(caught.troubles)
    with attempt("the reports that were lost"):
        reaped.reported.extend(report_lost(runtime))
    for head in runtime.turns.overdue():
        with attempt(f"the deadline of turn {head.active_agent_turn_id}"):
            _time_out(runtime, head, reaped)
    for agent_id in runtime.inbox.idle_with_queued():
        with attempt(f"the queue of agent {agent_id!r}"):
            _promote(runtime, agent_id, reaped)
    with runtime.transaction():
        for row in runtime.inbox.unclaimed(runtime.settings.unclaimed_time):
            runtime.notify(row, "unclaimed")
            reaped.notified.append(row.turn_id)
    worker_store.remove_dead_workers(runtime.database)
    return reaped


@contextmanager
def record_trouble(
    troubles: list[str], what: str, errors: tuple[type[CbxError], ...] = (CbxError,)
) -> Iterator[None]:
    """Add an error of these types to `troubles`, and do not raise it. Always raises DatabaseUnavailable."""
    try:
        yield
    except DatabaseUnavailable:
        raise
    except errors as exc:
        troubles.append(f"{what}: {exc.message}")


def _release_expired(runtime: Runtime, known: Lease, reaped: ReapOutcome) -> None:
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
                kill_row(runtime, found, error=f"{reason}, try {tries}", error_code="max_attempts")
                reaped.dead.append(row.inbox_id)
            case "released":
                epoch = return_row(runtime, row, carried_head(found), "release", attempts=1, error=reason)
                reaped.released.append(row.inbox_id)
        runtime.audit.write_of_turn(
            row.fence, action="lease-expired", actor=WATCHDOG, reason=reason, epoch_after=epoch
        )


def decide_expiry(
    found: ClaimedSituation, known: Lease, *, max_attempts: int
) -> Literal["kept", "over", "dead", "released"]:
    """Decide what to do with a row whose lease had expired when the lease was read as `known`.

    - `kept`: do nothing, because its owner has extended the lease, or another worker has claimed the row.
    - `over`: drop the lease, because the row is no longer claimed.
    - `dead` or `released`: make the row a dead letter if no try is left, or else due again.
    """
    if found.lease != known:
        return "kept"
    if found.row.status != PROCESSING:
        return "over"
    return "dead" if found.row.retry_count + 1 >= max_attempts else "released"


def _time_out(runtime: Runtime, known: Head, reaped: ReapOutcome) -> None:
    with runtime.transaction():
        head = runtime.heads.try_lock(known.agent_id)
        turn_id = known.fence.agent_turn_id
        calls, rows = runtime.turns.waiting_tools(turn_id), runtime.inbox.list_by_turn(turn_id)
        due = decide_deadline(known, head, calls, rows)
        if head is None or due == "kept":
            return
        if due == "report":
            try:
                with runtime.transaction():
                    reports = report_timeouts(runtime, calls)
            except CardConflict as exc:
                # A database may allow only one result per call id, and another turn may have the same id.
                why = f"no result came before the deadline, and a timeout cannot be reported: {exc.message}"
                _fail(runtime, head, reaped, "timeout", "tool_timeout", why)
                return
            reaped.timed_out.extend(report.tool_call_id for report in reports)
            # Another program may have reported the calls, and not have noted that in their rows.
            due = "wait" if reports else decide_deadline(known, head, (), rows)
        if due == "lost":
            why = "its deadline passed, and no report is pending for the calls that it waits for"
            _fail(runtime, head, reaped, "failed", "result_lost", why)
            return
        # The reports must be applied before the new deadline, which ends the wait.
        runtime.heads.extend_deadline(head.fence, timedelta(seconds=runtime.settings.tool_wait))


def decide_deadline(
    known: Head, head: Head | None, calls: Sequence[WaitingTool], rows: Sequence[InboxRow]
) -> Literal["kept", "report", "wait", "lost"]:
    """Decide what to do with a turn whose deadline had passed when its head was read as `known`.

    `head` is None if it could not be locked. `calls` and `rows` are the turn's waiting calls and inbox rows.

    - `report`: report timeouts, because some calls have no report yet.
    - `wait` or `lost`: extend the deadline if a report is pending, or else fail the turn.
    - `kept`: do nothing, because the turn is locked, is not suspended any more, or has a new deadline.
    """
    if head is None or head.status != SUSPENDED:
        return "kept"
    if (head.fence, head.resume_deadline) != (known.fence, known.resume_deadline):
        return "kept"
    if any(call.wait_status == WAITING for call in calls):
        return "report"
    return "wait" if any(is_report(row) and row.status in OPEN for row in rows) else "lost"


def _fail(
    runtime: Runtime, head: Head, reaped: ReapOutcome, end_status: EndStatus, error_code: str, message: str
) -> None:
    stop_turn(runtime, head, head.fence, end_status, error_code=error_code, message=message)
    reaped.failed.append(head.fence.agent_turn_id)


def _promote(runtime: Runtime, agent_id: str, reaped: ReapOutcome) -> None:
    with runtime.transaction():
        free = runtime.heads.try_lock(agent_id) is not None
        promoted = promote_next(runtime, agent_id, reason="reap") if free else None
    if promoted is not None:
        reaped.promoted.append(promoted.turn_id)
