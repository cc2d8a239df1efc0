"""Rules about turns that are over, and about ends that were to be reported and were not."""

from cardbox_cli.diagnosis import evidence as show
from cardbox_cli.diagnosis.registry import REAPER, RECORDS, DiagnosisRule, Evidence, Proof
from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.diagnosis.verdict import REAP, fenced
from cardbox_cli.model.execution.turns import ERROR, SKIPPED, WAITING


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
    proof = tuple(
        Evidence(
            "cbx.turns",
            child.agent_turn_id,
            f"ended: {child.end_status}; answers {call.tool_call_id}",
        )
        for call in s.unanswered
        for child in s.children_of(call)
        if child.end_status is not None
    )
    return (show.head(s), *proof) if proof else None


def _head_stays(s: Snapshot) -> Proof:
    """The turn's end is recorded, its agent is at it still, and nothing would run it again."""
    record = s.record
    if record is None or record.end_status is None or s.at_head is None or s.promoted:
        return None
    if s.suspended and s.open_calls:
        return None
    return (show.head(s), show.record(s))


def _ran_again(s: Snapshot) -> Proof:
    """Rows and deliverables of more than one run of the turn."""
    rows = tuple(row for row in s.turn_rows if row.status not in (SKIPPED, ERROR))
    runs = {each.step_id for each in s.delivered}
    if len(rows) < 2 and len(runs) < 2:
        return None
    wrote = (Evidence("public.cards", each.card_id, _written(each.step_id)) for each in s.delivered)
    return (*(show.row(s, row) for row in rows), *(wrote if len(runs) > 1 else ()))


def _written(step_id: str | None) -> str:
    return "a task.deliverable of the turn" + (f", written in {step_id}" if step_id else "")


def _ended(s: Snapshot) -> Proof:
    if not s.ended:
        return None
    if s.record is not None and s.record.end_status is not None:
        return (show.record(s), *show.last_failure(s), *show.last_audit(s))
    if s.turn_row is not None:
        return (show.row(s, s.turn_row), show.head(s), *show.end(s), *show.last_failure(s))
    return tuple(Evidence("state.agent_steps", step.step_id, step.status) for step in s.steps[-1:])


RULES = (
    DiagnosisRule(
        name="ended",
        proves="The turn is over.",
        verdict="ended",
        severity="ok",
        rank=10,
        holds=_ended,
        needs=(RECORDS,),
        actor="{after_failure}",
        after_end=True,
    ),
    DiagnosisRule(
        name="being-ended",
        proves="Its agent has just left it; another system writes the end in a transaction of its own.",
        verdict="waiting",
        severity="ok",
        rank=30,
        holds=lambda s: (show.head(s), *(show.row(s, row) for row in s.turn_rows)) if s.being_ended else None,
        actor="the system that ran the turn",
    ),
    DiagnosisRule(
        name="head-at-ended-turn",
        proves="The turn has ended, and its agent is still at it: nothing behind it will begin.",
        rank=93,
        holds=_head_stays,
        fix=fenced("fail", "it has ended, and its agent stays at it"),
        after_end=True,
    ),
    DiagnosisRule(
        name="ran-more-than-once",
        proves="The turn ran more than once, or will: another system enqueued it again under its own id.",
        verdict="seen",
        severity="warning",
        rank=5,
        holds=_ran_again,
        actor="whoever reads its output, which may hold several answers",
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
