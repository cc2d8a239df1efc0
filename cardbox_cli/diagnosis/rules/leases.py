"""Rules about the worker of a turn: crashed claims, silence while running, orphan leases."""

from datetime import datetime

from cardbox_cli.diagnosis import evidence as show
from cardbox_cli.diagnosis.registry import LEASES, REAPER, Command, DiagnosisRule, Proof, Remedy, RowEvidence
from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.diagnosis.verdict import REAP, fenced_command, reaper_rule
from cardbox_cli.limits import FOREIGN_SILENCE
from cardbox_cli.model.execution.turns import PROCESSING, InboxRow


def _is_expired(s: Snapshot, row: InboxRow) -> bool:
    lease = s.lease_of(row)
    return lease is not None and not s.is_live(lease)


def _is_abandoned(s: Snapshot, row: InboxRow) -> bool:
    """Return True if a row has no lease, and was claimed too long ago or at an unknown time."""
    if s.lease_of(row) is not None or s.being_ended:
        return False
    return row.processed_at is None or s.age(row.processed_at) > FOREIGN_SILENCE.duration


def _crashed_rows(s: Snapshot) -> tuple[InboxRow, ...]:
    """Return the claimed rows without a live worker, except the row that carries a running turn."""
    claimed = (row for row in s.rows if row.status == PROCESSING and not (s.running and row is s.carrier))
    return tuple(row for row in claimed if _is_expired(s, row) or _is_abandoned(s, row))


def _crashed_claim(s: Snapshot) -> Proof:
    proof: list[RowEvidence] = []
    for row in (rows := _crashed_rows(s)):
        proof += (show.row(s, row, f", claimed {show.instant(s, row.processed_at)}"), show.lease(s, row))
    return (show.head(s), *proof, *_owner(s, rows[0])) if rows else None


def _owner(s: Snapshot, row: InboxRow) -> tuple[RowEvidence, ...]:
    lease = s.lease_of(row)
    entry = next((each for each in s.workers if lease is not None and each.worker_id == lease.owner), None)
    if lease is None:
        return ()
    if entry is None:
        return (RowEvidence("cbx.workers", lease.owner, "no such row"),)
    alive, last = "alive" if entry.live else "dead", show.instant(s, entry.heartbeat_at)
    ended = ", which has ended on this machine" if entry.worker_id in s.dead_owners else ""
    shows = f"{alive}, last heartbeat {last}, on {entry.host}, process {entry.pid}{ended}"
    return (RowEvidence("cbx.workers", lease.owner, shows),)


def _worker_is_dead(s: Snapshot) -> Proof:
    """Prove that the worker's lease on the running turn has expired: it has certainly lost the turn."""
    if not s.running or s.carrier is None or not _is_expired(s, s.carrier):
        return None
    return (show.head(s), show.lease(s, s.carrier), *_owner(s, s.carrier))


def _worker_is_silent(s: Snapshot) -> Proof:
    """Prove that a run without a lease wrote nothing for so long that other systems consider it dead."""
    if not s.running or s.lease_of(s.carrier) is not None or not s.silent:
        return None
    row = show.row(s, s.carrier) if s.carrier is not None else show.absent_row(s)
    return (show.head(s), row, show.lease(s, s.carrier), *_last_step(s))


def _last_step(s: Snapshot) -> tuple[RowEvidence, ...]:
    if not s.steps:
        return ()
    step = s.steps[-1]
    shows = f"{step.status}, started {show.instant(s, step.started_at)}"
    return (RowEvidence("state.agent_steps", step.step_id, shows),)


def _running(s: Snapshot) -> Proof:
    if not s.running or not (s.worked_on or (s.lease_of(s.carrier) is None and not s.silent)):
        return None
    return (show.head(s), show.lease(s, s.carrier), *_last_step(s))


def _lease_ends(s: Snapshot) -> datetime | None:
    lease = s.lease_of(s.carrier)
    if lease is not None:
        return lease.expires_at
    return s.last_sign + FOREIGN_SILENCE.duration if s.last_sign else None


def _orphan_lease(s: Snapshot) -> Proof:
    rows = {row.inbox_id: row for row in s.rows}
    claimed = {row.inbox_id for row in s.rows if row.status == PROCESSING}
    of_turn = (lease for lease in s.leases if (lease.agent_turn_id or lease.inbox_id) == s.agent_turn_id)
    orphans = [lease for lease in of_turn if lease.inbox_id not in claimed]
    named = (
        show.row(s, rows[lease.inbox_id])
        if lease.inbox_id in rows
        else RowEvidence("state.agent_inbox", lease.inbox_id, "no such row")
        for lease in orphans
    )
    return (*(show.orphan_lease(s, lease) for lease in orphans), *named) or None


def _reclaim_remedy(reason: str) -> Remedy:
    def build(s: Snapshot) -> Command | None:
        row = s.carrier
        carries = (s.dispatched or s.running) and row is not None and row.turn_epoch == s.epoch
        stuck = _crashed_rows(s)
        if s.keeps_turns and not carries and stuck and all(_is_expired(s, row) for row in stuck):
            return REAP.build(s)
        return fenced_command("reclaim" if carries else "requeue", s, reason)

    shown = "`cbx turn reclaim`; `cbx turn requeue` if no row carries it, `cbx reap` for a claimed report"
    return Remedy(shown, build)


RULES = (
    DiagnosisRule(
        name="crashed-claim",
        proves="A row is claimed, but its lease ended more than {poll} ago, or its owner's process has ended"
        " on this machine; or it has no lease, and was"
        f" claimed more than {FOREIGN_SILENCE} ago or at an unknown time.",
        rank=70,
        holds=_crashed_claim,
        needs=(LEASES,),
        actor=f"{REAPER}, or the operator",
        fix=_reclaim_remedy("its claim has crashed"),
        aside=lambda s: s.running and s.worked_on,
    ),
    DiagnosisRule(
        name="dead-while-running",
        proves="The turn is running, but its worker is dead: its lease ended more than {poll} ago, or its"
        " process has ended on this machine.",
        rank=69,
        holds=_worker_is_dead,
        actor=f"{REAPER}, or the operator",
        fix=_reclaim_remedy("its worker is dead"),
    ),
    DiagnosisRule(
        name="suspect-while-running",
        proves="The turn is running without a lease of cbx, and nothing was written for it in"
        f" {FOREIGN_SILENCE}: its worker may be dead.",
        severity="warning",
        rank=68,
        holds=_worker_is_silent,
        needs=(LEASES,),
        actor="the system that runs it, whose worker cbx does not fence, or the operator",
        fix=_reclaim_remedy("its worker is silent"),
    ),
    DiagnosisRule(
        name="running",
        proves="A worker runs the turn: its lease is valid or ended less than {poll} ago, or it is a worker"
        " of another system, which cbx does not fence, and wrote recently.",
        verdict="healthy",
        severity="ok",
        rank=20,
        holds=_running,
        needs=(LEASES,),
        actor="worker {owner}",
        due=_lease_ends,
    ),
    reaper_rule(
        name="orphan-lease",
        proves="A lease exists on a row that is not claimed.",
        severity="warning",
        rank=25,
        holds=_orphan_lease,
        aside=lambda s: s.worked_on,
        after_end=True,
    ),
)
