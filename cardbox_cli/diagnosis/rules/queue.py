"""Rules about turns that wait to be run: in a queue, for a wakeup, for a worker, for a lock."""

from datetime import datetime, timedelta

from cardbox_cli.diagnosis import evidence as show
from cardbox_cli.diagnosis.registry import (
    LEASES,
    WORKERS,
    DiagnosisRule,
    Proof,
    Remedy,
    RowEvidence,
    waiting_rule,
)
from cardbox_cli.diagnosis.rules.waits import cause, is_stuck, root_of
from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.diagnosis.verdict import NUDGE, NUDGE_OR_REBUILD, fenced_remedy, judge
from cardbox_cli.model.execution.turns import DUE, HEAD_MOVES, IDLE, PROCESSING, InboxRow

# --- queued


def _queue_evidence(s: Snapshot) -> tuple[RowEvidence, ...]:
    assert s.turn_row is not None
    queue = f", one of {s.queue_length} in the queue of agent {s.agent_id}"
    return (show.row(s, s.turn_row, queue), show.head(s))


def _queued_behind_stuck(s: Snapshot) -> Proof:
    if not s.queued or s.blocker is None or not is_stuck(s.blocker) or s.cycle:
        return None
    return (*_queue_evidence(s), *cause(s.blocker))


def _queued_behind(s: Snapshot) -> Proof:
    return _queue_evidence(s) if s.queued and s.blocker and not is_stuck(s.blocker) else None


def _blockers_due(s: Snapshot) -> datetime | None:
    return None if s.blocker is None else judge(s.blocker).due_at


def _agent_is_idle(s: Snapshot) -> bool:
    return s.head is None or s.head.status == IDLE


def _queued_on_idle(s: Snapshot) -> Proof:
    if not s.queued or s.turn_row is None or not _agent_is_idle(s) or _promotion_follows(s):
        return None
    return (show.head(s), show.row(s, s.turn_row))


def _promotion_follows(s: Snapshot) -> bool:
    """Return True if another system has just ended a turn, and has yet to promote the next one."""
    return not s.keeps_turns and s.head is not None and s.age(s.head.updated_at) <= s.grace


def _promotion(s: Snapshot) -> Proof:
    return (show.head(s),) if s.queued and _agent_is_idle(s) and _promotion_follows(s) else None


# --- promoted


def _no_live_worker(s: Snapshot) -> Proof:
    if not s.unclaimed or not s.unserved or s.running:
        return None
    return (*show.unclaimed_rows(s), *show.workers(s))


def _cannot_work(s: Snapshot) -> Proof:
    """Prove that the worker that claimed the turn reports that it cannot work, or that all live ones do."""
    if s.dispatched and s.unable_owner:
        return (show.head(s), show.lease(s, s.carrier), *show.workers(s))
    if not s.unclaimed or s.running or not s.workers_are_unable:
        return None
    return (*show.unclaimed_rows(s), *show.workers(s))


def _lost_wakeup(s: Snapshot) -> Proof:
    if not s.unclaimed or s.unserved or s.workers_are_busy or s.workers_are_unable or not s.dispatched:
        return None
    return (show.head(s), *show.unclaimed_rows(s), *show.workers(s))


def _workers_busy(s: Snapshot) -> Proof:
    if not s.unclaimed or s.running or not s.workers_are_busy:
        return None
    loads = []
    for worker in s.live_workers[-3:]:
        shows = f"{s.loads.get(worker.worker_id, 0)} claimed, concurrency {worker.concurrency}"
        loads.append(RowEvidence("cbx.leases", worker.worker_id, shows))
    return (*show.unclaimed_rows(s), *loads)


def _never_entered(s: Snapshot) -> Proof:
    """Prove that a live worker claimed the row, but has not begun the turn."""
    lease = s.lease_of(s.carrier)
    if not s.dispatched or lease is None or lease.expires_at <= s.now or s.unable_owner:
        return None
    if s.age(lease.claimed_at) <= s.settings.lease_time:
        return None
    claimed = RowEvidence("cbx.leases", lease.inbox_id, f"claimed {show.instant(s, lease.claimed_at)}")
    return (show.head(s), show.lease(s, s.carrier), claimed)


def _retry_far(s: Snapshot) -> Proof:
    limit = s.now + timedelta(seconds=2 * s.settings.backoff_cap)
    return tuple(_next_try(s, row) for row in _retries(s) if row.next_retry_at > limit) or None


def _retries(s: Snapshot) -> tuple[InboxRow, ...]:
    rows = s.rows if s.head_status is not None else ()
    return tuple(row for row in rows if row.status in DUE and row not in s.due_rows)


def _next_try(s: Snapshot, row: InboxRow) -> RowEvidence:
    return show.row(s, row, f", next try {show.instant(s, row.next_retry_at)}")


def _first_retry(s: Snapshot) -> datetime | None:
    return min((row.next_retry_at for row in _retries(s)), default=None)


def _dispatched(s: Snapshot) -> Proof:
    """Prove that the turn was promoted or claimed a moment ago."""
    if not s.dispatched or s.carrier is None:
        return None
    if s.carrier.status == PROCESSING:
        if LEASES in s.closed:
            return None
        claimed = s.worked_on or (s.lease_of(s.carrier) is None and not s.silent)
        return (show.row(s, s.carrier), show.lease(s, s.carrier)) if claimed else None
    if not s.due_rows or s.unclaimed:
        return None
    return tuple(show.due_row(s, row) for row in s.due_rows)


def _claim_limit(s: Snapshot) -> datetime | None:
    begin = min(map(s.due_since, s.due_rows), default=None)
    return begin and begin + s.settings.unclaimed_time


RULES = (
    DiagnosisRule(
        name="queued-behind-stuck",
        proves="The turn is queued behind its agent's active turn, which is stuck.",
        rank=35,
        holds=_queued_behind_stuck,
        actor="{blocker_actor}",
        due=_blockers_due,
        fix=Remedy("the fix of the active turn", lambda s: judge(s.blocker).fix if s.blocker else None),
        root=lambda s: root_of(s.blocker),
    ),
    waiting_rule(
        name="queued-behind",
        proves="The turn is queued behind its agent's active turn, which is not stuck.",
        rank=35,
        holds=_queued_behind,
        actor="{blocker_actor}, for turn {blocker}",
        due=_blockers_due,
    ),
    DiagnosisRule(
        name="queued-on-idle",
        proves="The turn is queued although its agent has no active turn: it was not promoted.",
        rank=48,
        holds=_queued_on_idle,
        actor="the next poll of any worker, `cbx reap`, or the operator",
        fix=NUDGE_OR_REBUILD,
    ),
    waiting_rule(
        name="being-promoted",
        proves="Another system has just freed the agent, and promotes the turn in a second transaction.",
        rank=30,
        holds=_promotion,
        actor="the system that ran the previous turn",
    ),
    DiagnosisRule(
        name="no-live-worker",
        proves="Work has been due for more than {unclaimed}, and no live worker serves its target.",
        rank=55,
        holds=_no_live_worker,
        needs=(WORKERS,),
        actor="the operator: run `cbx worker run --target {target} --exec CMD`",
    ),
    DiagnosisRule(
        name="worker-cannot-work",
        proves="The worker that claimed the turn reports that it cannot work; or work has been due for more"
        " than {unclaimed}, and every live worker of its target reports that.",
        rank=56,
        holds=_cannot_work,
        actor="the operator: fix what the worker reports; it then continues automatically",
        needs=(WORKERS,),
    ),
    DiagnosisRule(
        name="lost-doorbell",
        proves="The turn has been due for more than {unclaimed}, and no worker has claimed it.",
        rank=50,
        holds=_lost_wakeup,
        needs=(LEASES, WORKERS),
        actor="a worker of target {target}, at its next poll or notification",
        fix=NUDGE,
    ),
    waiting_rule(
        name="workers-busy",
        proves="Work has been due for more than {unclaimed}, and every live worker of its target is at its"
        " concurrency limit.",
        rank=20,
        holds=_workers_busy,
        needs=(LEASES, WORKERS),
        actor="a worker of target {target}, when one of its turns ends",
    ),
    DiagnosisRule(
        name="never-entered",
        proves="A live worker claimed the turn more than {lease} ago and has not begun its first step.",
        rank=58,
        holds=_never_entered,
        actor="worker {owner}, or the operator, who reclaims the turn",
        fix=fenced_remedy("reclaim", "claimed, but never begun"),
    ),
    DiagnosisRule(
        name="retry-far-ahead",
        proves="The next try is further in the future than twice {backoff_cap}.",
        rank=46,
        holds=_retry_far,
        due=_first_retry,
        fix=fenced_remedy("requeue", "its next try is far ahead"),
    ),
    waiting_rule(
        name="retrying",
        proves="A try has failed, and the next one is due soon.",
        rank=20,
        holds=lambda s: tuple(_next_try(s, row) for row in _retries(s)) or None,
        actor="a worker of target {target}",
        due=_first_retry,
    ),
    DiagnosisRule(
        name="dispatched",
        proves=f"The turn was promoted or claimed a moment ago; next: {HEAD_MOVES['enter'].when}.",
        verdict="healthy",
        severity="ok",
        rank=20,
        holds=_dispatched,
        actor="a worker of target {target}",
        due=_claim_limit,
    ),
)
