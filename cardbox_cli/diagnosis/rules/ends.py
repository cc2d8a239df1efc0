"""Rules about turns that are over, and about ends that were to be reported and were not."""

from cardbox_cli.diagnosis import evidence as show
from cardbox_cli.diagnosis.registry import REAPER, DiagnosisRule, Evidence, Proof
from cardbox_cli.diagnosis.remedies import REAP
from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.model.execution.turns import CONSUMED, SKIPPED, WAITING


def _not_reported(s: Snapshot) -> Proof:
    """This turn is over, and the call that waits for it has no report."""
    call = s.call
    if not s.ended or call is None or call.wait_status != WAITING or call.report_status is not None:
        return None
    waits = f"turn {call.agent_turn_id} of agent {call.agent_id} waits for it"
    return (show.record(s), Evidence("state.turn_waiting_tools", call.tool_call_id, waits))


def _child_not_reported(s: Snapshot) -> Proof:
    """A turn that this one waits for is over, and there is no report of it."""
    if not s.suspended:
        return None
    done = (CONSUMED, SKIPPED)
    proof = tuple(
        Evidence(
            "cbx.turns",
            child.agent_turn_id,
            f"ended: {child.end_status or child.row_status}; answers {call.tool_call_id}",
        )
        for call in s.open_calls
        if call.wait_status == WAITING and not s.reports_of(call)
        for child in s.children_of(call)
        if child.end_status is not None or child.row_status in done
    )
    return (show.head(s), *proof) if proof else None


def _ended(s: Snapshot) -> Proof:
    if not s.ended:
        return None
    if s.record is not None and s.record.end_status is not None:
        failure = show.last_failure(s) if s.failed else ()
        return (show.record(s), *failure, *show.last_audit(s))
    if s.turn_row is not None:
        return (show.row(s, s.turn_row), show.head(s))
    return tuple(Evidence("state.agent_steps", step.step_id, step.status) for step in s.steps[-1:])


RULES = (
    DiagnosisRule(
        name="ended",
        proves="The turn is over.",
        verdict="ended",
        severity="ok",
        rank=10,
        holds=_ended,
        actor="{after_failure}",
        after_end=True,
    ),
    DiagnosisRule(
        name="not-reported",
        proves="The turn has ended, and the tool call that waits for its end was never answered.",
        rank=40,
        holds=_not_reported,
        actor=REAPER,
        fix=REAP,
        after_end=True,
    ),
    DiagnosisRule(
        name="answer-not-reported",
        proves="A turn that was to answer a call of this one has ended, and its end was never reported.",
        rank=67,
        holds=_child_not_reported,
        actor=REAPER,
        fix=REAP,
    ),
)
