"""Rules about the database itself, which keeps everybody from a turn: locks, and a ban on writing."""

from cardbox_cli.diagnosis import evidence as show
from cardbox_cli.diagnosis.registry import DiagnosisRule, Evidence, Proof
from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.limits import LOCK_HELD


def _database_lock(s: Snapshot) -> Proof:
    found = (lock for lock in s.locks or () if lock.seconds > LOCK_HELD.value or lock.bars_reading)
    return tuple(show.lock(lock) for lock in found) or None


def _read_only(s: Snapshot) -> Proof:
    """Nobody can write who connects now, and nobody is seen to who did before."""
    if s.read_only_by is None or s.worked_on or s.able_workers or s.agent_turn_id == "":
        return None
    if s.in_time and not s.due_rows:
        return None
    says = f"on, by the {s.read_only_by}"
    return (Evidence("pg_settings", "default_transaction_read_only", says), show.head(s))


RULES = (
    DiagnosisRule(
        name="database-lock",
        proves="Another session has been in the way of a row or a table of the turn for more than"
        f" {LOCK_HELD}, or lets nobody read it.",
        rank=100,
        holds=_database_lock,
        actor="the owner of database process {pids}: end its transaction",
    ),
    DiagnosisRule(
        name="database-read-only",
        proves="The database takes no writes, its transactions are read-only by default, and no live worker"
        " has the turn or serves its target.",
        rank=98,
        holds=_read_only,
        actor="the owner of the database: set default_transaction_read_only to off, and start workers anew",
    ),
)
