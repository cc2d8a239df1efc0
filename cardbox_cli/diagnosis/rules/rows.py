"""Rules about rows that contradict each other: epochs, rows that are missing, done with or dead too early."""

from cardbox_cli.diagnosis import evidence as show
from cardbox_cli.diagnosis.registry import LEASES, RECORDS, Command, DiagnosisRule, Evidence, Proof, Remedy
from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.diagnosis.verdict import REBUILD, fenced, fenced_command
from cardbox_cli.execution.queue.messages import is_turn
from cardbox_cli.execution.queue.promotion import unreadable
from cardbox_cli.limits import POISON
from cardbox_cli.model.execution.turns import CONSUMED, ERROR, OPEN, SKIPPED, InboxRow, Lease


def _head_lost(s: Snapshot) -> Proof:
    entered = s.turn_row is None and not s.is_foreign and bool(s.steps)
    carried = s.turn_row is not None and s.promoted
    if s.head is not None or not (carried or s.waiting or entered):
        return None
    return (show.head(s), *(show.row(s, row) for row in s.promoted))


def _misdated_row(s: Snapshot) -> InboxRow | None:
    """The promoted row of the turn, where its epoch is not the head's or the agent is not at the turn."""
    row = s.turn_row
    if s.head is None or row is None or row not in s.promoted or s.being_ended:
        return None
    return row if s.at_head is None or row.turn_epoch != s.epoch else None


def _misdated_lease(s: Snapshot) -> Lease | None:
    """The lease that carries the active turn, where its epoch is not the head's."""
    if s.at_head not in ("dispatched", "running"):
        return None
    lease = s.lease_of(s.carrier)
    return lease if lease is not None and lease.turn_epoch != s.epoch else None


def _wrong_epoch(s: Snapshot) -> Proof:
    row, lease = _misdated_row(s), _misdated_lease(s)
    if row is None and lease is None:
        return None
    proof = [show.head(s)]
    if row is not None:
        proof.append(show.row(s, row, _where(s, row.turn_epoch)))
    if lease is not None:
        proof.append(show.orphan_lease(s, lease))
    return (*proof, *show.last_audit(s))


def _where(s: Snapshot, epoch: int) -> str:
    if epoch == s.epoch:
        return ", of a turn that the agent is not at"
    return ", in the past" if epoch < s.epoch else ", in the future"


def _consumed(s: Snapshot) -> Proof:
    """The row that asked for the turn is done with, nothing else carries it, and the turn has not ended."""
    row = s.turn_row
    if row is None or row.status not in (CONSUMED, SKIPPED) or s.carrier is not None:
        return None
    if s.at_head is None or s.dispatched or (s.running and s.silent):
        return (show.head(s), show.row(s, row), show.record(s))
    return None


def _edge_alone(s: Snapshot) -> Proof:
    """The request is there and the row that asked for it is not."""
    if s.turn_row is not None or s.is_foreign or not s.requests or s.suspended:
        return None
    if s.running and not s.silent:
        return None
    edge = s.requests[0]
    made = show.instant(s, edge.created_at)
    shows = f"{edge.primitive}/{edge.edge_phase} of {edge.source_agent_id}, made {made}"
    return (Evidence("state.execution_edges", edge.edge_id, shows), show.absent_row(s), show.head(s))


def _row_alone_is_gone(s: Snapshot) -> Proof:
    """The agent is at the turn, and neither its row nor its request is there."""
    if s.turn_row is not None or s.is_foreign or s.requests or not s.dispatched:
        return None
    return (show.head(s), show.absent_row(s))


def _dead(s: Snapshot) -> tuple[InboxRow, ...]:
    """The rows that nobody will try again, though the turn needs them."""
    waiting = {call.tool_call_id for call in s.open_calls}
    dead = (row for row in s.rows if row.status == ERROR)
    return tuple(row for row in dead if is_turn(row) or row.correlation_id in waiting)


def _poison(s: Snapshot) -> Proof:
    if s.at_head is None or s.worked_on:
        return None
    worst = tuple(row for row in s.rows if row.status in OPEN and row.retry_count >= POISON.value)
    return tuple(show.row(s, row) for row in worst) or None


def _unreadable(s: Snapshot) -> Proof:
    """What its agent would come to and refuse, though it waits in the queue as if it could be run."""
    row = s.turn_row
    problem = unreadable(row) if s.queued and row is not None else None
    return None if row is None or problem is None else (show.row(s, row, f"; {problem[1]}"),)


def _again(s: Snapshot) -> Command:
    dead = _dead(s)[0]
    if is_turn(dead) and s.at_head is not None:
        return fenced_command("requeue", s, "its row is dead")
    return ("inbox", "retry", dead.inbox_id)


def _make_anew(s: Snapshot) -> Command:
    """The head of an active turn knows what its row held; of one that is not active nobody does."""
    verb = "requeue" if s.at_head is not None else "fail"
    return fenced_command(verb, s, "its inbox row is gone")


RULES = (
    DiagnosisRule(
        name="head-lost",
        proves="The turn was promoted, and its agent has no head.",
        rank=95,
        holds=_head_lost,
        fix=REBUILD,
    ),
    DiagnosisRule(
        name="wrong-epoch",
        proves="The promoted row or the lease of the turn is of another epoch than the head, stale or future,"
        " or the agent is not at the turn: no worker may enter it.",
        rank=80,
        holds=_wrong_epoch,
        fix=fenced("requeue", "its row is of another epoch"),
    ),
    DiagnosisRule(
        name="consumed-not-applied",
        proves="The row of the turn is consumed, and the turn has not ended: nobody will go on with it.",
        rank=77,
        holds=_consumed,
        needs=(RECORDS,),
        fix=fenced("requeue", "its row was consumed before it ran"),
    ),
    DiagnosisRule(
        name="edge-without-row",
        proves="The turn was asked for, and there is no inbox row that would make a worker run it.",
        rank=76,
        holds=_edge_alone,
        needs=(RECORDS,),
        fix=Remedy("`cbx turn requeue`; `cbx turn fail` where the agent is not at the turn", _make_anew),
    ),
    DiagnosisRule(
        name="row-lost",
        proves="The agent is at the turn, and neither an inbox row nor a request of it is there.",
        rank=75,
        holds=_row_alone_is_gone,
        fix=fenced("requeue", "its inbox row is gone"),
    ),
    DiagnosisRule(
        name="dead-letter",
        proves="A row of the turn was given up, and the turn has not ended.",
        rank=74,
        holds=lambda s: tuple(show.row(s, row) for row in _dead(s)) or None,
        actor="the operator, after the cause of its last error is gone",
        fix=Remedy(
            "`cbx inbox retry`; `cbx turn requeue` where the agent is at the turn and its own row is dead",
            _again,
        ),
    ),
    DiagnosisRule(
        name="row-unreadable",
        proves="The row of the queued turn does not say what to run: it fails when its agent comes to it.",
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
        fix=fenced("fail", "every try of it failed"),
    ),
)
