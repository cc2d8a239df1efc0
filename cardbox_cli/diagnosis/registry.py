"""What a rule of diagnosis is, and the one list of them.

Adding a rule is adding one entry to the list of its subject in `rules/`. A rule looks at one snapshot and
reads nothing itself. `why --all` asks only about the turns that the queries of `suspects` find.
"""

from collections.abc import Callable
from datetime import datetime
from functools import cache
from importlib import import_module
from typing import Literal

import msgspec

from cardbox_cli.diagnosis.snapshot import Snapshot

Verdict = Literal["healthy", "waiting", "ended", "stuck", "unknown"]
Severity = Literal["ok", "warning", "error"]
Command = tuple[str, ...]

# Who acts on what is overdue.
REAPER = "`cbx reap` or any worker's next look"

# Tables of cbx's own that a role may be kept from, as `needs` names them.
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


class Evidence(msgspec.Struct, frozen=True):
    """A row that proves something: its table, its id, and what it shows."""

    table: str
    row: str
    shows: str


Proof = tuple[Evidence, ...] | None


class Remedy(msgspec.Struct, frozen=True):
    """The command that helps: as documentation shows it, and for one turn, where there is one."""

    shown: str
    build: Callable[[Snapshot], Command | None]


class DiagnosisRule(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that may hold of a turn.

    `holds` answers the rows that prove it, or None. Of the rules that hold, the one that says `stuck` with
    the highest `rank` is nearest to the cause; one that says `seen` is never the verdict, only "also seen".
    `proves` may name settings in braces, such as {lease}; `actor` says who must act next, with words in
    braces that `verdict.actor` knows. `due` says when something happens by itself, `root` names the turn in
    which the cause lies, where that is another one. While `aside` is true the rule is only "also seen", as a
    warning.
    `after_end`: whether it is asked of turns that have ended, too. `needs` are tables without which it says
    nothing: where our role may not read one, the rule is not asked.
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


@cache
def rules() -> tuple[DiagnosisRule, ...]:
    """Every rule, the nearest to a cause first."""
    known = [rule for subject in SUBJECTS for rule in import_module(f"{__package__}.rules.{subject}").RULES]
    return tuple(sorted(known, key=lambda rule: -rule.rank))
