"""The class of diagnosis rules, and the list of all rules.

To add a rule, add an entry to the list of its subject in `rules/`. A rule examines one snapshot and reads
nothing. `why --all` examines only the turns that the queries of `suspects` find.
"""

from collections.abc import Callable
from datetime import datetime
from functools import cache, partial
from importlib import import_module
from typing import Literal

import msgspec

from cardbox_cli.diagnosis.snapshot import Snapshot

Verdict = Literal["healthy", "waiting", "ended", "stuck", "unknown"]
Severity = Literal["ok", "warning", "error"]
Command = tuple[str, ...]

# The actor for everything that is overdue.
REAPER = "`cbx reap`, or the next poll of any worker"

# Tables of cbx that the role may be unable to read. A rule's `needs` refers to them.
LEASES, RECORDS, WORKERS = "cbx.leases", "cbx.turns", "cbx.workers"

SUBJECTS = (
    "boxes",
    "configuration",
    "queue",
    "batches",
    "waits",
    "leases",
    "tools",
    "rows",
    "foreign",
    "database",
    "ends",
    "pace",
)


class RowEvidence(msgspec.Struct, frozen=True):
    """A row that proves a verdict: its table, its id, and a description of its content."""

    table: str
    row: str
    shows: str


Proof = tuple[RowEvidence, ...] | None


class Remedy(msgspec.Struct, frozen=True):
    """A command that frees a turn: as the documentation shows it, and built for one turn, or None."""

    shown: str
    build: Callable[[Snapshot], Command | None]


class DiagnosisRule(msgspec.Struct, frozen=True, kw_only=True):
    """A condition of a turn, with its verdict and its fix.

    `holds` returns the rows that prove the condition, or None. If several rules hold, the `stuck` one with
    the highest `rank` is the verdict. A rule with the verdict `seen` is never the verdict of a turn. A rule
    whose `aside` is true is only a warning. cbx skips rules that need unreadable tables (`needs`). Only rules
    with `after_end` apply to turns that have ended.

    `proves` may contain settings in braces, for example {lease}. `actor` may contain the placeholders of
    `verdict.fill_actor`. `due` returns the time at which the state changes automatically, and `root` returns
    the id of the turn that is the cause.
    """

    name: str
    proves: str
    holds: Callable[[Snapshot], Proof]
    rank: int
    verdict: Verdict | Literal["seen"] = "stuck"
    actor: str | Callable[[Snapshot], str] | None = "the operator"
    severity: Severity = "error"
    due: Callable[[Snapshot], datetime | None] = lambda _: None
    fix: Remedy | None = None
    root: Callable[[Snapshot], str | None] = lambda _: None
    aside: Callable[[Snapshot], bool] = lambda _: False
    after_end: bool = False
    needs: tuple[str, ...] = ()


waiting_rule = partial(DiagnosisRule, verdict="waiting", severity="ok")
seen_rule = partial(DiagnosisRule, verdict="seen", severity="warning")


@cache
def rules() -> tuple[DiagnosisRule, ...]:
    """Return all rules. The rules nearest to a cause come first."""
    all_rules = [
        rule for subject in SUBJECTS for rule in import_module(f"{__package__}.rules.{subject}").RULES
    ]
    return tuple(sorted(all_rules, key=lambda rule: -rule.rank))
