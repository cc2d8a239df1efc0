"""Rules about the database itself: locks, and transactions that are read-only by default."""

from cardbox_cli.diagnosis import evidence as show
from cardbox_cli.diagnosis.registry import DiagnosisRule, Proof, RowEvidence
from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.limits import LOCK_HELD


def _database_lock(s: Snapshot) -> Proof:
    locks = (lock for lock in s.locks or () if lock.seconds > LOCK_HELD.value or lock.bars_reading)
    return tuple(show.lock(lock) for lock in locks) or None


def _read_only(s: Snapshot) -> Proof:
    """Prove that new connections cannot write, and that no worker with an older connection is known."""
    if s.read_only_by is None or s.worked_on or s.able_workers or s.agent_turn_id == "":
        return None
    if s.is_in_time and not s.due_rows:
        return None
    says = f"on, by the {s.read_only_by}"
    return (RowEvidence("pg_settings", "default_transaction_read_only", says), show.head(s))


RULES = (
    DiagnosisRule(
        name="database-lock",
        proves=f"Another session has blocked a row or table of the turn for more than {LOCK_HELD},"
        " or prevents everyone from reading it.",
        rank=100,
        holds=_database_lock,
        actor="the owner of database process {pids}: end its transaction",
    ),
    DiagnosisRule(
        name="database-read-only",
        proves="Transactions in the database are read-only by default, and no live worker has the turn"
        " or serves its target.",
        rank=98,
        holds=_read_only,
        actor="the owner of the database: set default_transaction_read_only to off, and restart the workers",
    ),
)
