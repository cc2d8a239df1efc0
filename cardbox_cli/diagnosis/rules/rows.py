"""Rules about rows that contradict each other: wrong epochs; missing, consumed or dead rows."""

from cardbox_cli.diagnosis import evidence as show
from cardbox_cli.diagnosis.registry import LEASES, RECORDS, Command, DiagnosisRule, Proof, Remedy, RowEvidence
from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.diagnosis.verdict import REBUILD, fenced_command, fenced_remedy
from cardbox_cli.execution.queue.messages import is_turn
from cardbox_cli.execution.queue.promotion import row_problem
from cardbox_cli.limits import POISON
from cardbox_cli.model.execution.turns import CONSUMED, ERROR, OPEN, SKIPPED, InboxRow, Lease


def _head_lost(s: Snapshot) -> Proof:
    entered = s.turn_row is None and not s.is_foreign and bool(s.steps)
    carried = s.turn_row is not None and s.promoted
    if s.head is not None or not (carried or s.waiting or entered):
        return None
    return (show.head(s), *(show.row(s, row) for row in s.promoted))


def _row_of_wrong_epoch(s: Snapshot) -> InboxRow | None:
    """Return the promoted row of the turn if its epoch is not the head's, or if the turn is not active."""
    row = s.turn_row
    if s.head is None or row is None or row not in s.promoted or s.being_ended:
        return None
    return row if s.head_status is None or row.turn_epoch != s.epoch else None


def _lease_of_wrong_epoch(s: Snapshot) -> Lease | None:
    """Return the lease on the active turn if its epoch is not the head's."""
    if s.head_status not in ("dispatched", "running"):
        return None
    lease = s.lease_of(s.carrier)
    return lease if lease is not None and lease.turn_epoch != s.epoch else None


def _wrong_epoch(s: Snapshot) -> Proof:
    row, lease = _row_of_wrong_epoch(s), _lease_of_wrong_epoch(s)
    if row is None and lease is None:
        return None
    proof = [show.head(s)]
    if row is not None:
        proof.append(show.row(s, row, _epoch_note(s, row.turn_epoch)))
    if lease is not None:
        proof.append(show.orphan_lease(s, lease))
    return (*proof, *show.last_audit(s))


def _epoch_note(s: Snapshot, epoch: int) -> str:
    if epoch == s.epoch:
        return ", of a turn that is not active"
    return ", in the past" if epoch < s.epoch else ", in the future"


def _row_consumed(s: Snapshot) -> Proof:
    """Prove that the turn's own row is consumed, no other row carries it, and the turn has not ended."""
    row = s.turn_row
    if row is None or row.status not in (CONSUMED, SKIPPED) or s.carrier is not None:
        return None
    if s.head_status is None or s.dispatched or (s.running and s.silent):
        return (show.head(s), show.row(s, row), show.record(s))
    return None


def _edge_without_row(s: Snapshot) -> Proof:
    if s.turn_row is not None or s.is_foreign or not s.requests:
        return None
    if s.suspended or (s.running and not s.silent):
        return None
    edge = s.requests[0]
    created = show.instant(s, edge.created_at)
    shows = f"{edge.primitive}/{edge.edge_phase} of {edge.source_agent_id}, created {created}"
    return (RowEvidence("state.execution_edges", edge.edge_id, shows), show.absent_row(s), show.head(s))


def _row_and_edge_lost(s: Snapshot) -> Proof:
    if s.turn_row is not None or s.is_foreign or s.requests or not s.dispatched:
        return None
    return (show.head(s), show.absent_row(s))


def _dead_rows(s: Snapshot) -> tuple[InboxRow, ...]:
    """Return the rows that the turn needs, but that no worker will try again."""
    waiting = {call.tool_call_id for call in s.open_calls}
    dead = (row for row in s.rows if row.status == ERROR)
    return tuple(row for row in dead if is_turn(row) or row.correlation_id in waiting)


def _poison(s: Snapshot) -> Proof:
    if s.head_status is None or s.worked_on:
        return None
    worst = tuple(row for row in s.rows if row.status in OPEN and row.retry_count >= POISON.value)
    return tuple(show.row(s, row) for row in worst) or None


def _unreadable(s: Snapshot) -> Proof:
    row = s.turn_row
    problem = row_problem(row) if s.queued and row is not None else None
    return None if row is None or problem is None else (show.row(s, row, f"; {problem[1]}"),)


def _retry_or_requeue(s: Snapshot) -> Command:
    dead = _dead_rows(s)[0]
    if is_turn(dead) and s.head_status is not None:
        return fenced_command("requeue", s, "its row is dead")
    return ("inbox", "retry", dead.inbox_id)


def _requeue_or_fail(s: Snapshot) -> Command:
    """Requeue an active turn, whose head has the content of the lost row; fail any other."""
    verb = "requeue" if s.head_status is not None else "fail"
    return fenced_command(verb, s, "its inbox row is gone")


RULES = (
    DiagnosisRule(
        name="head-lost",
        proves="The turn was promoted, but its agent has no head.",
        rank=95,
        holds=_head_lost,
        fix=REBUILD,
    ),
    DiagnosisRule(
        name="wrong-epoch",
        proves="The promoted row or the lease of the turn has a different epoch from the head, or the turn is"
        " not active: no worker can begin it.",
        rank=80,
        holds=_wrong_epoch,
        fix=fenced_remedy("requeue", "its row is of another epoch"),
    ),
    DiagnosisRule(
        name="consumed-not-applied",
        proves="The row of the turn is consumed, but the turn has not ended: no worker will continue it.",
        rank=77,
        holds=_row_consumed,
        needs=(RECORDS,),
        fix=fenced_remedy("requeue", "its row was consumed before it ran"),
    ),
    DiagnosisRule(
        name="edge-without-row",
        proves="The turn was dispatched, but has no inbox row that would make a worker run it.",
        rank=76,
        holds=_edge_without_row,
        needs=(RECORDS,),
        fix=Remedy("`cbx turn requeue`; `cbx turn fail` if the turn is not active", _requeue_or_fail),
    ),
    DiagnosisRule(
        name="row-lost",
        proves="The turn is active, but has neither an inbox row nor an execution edge.",
        rank=75,
        holds=_row_and_edge_lost,
        fix=fenced_remedy("requeue", "its inbox row is gone"),
    ),
    DiagnosisRule(
        name="dead-letter",
        proves="A row of the turn has failed permanently, but the turn has not ended.",
        rank=74,
        holds=lambda s: tuple(show.row(s, row) for row in _dead_rows(s)) or None,
        actor="the operator, after fixing the cause of its last error",
        fix=Remedy(
            "`cbx inbox retry`; `cbx turn requeue` if the turn is active and its own row is dead",
            _retry_or_requeue,
        ),
    ),
    DiagnosisRule(
        name="row-unreadable",
        proves="The row of the queued turn is invalid: the turn will fail when its agent reaches it.",
        rank=73,
        holds=_unreadable,
        fix=Remedy("`cbx turn stop`", lambda s: ("turn", "stop", s.agent_turn_id)),
    ),
    DiagnosisRule(
        name="poison-retry",
        proves=f"A row of the turn has failed {POISON} or more.",
        severity="warning",
        rank=72,
        holds=_poison,
        needs=(LEASES,),
        fix=fenced_remedy("fail", "every try failed"),
    ),
)
