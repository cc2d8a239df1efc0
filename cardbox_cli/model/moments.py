"""Instants that no calendar has: Postgres knows `infinity`, and years that a datetime cannot say.

Reading turns them into `EARLIEST` and `LATEST` (in SQL: the fragment `instant`), which leave room for a year
of arithmetic. Only here is told which they are, and how people see them.
"""

from datetime import UTC, datetime

EARLIEST = datetime(2, 1, 1, tzinfo=UTC)
LATEST = datetime(9998, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)


def unbounded(moment: datetime) -> str | None:
    """`infinity` or `-infinity` for an instant that stands for it, or lies as far away; else None."""
    if moment >= LATEST:
        return "infinity"
    return "-infinity" if moment <= EARLIEST else None
