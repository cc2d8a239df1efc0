"""Rules about message types and states of rows and heads that other systems wrote and cbx does not know.

Only the system that wrote such rows knows what they mean, so no rule has a fix that would change them.
"""

from cardbox_cli.diagnosis import evidence as show
from cardbox_cli.diagnosis.registry import DiagnosisRule, Proof, waiting_rule
from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.diagnosis.verdict import REBUILD
from cardbox_cli.execution.queue.messages import is_turn
from cardbox_cli.limits import FOREIGN_SILENCE
from cardbox_cli.model.execution.turns import ACTIVE, IDLE, INBOX_STATUSES, OPEN, QUEUED


def _head_without_turn(s: Snapshot) -> Proof:
    head = s.head
    if head is None or head.status not in ACTIVE or head.active_agent_turn_id:
        return None
    return (show.head(s), *(show.row(s, row) for row in s.rows))


def _not_understood(s: Snapshot) -> Proof:
    # cbx promotes only queued rows of turns.
    rows = tuple(
        show.row(s, row)
        for row in s.rows
        if row.status not in INBOX_STATUSES or (row.status == QUEUED and not is_turn(row))
    )
    strange = s.head is not None and s.head.status not in (IDLE, *ACTIVE)
    # A head whose active turn is another one does not block this turn.
    blocks = s.head is not None and s.head.active_agent_turn_id in (s.agent_turn_id, None, "")
    return ((show.head(s),) if strange and blocks else ()) + rows or None


def _foreign_carrier(s: Snapshot) -> Proof:
    """Return the rows of another system's types, if only such rows carry the turn."""
    if not s.is_foreign or s.running or s.suspended:
        return None
    rows = tuple(show.row(s, row) for row in s.foreign_rows if row.status in OPEN or s.dispatched)
    return (*rows, show.head(s)) if rows else None


RULES = (
    DiagnosisRule(
        name="not-understood",
        proves="The head, or a row of the turn, is in a state that cbx does not know.",
        verdict="unknown",
        rank=94,
        holds=_not_understood,
        actor="the system that wrote it, or the operator",
    ),
    DiagnosisRule(
        name="head-without-turn",
        proves="The agent is not idle, but its head names no turn: no worker can continue or reclaim it.",
        rank=93,
        holds=_head_without_turn,
        fix=REBUILD,
    ),
    DiagnosisRule(
        name="silent-elsewhere",
        proves="Only rows of a type that another system handles carry the turn, and none of it was written"
        f" in the last {FOREIGN_SILENCE}.",
        verdict="unknown",
        severity="warning",
        rank=24,
        holds=lambda s: _foreign_carrier(s) if s.silent else None,
        actor="the system that handles rows of that type",
    ),
    waiting_rule(
        name="handled-elsewhere",
        proves="Only rows of a type that another system handles carry the turn: that system must act.",
        rank=24,
        holds=lambda s: None if s.silent else _foreign_carrier(s),
        actor="the system that handles rows of that type",
    ),
)
