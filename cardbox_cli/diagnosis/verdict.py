"""Judges a snapshot. The verdict is the rule nearest to the cause, with the other rules that hold. Pure."""

from datetime import datetime
from functools import partial
from typing import Any, cast

import msgspec

from cardbox_cli.diagnosis import evidence as show
from cardbox_cli.diagnosis.registry import (
    REAPER,
    Command,
    DiagnosisRule,
    Remedy,
    RowEvidence,
    Severity,
    Verdict,
    rules,
)
from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.model.execution.turns import PROCESSING, EndStatus, WaitingTool
from cardbox_cli.store.connection.tables import read_grant
from cardbox_cli.text.command_lines import quote_argument, quote_word

NO_RULE = "no rule matched"
_FOREIGN_WORKER = "of another system, which cbx does not fence"
UNREADABLE = "table-unreadable"
NOT_WELL = ("stuck", "unknown")


class RuleMatch(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that holds for a turn, with its proof, the next actor, and the command that helps.

    The state changes automatically at `due_at`. `fix` holds the arguments of a `cbx` command.
    """

    rule: str | None
    severity: Severity
    proves: str
    evidence: tuple[RowEvidence, ...] = ()
    next_actor: str | None = None
    due_at: datetime | None = None
    fix: Command | None = None


class Diagnosis(RuleMatch, frozen=True, kw_only=True):
    """The verdict on one turn. If no rule holds, `rule` is None and the verdict is `unknown`.

    `turn` is None if the agent has had no turn, or its turn cannot be read. If another turn is the cause,
    `root` is its id. `waiting` is the number of turns that wait for this turn.
    """

    turn: str | None
    agent: str
    verdict: Verdict
    also: tuple[RuleMatch, ...] = ()
    root: str | None = None
    waiting: int = 0
    end_status: EndStatus | None = None

    @property
    def is_well(self) -> bool:
        """True if the turn is healthy, has ended, or waits within its deadline."""
        return self.verdict in ("healthy", "waiting", "ended")


def judge(snapshot: Snapshot) -> Diagnosis:
    """Return the verdict on a turn, cached in the snapshot: rules ask for the verdicts on awaited turns."""
    cache: dict[str, Diagnosis] = snapshot.__dict__
    if "judged" not in cache:
        cache["judged"] = _judge(snapshot)
    return cache["judged"]


def _judge(snapshot: Snapshot) -> Diagnosis:
    holding = [
        (rule, evidence)
        for rule in rules()
        if (rule.after_end or not snapshot.has_ended)
        and not set(rule.needs) & set(snapshot.closed)
        and (evidence := rule.holds(snapshot)) is not None
    ]
    stuck = [each for each in holding if each[0].verdict in NOT_WELL]
    well = [each for each in holding if each[0].verdict not in (*NOT_WELL, "seen")]
    chief = next((each for each in stuck if not each[0].aside(snapshot)), next(iter(well), None))
    others = [each for each in holding if each is not chief and each[0].verdict in (*NOT_WELL, "seen")]
    also = tuple(_apply(snapshot, *each) for each in others) + _unchecked_locks(snapshot)
    unreadable = _unreadable_tables(snapshot)
    if chief is None:
        match = _unknown(snapshot) if unreadable is None else _unjudged(snapshot, unreadable)
        return _conclude(snapshot, match, "unknown", also)
    root = chief[0].root(snapshot)
    return _conclude(
        snapshot,
        _apply(snapshot, *chief),
        cast(Verdict, chief[0].verdict),
        also if unreadable is None else (*also, unreadable),
        root=None if root == snapshot.agent_turn_id else root,
        end_status=None if snapshot.turn is None else snapshot.turn.end_status,
    )


def _conclude(
    s: Snapshot, match: RuleMatch, verdict: Verdict, also: tuple[RuleMatch, ...], **more: Any
) -> Diagnosis:
    fields = {**msgspec.structs.asdict(match), **more}
    return Diagnosis(turn=s.agent_turn_id or None, agent=s.agent_id, verdict=verdict, also=also, **fields)


def _apply(s: Snapshot, rule: DiagnosisRule, evidence: tuple[RowEvidence, ...]) -> RuleMatch:
    return RuleMatch(
        rule=rule.name,
        severity="warning" if rule.severity == "error" and rule.aside(s) else rule.severity,
        proves=rule.proves.format_map(s.settings.labels),
        evidence=evidence,
        next_actor=fill_actor(s, rule.actor) or None
        if isinstance(rule.actor, str)
        else rule.actor and rule.actor(s),
        due_at=rule.due(s),
        # The fixes work only on turns that cbx itself could run.
        fix=None if rule.fix is None or s.is_foreign else rule.fix.build(s),
    )


def _unchecked_locks(s: Snapshot) -> tuple[RuleMatch, ...]:
    if s.locks is not None:
        return ()
    proves = "Locks were not checked: this database is a replica, and locks exist only on the primary."
    return (RuleMatch(rule="database-lock", severity="ok", proves=proves),)


def _unreadable_tables(s: Snapshot) -> RuleMatch | None:
    if not s.closed:
        return None
    no_select = f"no SELECT for role {s.role!r}"
    return RuleMatch(
        rule=UNREADABLE,
        severity="warning",
        proves=f"The role {s.role!r} cannot read {', '.join(s.closed)}: rules that need them were skipped.",
        evidence=tuple(RowEvidence(table, "the whole table", no_select) for table in s.closed),
        next_actor=f"the owner of the database: {'; '.join(read_grant(table, s.role) for table in s.closed)}",
    )


def _unjudged(s: Snapshot, unreadable: RuleMatch) -> RuleMatch:
    """State that every rule that could hold needs a table that the role cannot read."""
    evidence = (show.head(s), *unreadable.evidence)
    return msgspec.structs.replace(unreadable, severity="error", evidence=evidence)


def idle_diagnosis(agent_id: str) -> Diagnosis:
    """Return the verdict on an agent that has had no turn."""
    return Diagnosis(
        turn=None,
        agent=agent_id,
        verdict="healthy",
        rule="idle",
        severity="ok",
        proves="The agent has had no turn.",
        next_actor="anyone with work for it: `cbx dispatch` gives it a turn",
    )


def fill_actor(s: Snapshot, text: str) -> str:
    """Fill the placeholders of an actor with the values below. Only {after_failure} may be empty."""
    lease = s.lease_of(s.carrier)
    claimed = s.carrier is not None and s.carrier.status == PROCESSING
    calls = " and ".join(_name_call(s, call) for call in s.open_calls)
    blocker = None if s.blocker is None else judge(s.blocker)
    return text.format(
        target=quote_word(s.worker_target or "?"),
        owner=lease.owner if lease else _FOREIGN_WORKER if claimed or s.running else "?",
        calls=calls or "the calls",
        pids=", ".join(sorted({str(lock.session.pid) for lock in s.locks or ()})),
        blocker=s.blocker.agent_turn_id if s.blocker else "?",
        blocker_actor=(blocker.next_actor if blocker else None) or "the operator",
        lint=show.lint_command(s),
        repair=show.repair_command(s),
        rebox=show.rebox_command(s),
        after_failure=_failure_actor(s),
    )


def _name_call(s: Snapshot, call: WaitingTool) -> str:
    by = "".join(f", which is turn {child.agent_turn_id}" for child in s.children_of(call)[-1:])
    return f"call {call.tool_call_id} ({call.tool_name}){by}"


def _failure_actor(s: Snapshot) -> str:
    """Return who must examine a failed or partial turn, and how. Return "" for any other turn."""
    if not s.failed and (s.turn is None or s.turn.end_status != "partial"):
        return ""
    by = s.turn.replaced_by if s.turn is not None else None
    if by is not None:
        return f"no one: turn {by} replaces it, as `cbx why {quote_argument(by)}` shows"
    read = "logs" if s.failure_log is not None else "show"
    turn = quote_argument(s.agent_turn_id)
    reason = f"the requester: `cbx turn {read} {turn}` shows the reason"
    if s.lacking and not s.incomplete_allowed:
        lack = s.lacking[0].clause
        return f"{reason}; {lack}: `cbx pack` makes a new context, `cbx dispatch` starts a turn with it"
    return f"{reason}, `cbx turn retry {turn}` retries the turn"


def _unknown(s: Snapshot) -> RuleMatch:
    rows = tuple(show.row(s, row) for row in (*s.rows, *s.foreign_rows)) or (show.absent_row(s),)
    return RuleMatch(
        rule=None,
        severity="error",
        proves=NO_RULE,
        evidence=(show.head(s), *rows, show.record(s)),
        next_actor="the operator: run `cbx turn show` for details",
    )


# --- the commands that free a turn; none of them is run here


def fenced_command(verb: str, s: Snapshot, reason: str) -> Command:
    """Return `cbx turn VERB` for the turn at its present epoch."""
    return ("turn", verb, s.agent_turn_id, "--expect-epoch", str(s.epoch), "--reason", reason)


def fenced_remedy(verb: str, reason: str) -> Remedy:
    """Return the remedy `cbx turn reclaim`, `requeue` or `fail` for the turn at its present epoch."""
    return Remedy(f"`cbx turn {verb}`", lambda s: fenced_command(verb, s, reason))


NUDGE = Remedy("`cbx turn nudge`", lambda s: ("turn", "nudge", s.agent_turn_id))
REAP = Remedy("`cbx reap`", lambda _: ("reap",))
reaper_rule = partial(DiagnosisRule, actor=REAPER, fix=REAP)
REBUILD = Remedy("`cbx turn rebuild`", lambda s: ("turn", "rebuild", s.agent_id))
NUDGE_OR_REBUILD = Remedy(
    "`cbx turn nudge`; `cbx turn rebuild` if the agent has no head",
    lambda s: (REBUILD if s.head is None else NUDGE).build(s),
)
