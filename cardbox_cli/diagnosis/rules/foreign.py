"""Rules about what other systems wrote and cbx does not know: types of messages, states of rows and heads.

What such rows mean their owner knows; none of these rules has a fix that would change them.
"""

from cardbox_cli.diagnosis import evidence as show
from cardbox_cli.diagnosis.registry import DiagnosisRule, Proof
from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.diagnosis.verdict import REBUILD
from cardbox_cli.execution.queue.messages import is_turn
from cardbox_cli.limits import FOREIGN_SILENCE
from cardbox_cli.model.execution.turns import ACTIVE, IDLE, INBOX_STATUSES, OPEN, QUEUED, InboxRow


def _head_without_turn(s: Snapshot) -> Proof:
    head = s.head
    if head is None or head.status not in ACTIVE or head.active_agent_turn_id:
        return None
    return (show.head(s), *(show.row(s, row) for row in s.rows))


def _not_understood(s: Snapshot) -> Proof:
    rows = tuple(show.row(s, row) for row in s.rows if _is_strange(row))
    strange = s.head is not None and s.head.status not in (IDLE, *ACTIVE) and _is_at(s)
    return ((show.head(s),) if strange else ()) + rows or None


def _is_at(s: Snapshot) -> bool:
    """Whether the agent is at the turn, or its head keeps it from the turn without naming another."""
    assert s.head is not None
    return s.head.active_agent_turn_id in (s.agent_turn_id, None, "")


def _is_strange(row: InboxRow) -> bool:
    """A status that nobody knows, or a queue that nobody promotes from."""
    return row.status not in INBOX_STATUSES or (row.status == QUEUED and not is_turn(row))


def _elsewhere(s: Snapshot) -> Proof:
    """An open row of another system's type is all that the turn goes on by."""
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
        proves="The agent is not idle, and its head names no turn: nobody can go on, or take it back.",
        rank=93,
        holds=_head_without_turn,
        fix=REBUILD,
    ),
    DiagnosisRule(
        name="silent-elsewhere",
        proves="Only rows of a type that another system knows carry the turn, and nothing of it was written"
        f" for {FOREIGN_SILENCE}.",
        verdict="unknown",
        severity="warning",
        rank=24,
        holds=lambda s: _elsewhere(s) if s.silent else None,
        actor="the system that handles rows of that type",
    ),
    DiagnosisRule(
        name="handled-elsewhere",
        proves="Rows of a type that another system knows carry the turn: it is that system's to act.",
        verdict="waiting",
        severity="ok",
        rank=24,
        holds=lambda s: None if s.silent else _elsewhere(s),
        actor="the system that handles rows of that type",
    ),
)
