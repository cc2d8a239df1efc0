"""From a snapshot to one verdict: the rule nearest to the cause, and what else was seen. Pure."""

import shlex
from datetime import datetime

import msgspec

from cardbox_cli.diagnosis import evidence as show
from cardbox_cli.diagnosis.registry import Command, DiagnosisRule, Evidence, Severity, Verdict, rules
from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.model.execution.turns import PROCESSING

NO_RULE = "no rule matched"


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that holds of a turn, who must act on it, and by which command."""

    rule: str
    severity: Severity
    proves: str
    evidence: tuple[Evidence, ...] = ()
    next_actor: str | None = None
    due_at: datetime | None = None
    fix: Command | None = None


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one turn. `rule` is None where no rule knows the state; then the verdict is `unknown`.
    `turn` is None for an agent that has had none, or whose turn cannot be read.
    `due_at` is when something happens by itself, `fix` the words of a command behind `cbx`.
    """

    turn: str | None
    agent: str
    verdict: Verdict
    rule: str | None
    severity: Severity
    proves: str
    evidence: tuple[Evidence, ...] = ()
    next_actor: str | None = None
    due_at: datetime | None = None
    fix: Command | None = None
    also: tuple[Seen, ...] = ()

    @property
    def well(self) -> bool:
        """Healthy, over, or waiting in time."""
        return self.verdict in ("healthy", "waiting", "ended")


def judge(snapshot: Snapshot) -> Diagnosis:
    """The verdict on a turn."""
    holding = [
        (rule, evidence)
        for rule in rules()
        if (rule.after_end or not snapshot.ended) and (evidence := rule.holds(snapshot)) is not None
    ]
    stuck = [each for each in holding if each[0].verdict == "stuck"]
    noted = [each for each in holding if each[0].verdict == "noted"]
    well = [each for each in holding if each[0].verdict not in ("stuck", "noted")]
    chief = next((each for each in stuck if not each[0].aside(snapshot)), next(iter(well), None))
    others = [*(each for each in stuck if each is not chief), *noted]
    also = tuple(_seen(snapshot, *each) for each in others) + _unchecked(snapshot)
    if chief is None:
        return _unknown(snapshot, also)
    assert chief[0].verdict != "noted"
    return Diagnosis(
        turn=snapshot.agent_turn_id,
        agent=snapshot.agent_id,
        verdict=chief[0].verdict,
        also=also,
        **msgspec.structs.asdict(_seen(snapshot, *chief)),
    )


def _seen(s: Snapshot, rule: DiagnosisRule, evidence: tuple[Evidence, ...]) -> Seen:
    return Seen(
        rule=rule.name,
        severity=rule.severity,
        proves=rule.proves.format_map(s.settings.in_words),
        evidence=evidence,
        next_actor=None if rule.actor is None else actor(s, rule.actor),
        due_at=rule.due(s),
        fix=None if rule.fix is None else rule.fix.build(s),
    )


def _unchecked(s: Snapshot) -> tuple[Seen, ...]:
    """That nobody looked for locks, where that is so."""
    if s.locks is not None:
        return ()
    unseen = Seen(
        rule="database-lock",
        severity="ok",
        proves="Locks were not looked up: they are on the primary, and this is a replica.",
    )
    return (unseen,)


def idle(agent_id: str) -> Diagnosis:
    """The verdict on an agent that never had a turn."""
    return Diagnosis(
        turn=None,
        agent=agent_id,
        verdict="healthy",
        rule="idle",
        severity="ok",
        proves="The agent has had no turn.",
        next_actor="whoever has work for it: `cbx dispatch`",
    )


def actor(s: Snapshot, text: str) -> str:
    """Who must act; {target}, {owner}, {calls}, {blocker}, {pids}, {blocker_actor}, {lint} are filled in."""
    lease = s.lease_of(s.carrier)
    claimed = s.carrier is not None and s.carrier.status == PROCESSING
    calls = " and ".join(f"call {call.tool_call_id} ({call.tool_name})" for call in s.open_calls)
    blocker = judge(s.blocker) if "{blocker" in text and s.blocker is not None else None
    return text.format(
        target=shlex.quote(s.worker_target or "?"),
        owner=lease.owner if lease else "of another system" if claimed or s.running else "?",
        calls=calls or "its calls",
        pids=", ".join(sorted({str(lock.pid) for lock in s.locks or ()})),
        blocker=s.blocker.agent_turn_id if s.blocker else "?",
        blocker_actor=(blocker.next_actor if blocker else None) or "the operator",
        lint=show.lint_command(s),
    )


def _unknown(s: Snapshot, also: tuple[Seen, ...]) -> Diagnosis:
    rows = tuple(show.row(s, row) for row in s.rows) or (show.absent_row(s),)
    return Diagnosis(
        turn=s.agent_turn_id,
        agent=s.agent_id,
        verdict="unknown",
        rule=None,
        severity="error",
        proves=NO_RULE,
        evidence=(show.head(s), *rows, show.record(s)),
        next_actor="the operator: `cbx turn show` tells its story",
        also=also,
    )
