"""Rules about turns that wait to be run: in a queue, for a wakeup, for a worker, for a lock."""

from datetime import datetime, timedelta

from cardbox_cli.diagnosis import evidence as show
from cardbox_cli.diagnosis.registry import LEASES, WORKERS, DiagnosisRule, Evidence, Proof
from cardbox_cli.diagnosis.rules.waits import cause, root_of
from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.diagnosis.verdict import NUDGE, NUDGE_OR_REBUILD, OF_BLOCKER, fenced, judge
from cardbox_cli.model.execution.turns import DUE, HEAD_MOVES, IDLE, PROCESSING, InboxRow

# --- queued


def _behind(s: Snapshot) -> bool:
    return s.queued and s.blocker is not None


def _blocker_is_stuck(s: Snapshot) -> bool:
    return s.blocker is not None and judge(s.blocker).verdict in ("stuck", "unknown")


def _behind_evidence(s: Snapshot) -> tuple[Evidence, ...]:
    assert s.turn_row is not None
    queue = f", one of {s.queue_length} in the queue of agent {s.agent_id}"
    return (show.row(s, s.turn_row, queue), show.head(s))


def _queued_behind_stuck(s: Snapshot) -> Proof:
    if not _behind(s) or not _blocker_is_stuck(s) or s.blocker is None or s.cycle:
        return None
    return (*_behind_evidence(s), *cause(s.blocker))


def _blockers_due(s: Snapshot) -> datetime | None:
    return None if s.blocker is None else judge(s.blocker).due_at


def _agent_is_idle(s: Snapshot) -> bool:
    return s.head is None or s.head.status == IDLE


def _queued_on_idle(s: Snapshot) -> Proof:
    if not s.queued or s.turn_row is None or not _agent_is_idle(s) or _settling(s):
        return None
    return (show.head(s), show.row(s, s.turn_row))


def _settling(s: Snapshot) -> bool:
    """Other systems end a turn and promote the next one in two transactions."""
    if s.keeps_turns or s.head is None:
        return False
    return s.age(s.head.updated_at) <= timedelta(seconds=s.settings.poll)


def _promotion(s: Snapshot) -> Proof:
    return (show.head(s),) if s.queued and _agent_is_idle(s) and _settling(s) else None


# --- promoted


def _no_live_worker(s: Snapshot) -> Proof:
    if not s.unclaimed or not s.unserved or s.running:
        return None
    return (*_late(s), *show.workers(s))


def _cannot_work(s: Snapshot) -> Proof:
    """The worker that claimed the turn, or every live one that could, says why it cannot."""
    if s.dispatched and s.unable_owner:
        return (show.head(s), show.lease(s, s.carrier), *show.workers(s))
    if not s.unclaimed or s.running or not s.workers_are_unable:
        return None
    return (*_late(s), *show.workers(s))


def _lost_wakeup(s: Snapshot) -> Proof:
    if not s.unclaimed or s.unserved or s.workers_are_busy or s.workers_are_unable or not s.dispatched:
        return None
    return (show.head(s), *_late(s), *show.workers(s))


def _workers_busy(s: Snapshot) -> Proof:
    if not s.unclaimed or s.running or not s.workers_are_busy:
        return None
    loads = tuple(
        Evidence(
            "cbx.leases",
            worker.worker_id,
            f"{s.loads.get(worker.worker_id, 0)} claimed, takes {worker.concurrency}",
        )
        for worker in s.live_workers[-3:]
    )
    return (*_late(s), *loads)


def _late(s: Snapshot) -> tuple[Evidence, ...]:
    return tuple(show.due_row(s, row) for row in s.unclaimed)


def _never_entered(s: Snapshot) -> Proof:
    """A worker holds the row and lives, but has not begun."""
    lease = s.lease_of(s.carrier)
    if not s.dispatched or lease is None or lease.expires_at <= s.now or s.unable_owner:
        return None
    if s.age(lease.claimed_at) <= s.settings.lease_time:
        return None
    claimed = Evidence("cbx.leases", lease.inbox_id, f"claimed {show.instant(s, lease.claimed_at)}")
    return (show.head(s), show.lease(s, s.carrier), claimed)


def _retry_far(s: Snapshot) -> Proof:
    limit = s.now + timedelta(seconds=2 * s.settings.backoff_cap)
    return tuple(_next_try(s, row) for row in _retries(s) if row.next_retry_at > limit) or None


def _retries(s: Snapshot) -> tuple[InboxRow, ...]:
    if s.at_head is None:
        return ()
    return tuple(row for row in s.rows if row.status in DUE and row not in s.due_rows)


def _next_try(s: Snapshot, row: InboxRow) -> Evidence:
    return show.row(s, row, f", next try {show.instant(s, row.next_retry_at)}")


def _first_retry(s: Snapshot) -> datetime | None:
    return min((row.next_retry_at for row in _retries(s)), default=None)


def _dispatched(s: Snapshot) -> Proof:
    """Promoted a moment ago, or claimed a moment ago."""
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


def _claim_is_late(s: Snapshot) -> datetime | None:
    if not s.due_rows:
        return None
    return min(s.due_since(row) for row in s.due_rows) + s.settings.unclaimed_time


RULES = (
    DiagnosisRule(
        name="queued-behind-stuck",
        proves="The agent is at another turn, and that one is stuck.",
        rank=35,
        holds=_queued_behind_stuck,
        actor="{blocker_actor}",
        due=_blockers_due,
        fix=OF_BLOCKER,
        root=lambda s: root_of(s.blocker),
    ),
    DiagnosisRule(
        name="queued-behind",
        proves="The agent is at another turn, which goes on; this one is next or behind others.",
        verdict="waiting",
        severity="ok",
        rank=35,
        holds=lambda s: _behind_evidence(s) if _behind(s) and not _blocker_is_stuck(s) else None,
        actor="{blocker_actor}, for turn {blocker}",
        due=_blockers_due,
    ),
    DiagnosisRule(
        name="queued-on-idle",
        proves="The turn is queued although its agent is at none: nobody promoted it.",
        rank=48,
        holds=_queued_on_idle,
        actor="whoever promotes: a worker's next look, `cbx reap`, or the operator",
        fix=NUDGE_OR_REBUILD,
    ),
    DiagnosisRule(
        name="being-promoted",
        proves="Its agent has just become idle; another system promotes in a transaction of its own.",
        verdict="waiting",
        severity="ok",
        rank=30,
        holds=_promotion,
        actor="the system that ran the turn before",
    ),
    DiagnosisRule(
        name="no-live-worker",
        proves="Work has been due for more than {unclaimed}, and no live worker serves its target.",
        rank=55,
        holds=_no_live_worker,
        needs=(WORKERS,),
        actor="the operator: start a worker, `cbx worker run --target {target} --exec CMD`",
    ),
    DiagnosisRule(
        name="worker-cannot-work",
        proves="The worker that claimed the turn says why it cannot work; or work is due for longer than"
        " {unclaimed}, and every live worker of its target says that.",
        rank=56,
        holds=_cannot_work,
        actor="the operator: mend what the worker says, it goes on by itself",
        needs=(WORKERS,),
    ),
    DiagnosisRule(
        name="lost-doorbell",
        proves="The turn is due for longer than {unclaimed}, and no worker has claimed it.",
        rank=50,
        holds=_lost_wakeup,
        needs=(LEASES, WORKERS),
        actor="a worker of target {target}, once it looks or is notified",
        fix=NUDGE,
    ),
    DiagnosisRule(
        name="workers-busy",
        proves="Work has been due for more than {unclaimed}, and every live worker of its target has as many"
        " rows as it takes.",
        verdict="waiting",
        severity="ok",
        rank=20,
        holds=_workers_busy,
        needs=(LEASES, WORKERS),
        actor="a worker of target {target}, when one of its turns is done",
    ),
    DiagnosisRule(
        name="never-entered",
        proves="A live worker claimed the turn longer ago than {lease} and has not begun its first step.",
        rank=58,
        holds=_never_entered,
        actor="worker {owner}, or the operator, who takes the claim away",
        fix=fenced("reclaim", "claimed and never entered"),
    ),
    DiagnosisRule(
        name="retry-far-ahead",
        proves="The next try is further away than twice {backoff_cap}.",
        rank=46,
        holds=_retry_far,
        due=_first_retry,
        fix=fenced("requeue", "its next try is far ahead"),
    ),
    DiagnosisRule(
        name="retrying",
        proves="A try has failed, and the next one is due soon.",
        verdict="waiting",
        severity="ok",
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
        due=_claim_is_late,
    ),
)
