"""Rules about turns that have ended, and about ends that were not reported."""

from cardbox_cli.diagnosis import evidence as show
from cardbox_cli.diagnosis.registry import RECORDS, DiagnosisRule, Proof, RowEvidence, seen_rule, waiting_rule
from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.diagnosis.verdict import fenced_remedy, reaper_rule
from cardbox_cli.model.execution.turns import ERROR, SKIPPED, WAITING


def _not_reported(s: Snapshot) -> Proof:
    """Prove that this turn has ended and that the call that waits for it has no report."""
    call = s.call
    if not s.has_ended or call is None or call.wait_status != WAITING or call.report_status is not None:
        return None
    waits = f"turn {call.agent_turn_id} of agent {call.agent_id} waits for it"
    return (show.record(s), RowEvidence("state.turn_waiting_tools", call.tool_call_id, waits))


def _child_not_reported(s: Snapshot) -> Proof:
    """Prove that an awaited turn has ended and that no report of its end exists."""
    if not s.suspended:
        return None
    proof = tuple(
        RowEvidence(
            "cbx.turns", child.agent_turn_id, f"ended: {child.end_status}; answers {call.tool_call_id}"
        )
        for call in s.unanswered
        for child in s.children_of(call)
        if child.end_status is not None
    )
    return (show.head(s), *proof) if proof else None


def _head_not_freed(s: Snapshot) -> Proof:
    """Prove that the turn has a recorded end, is still active, and has no row that would run it again."""
    record = s.record
    if record is None or record.end_status is None or s.head_status is None:
        return None
    if s.promoted or (s.suspended and s.open_calls):
        return None
    return (show.head(s), show.record(s))


def _ran_again(s: Snapshot) -> Proof:
    """Return the rows and deliverables of all runs, if the turn has more than one run."""
    rows = tuple(row for row in s.turn_rows if row.status not in (SKIPPED, ERROR))
    runs = {each.step_id for each in s.delivered}
    if len(rows) < 2 and len(runs) < 2:
        return None
    proof = [show.row(s, row) for row in rows]
    for each in s.delivered if len(runs) > 1 else ():
        written = f", written in {each.step_id}" if each.step_id else ""
        proof.append(RowEvidence("public.cards", each.card_id, f"a task.deliverable of the turn{written}"))
    return tuple(proof)


def _end_evidence(s: Snapshot) -> Proof:
    if not s.has_ended:
        return None
    if s.record is not None and s.record.end_status is not None:
        return (show.record(s), *show.last_failure(s), *show.last_audit(s))
    if s.turn_row is not None:
        return (show.row(s, s.turn_row), show.head(s), *show.end(s), *show.last_failure(s))
    return tuple(RowEvidence("state.agent_steps", step.step_id, step.status) for step in s.steps[-1:])


RULES = (
    DiagnosisRule(
        name="ended",
        proves="The turn has ended.",
        verdict="ended",
        severity="ok",
        rank=10,
        holds=_end_evidence,
        needs=(RECORDS,),
        actor="{after_failure}",
        after_end=True,
    ),
    waiting_rule(
        name="being-ended",
        proves="Another system has just freed the agent, and records the turn's end in a second transaction.",
        rank=30,
        holds=lambda s: (show.head(s), *(show.row(s, row) for row in s.turn_rows)) if s.being_ended else None,
        actor="the system that ran the turn",
    ),
    DiagnosisRule(
        name="head-at-ended-turn",
        proves="The turn has ended, but is still its agent's active turn: no queued turn can begin.",
        rank=93,
        holds=_head_not_freed,
        fix=fenced_remedy("fail", "it has ended but is still active"),
        after_end=True,
    ),
    seen_rule(
        name="ran-more-than-once",
        proves="The turn ran more than once, or will: another system enqueued it again under the same id.",
        rank=5,
        holds=_ran_again,
        actor="readers of its output, which may hold several deliverables",
        after_end=True,
    ),
    reaper_rule(
        name="not-reported",
        proves="The turn has ended, but the tool call that waits for its end has no result.",
        rank=40,
        holds=_not_reported,
        after_end=True,
    ),
    reaper_rule(
        name="answer-not-reported",
        proves="A turn that answers a call of this one has ended, but its end was not reported.",
        rank=67,
        holds=_child_not_reported,
    ),
)
