"""Rules about suspended turns: their calls, their deadline, and results that were not applied."""

from cardbox_cli.diagnosis import evidence as show
from cardbox_cli.diagnosis.registry import (
    LEASES,
    REAPER,
    WORKERS,
    Command,
    DiagnosisRule,
    Proof,
    Remedy,
    RowEvidence,
    waiting_rule,
)
from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.diagnosis.verdict import NUDGE, REAP, fenced_remedy, reaper_rule
from cardbox_cli.execution.queue.reports import PLACEHOLDER
from cardbox_cli.model.execution.turns import CONSUMED, PROCESSING, RECEIVED, WAITING, WaitingTool


def _suspension(s: Snapshot) -> RowEvidence:
    assert s.head is not None
    deadline = s.resume_deadline
    until = f"deadline {show.instant(s, deadline)}" if deadline else "no deadline"
    head = show.head(s)
    waits = f"{head.shows}, waits for {s.head.waiting_tool_count}; {until}"
    return RowEvidence(head.table, head.row, waits)


def _calls(s: Snapshot) -> tuple[RowEvidence, ...]:
    calls = tuple(show.call(s, call) for call in s.open_calls)
    names = {call.tool_name for call in s.unanswered} & s.stored_commands
    return (*calls, *map(show.stored_command, sorted(names)))


def _waiting_in_time(s: Snapshot) -> Proof:
    if not s.is_in_time or not s.open_calls:
        return None
    return (_suspension(s), *_calls(s), *_answering(s))


def _answering(s: Snapshot) -> tuple[RowEvidence, ...]:
    return tuple(
        RowEvidence(
            "state.execution_edges",
            child.agent_turn_id,
            f"turn of agent {child.agent_id}, answers {call.tool_call_id}",
        )
        for call in s.open_calls
        for child in s.children_of(call)
    )


def _report(s: Snapshot) -> Command | None:
    """Return `cbx turn report` for the oldest call that no turn or batch answers."""
    for call in s.unattended:
        answer = ("--tool-call-id", call.tool_call_id, "--result-text", PLACEHOLDER)
        return ("turn", "report", s.agent_turn_id, *answer)
    return None


def _deadline_passed(s: Snapshot) -> Proof:
    if not s.suspended or s.resume_deadline is None or s.is_in_time or s.open_reports:
        return None
    return (_suspension(s), *_calls(s))


def _no_deadline(s: Snapshot) -> Proof:
    if not s.suspended or s.resume_deadline is not None or not s.open_calls or s.open_reports:
        return None
    return (_suspension(s), *_calls(s))


def _report_waits(s: Snapshot) -> Proof:
    if not s.suspended or not s.unclaimed or s.unserved or s.workers_are_busy or s.workers_are_unable:
        return None
    return (_suspension(s), *show.unclaimed_rows(s))


def _result_is_unreported(s: Snapshot) -> Proof:
    """Prove that a result is stored or marked as received, but has no report."""
    if not s.suspended:
        return None
    proof = tuple(each for call in s.open_calls if not s.reports_of(call) for each in _result_of(s, call))
    return (_suspension(s), *proof) if proof else None


def _result_of(s: Snapshot, call: WaitingTool) -> tuple[RowEvidence, ...]:
    cards = tuple(
        RowEvidence("public.cards", card.card_id, f"the tool.result of call {card.tool_call_id}")
        for card in s.results
        if card.tool_call_id == call.tool_call_id and s.age(card.created_at) > s.settings.unclaimed_time
    )
    if cards or call.wait_status == RECEIVED:
        return (show.call(s, call), *cards)
    return ()


def _report_or_requeue(s: Snapshot) -> Command | None:
    return (REAP if s.results else fenced_remedy("requeue", "a received result is missing")).build(s)


def _report_arrives(s: Snapshot) -> Proof:
    if not s.suspended:
        return None
    taken = (row for row in s.open_reports if row.status == PROCESSING)
    claimed = (row for row in taken if s.is_live(s.lease_of(row)) or not s.keeps_turns)
    fresh = (row for row in s.due_rows if row not in s.unclaimed)
    return tuple(show.row(s, row) for row in (*claimed, *fresh)) or None


def _consumed_report(s: Snapshot) -> Proof:
    """Prove that a report is consumed, but its call still waits."""
    if not s.suspended:
        return None
    proof = tuple(
        each
        for call in s.open_calls
        if (reports := s.reports_of(call)) and all(row.status == CONSUMED for row in reports)
        for each in (show.call(s, call), *(show.row(s, row) for row in reports))
    )
    return (_suspension(s), *proof) if proof else None


def _retry_report(s: Snapshot) -> Command | None:
    reports = [row for call in s.open_calls for row in s.reports_of(call) if row.status == CONSUMED]
    return ("inbox", "retry", reports[0].inbox_id) if reports else None


def _count_drift(s: Snapshot) -> Proof:
    if not s.suspended or s.head is None or s.calls_of_other_epochs:
        return None
    waiting = [call for call in s.open_calls if call.wait_status == WAITING]
    if s.head.waiting_tool_count in (len(s.open_calls), len(waiting)) and s.open_calls:
        return None
    none = RowEvidence("state.turn_waiting_tools", s.agent_turn_id, "no such row")
    return (_suspension(s), *([show.call(s, call) for call in s.waiting] or [none]))


def _stale_calls(s: Snapshot) -> Proof:
    if not s.suspended or s.open_calls or not s.calls_of_other_epochs:
        return None
    return (_suspension(s), *(show.call(s, call) for call in s.calls_of_other_epochs))


RULES = (
    waiting_rule(
        name="waiting-for-tool",
        proves="The turn waits for tool calls. Their deadline is ahead, or passed less than {poll} ago.",
        rank=15,
        holds=_waiting_in_time,
        actor="the program or person that answers {calls}",
        due=lambda s: s.resume_deadline,
        fix=Remedy("`cbx turn report` with the result", _report),
    ),
    waiting_rule(
        name="result-arriving",
        proves="A report of a result became due or was claimed a moment ago.",
        rank=20,
        holds=_report_arrives,
        actor="a worker of target {target}",
    ),
    reaper_rule(
        name="deadline-passed",
        proves="The deadline of the tool calls passed more than {poll} ago, and no timeout was reported.",
        rank=64,
        holds=_deadline_passed,
    ),
    DiagnosisRule(
        name="no-deadline",
        proves="The turn waits for results without a deadline: nothing resumes it if they do not arrive.",
        severity="warning",
        rank=62,
        holds=_no_deadline,
        actor="the program or person that answers {calls} with `cbx turn report`, or the operator",
        fix=fenced_remedy("requeue", "it waits without a deadline"),
    ),
    DiagnosisRule(
        name="report-not-claimed",
        proves="A report has been due for more than {unclaimed}, and no worker has claimed it.",
        rank=66,
        holds=_report_waits,
        needs=(LEASES, WORKERS),
        actor="a worker of target {target}, at its next poll or notification",
        fix=NUDGE,
    ),
    DiagnosisRule(
        name="result-not-applied",
        proves="The result of a call is stored, but no report of it exists.",
        rank=65,
        holds=_result_is_unreported,
        actor=f"{REAPER}; the operator if the result itself is missing",
        fix=Remedy("`cbx reap`; `cbx turn requeue` if the result itself is missing", _report_or_requeue),
    ),
    DiagnosisRule(
        name="report-consumed-not-applied",
        proves="The report of a result is consumed, but its call still waits for it.",
        rank=78,
        holds=_consumed_report,
        fix=Remedy("`cbx inbox retry`", _retry_report),
    ),
    DiagnosisRule(
        name="waiting-count-drift",
        proves="The head's count of waiting calls is wrong. If no call is left, nothing resumes the turn.",
        severity="warning",
        rank=61,
        holds=_count_drift,
        fix=fenced_remedy("requeue", "it waits for missing calls"),
        # Results of the known calls resume the turn even if the count is wrong.
        aside=lambda s: bool(s.open_calls),
    ),
    DiagnosisRule(
        name="stale-calls",
        proves="The calls that the suspended turn waits for have a different epoch from its head.",
        rank=79,
        holds=_stale_calls,
        fix=fenced_remedy("requeue", "its calls have a different epoch"),
    ),
)
