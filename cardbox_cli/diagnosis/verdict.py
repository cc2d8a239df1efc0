"""From a snapshot to one verdict: the rule nearest to the cause, and what else was seen. Pure."""

from datetime import datetime
from typing import cast

import msgspec

from cardbox_cli.diagnosis import evidence as show
from cardbox_cli.diagnosis.registry import Command, DiagnosisRule, Evidence, Remedy, Severity, Verdict, rules
from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.model.execution.turns import PROCESSING, EndStatus, WaitingTool
from cardbox_cli.store.connection.tables import grant_of
from cardbox_cli.text import argument, quoted

NO_RULE = "no rule matched"
_ELSEWHERE = "of another system, which cbx does not fence"
UNREADABLE = "table-unreadable"
NOT_WELL = ("stuck", "unknown")


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
    `due_at` is when something happens by itself, `fix` the words of a command behind `cbx`. `root` is the
    turn in which the cause lies, where that is another one; `waiting` counts the turns that wait for this.
    `end_status` is how a turn that is over ended, as far as anything tells.
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
    root: str | None = None
    waiting: int = 0
    end_status: EndStatus | None = None

    @property
    def well(self) -> bool:
        """Healthy, over, or waiting in time."""
        return self.verdict in ("healthy", "waiting", "ended")


def judge(snapshot: Snapshot) -> Diagnosis:
    """The verdict on a turn. Rules ask for those of the turns that it waits for, so each is found once."""
    known: dict[str, Diagnosis] = snapshot.__dict__
    if _JUDGED not in known:
        known[_JUDGED] = _judged(snapshot)
    return known[_JUDGED]


_JUDGED = "judged"


def _judged(snapshot: Snapshot) -> Diagnosis:
    holding = [
        (rule, evidence)
        for rule in rules()
        if (rule.after_end or not snapshot.ended)
        and not set(rule.needs) & set(snapshot.closed)
        and (evidence := rule.holds(snapshot)) is not None
    ]
    stuck = [each for each in holding if each[0].verdict in NOT_WELL]
    well = [each for each in holding if each[0].verdict not in (*NOT_WELL, "seen")]
    chief = next((each for each in stuck if not each[0].aside(snapshot)), next(iter(well), None))
    others = [each for each in holding if each is not chief and each[0].verdict in (*NOT_WELL, "seen")]
    also = tuple(_seen(snapshot, *each) for each in others) + _unchecked(snapshot)
    closed = _closed(snapshot)
    if chief is None:
        return _unknown(snapshot, also) if closed is None else _unread(snapshot, closed, also)
    also = also if closed is None else (*also, closed)
    return Diagnosis(
        turn=snapshot.agent_turn_id or None,
        agent=snapshot.agent_id,
        verdict=cast(Verdict, chief[0].verdict),
        also=also,
        root=_other(snapshot, chief[0].root(snapshot)),
        end_status=None if snapshot.turn is None else snapshot.turn.end_status,
        **msgspec.structs.asdict(_seen(snapshot, *chief)),
    )


def _other(s: Snapshot, turn: str | None) -> str | None:
    return None if turn == s.agent_turn_id else turn


def _seen(s: Snapshot, rule: DiagnosisRule, evidence: tuple[Evidence, ...]) -> Seen:
    return Seen(
        rule=rule.name,
        severity="warning" if rule.severity == "error" and rule.aside(s) else rule.severity,
        proves=rule.proves.format_map(s.settings.in_words),
        evidence=evidence,
        next_actor=_next_actor(s, rule),
        due_at=rule.due(s),
        # What cbx puts back or ends is a turn of its own kind.
        fix=None if rule.fix is None or s.is_foreign else rule.fix.build(s),
    )


def _next_actor(s: Snapshot, rule: DiagnosisRule) -> str | None:
    if isinstance(rule.actor, str):
        return actor(s, rule.actor) or None
    return rule.actor and rule.actor(s)


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


def _closed(s: Snapshot) -> Seen | None:
    """That our role may not read tables which verdicts need."""
    if not s.closed:
        return None
    no_select = f"no SELECT for role {s.role!r}"
    return Seen(
        rule=UNREADABLE,
        severity="warning",
        proves=f"The role {s.role!r} may not read {', '.join(s.closed)}: what they hold is unknown.",
        evidence=tuple(Evidence(table, "the whole table", no_select) for table in s.closed),
        next_actor=f"the owner of the database: {'; '.join(grant_of(table, s.role) for table in s.closed)}",
    )


def _unread(s: Snapshot, closed: Seen, also: tuple[Seen, ...]) -> Diagnosis:
    """The verdict where every rule that could hold needs a table that our role may not read."""
    evidence = (show.head(s), *closed.evidence)
    seen = msgspec.structs.replace(closed, severity="error", evidence=evidence)
    return Diagnosis(
        turn=s.agent_turn_id or None,
        agent=s.agent_id,
        verdict="unknown",
        also=also,
        **msgspec.structs.asdict(seen),
    )


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
    """Who must act; {target}, {owner}, {calls}, {blocker}, {pids}, {blocker_actor}, {lint}, {repair}, {rebox}
    and {after_failure}, which may be nobody, are filled in."""
    lease = s.lease_of(s.carrier)
    claimed = s.carrier is not None and s.carrier.status == PROCESSING
    calls = " and ".join(_awaited(s, call) for call in s.open_calls)
    blocker = None if s.blocker is None else judge(s.blocker)
    return text.format(
        target=quoted(s.worker_target or "?"),
        owner=lease.owner if lease else _ELSEWHERE if claimed or s.running else "?",
        calls=calls or "its calls",
        pids=", ".join(sorted({str(lock.session.pid) for lock in s.locks or ()})),
        blocker=s.blocker.agent_turn_id if s.blocker else "?",
        blocker_actor=(blocker.next_actor if blocker else None) or "the operator",
        lint=show.lint_command(s),
        repair=show.repair_command(s),
        rebox=show.rebox_command(s),
        after_failure=_after_failure(s),
    )


def _awaited(s: Snapshot, call: WaitingTool) -> str:
    by = "".join(f", which is turn {child.agent_turn_id}" for child in s.children_of(call)[-1:])
    return f"call {call.tool_call_id} ({call.tool_name}){by}"


def _after_failure(s: Snapshot) -> str:
    """Who looks at a turn that failed, or did a part; nobody need look at another."""
    if not s.failed and (s.turn is None or s.turn.end_status != "partial"):
        return ""
    read = "logs" if s.failure_log is not None else "show"
    turn = argument(s.agent_turn_id)
    said = f"whoever asked: `cbx turn {read} {turn}` says what went wrong"
    if s.lacking and not s.incomplete_allowed:
        return f"{said}; {s.lacking[0].words}: `cbx pack` makes its context anew, `cbx dispatch` asks with it"
    return f"{said}, `cbx turn retry {turn}` asks anew"


def _unknown(s: Snapshot, also: tuple[Seen, ...]) -> Diagnosis:
    rows = tuple(show.row(s, row) for row in (*s.rows, *s.foreign_rows)) or (show.absent_row(s),)
    return Diagnosis(
        turn=s.agent_turn_id or None,
        agent=s.agent_id,
        verdict="unknown",
        rule=None,
        severity="error",
        proves=NO_RULE,
        evidence=(show.head(s), *rows, show.record(s)),
        next_actor="the operator: `cbx turn show` tells its story",
        also=also,
    )


# The commands that free a turn, as words for a shell. None of them is run here.


def fenced_command(verb: str, s: Snapshot, reason: str) -> Command:
    """`cbx turn VERB` of the turn at its present epoch."""
    return ("turn", verb, s.agent_turn_id, "--expect-epoch", str(s.epoch), "--reason", reason)


def fenced(verb: str, reason: str) -> Remedy:
    """`cbx turn reclaim`, `requeue` or `fail` of the turn at its present epoch."""
    return Remedy(f"`cbx turn {verb}`", lambda s: fenced_command(verb, s, reason))


def stop_sharer(s: Snapshot) -> Command | None:
    """`cbx turn stop` of the turn that came last to a shared output box."""
    last = max((sharer.agent_turn_id for sharer in s.sharers), default=None)
    return None if last is None else ("turn", "stop", last)


NUDGE = Remedy("`cbx turn nudge`", lambda s: ("turn", "nudge", s.agent_turn_id))
REAP = Remedy("`cbx reap`", lambda s: ("reap",))
REBUILD = Remedy("`cbx turn rebuild`", lambda s: ("turn", "rebuild", s.agent_id))
NUDGE_OR_REBUILD = Remedy(
    "`cbx turn nudge`; `cbx turn rebuild` where the agent has no head",
    lambda s: (REBUILD if s.head is None else NUDGE).build(s),
)
OF_BLOCKER = Remedy("that of the turn before it", lambda s: judge(s.blocker).fix if s.blocker else None)
STOP_SHARER = Remedy("`cbx turn stop` of the turn that came last", stop_sharer)
