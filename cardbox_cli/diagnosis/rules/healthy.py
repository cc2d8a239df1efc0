"""The rule of turns that are over. What else is well stands beside what may be wrong, subject by subject."""

from cardbox_cli.diagnosis import evidence as show
from cardbox_cli.diagnosis.registry import DiagnosisRule, Evidence, Proof
from cardbox_cli.diagnosis.snapshot import Snapshot


def _ended(s: Snapshot) -> Proof:
    if not s.ended:
        return None
    if s.record is not None and s.record.end_status is not None:
        return (show.record(s), *show.last_audit(s))
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
        actor=None,
        after_end=True,
    ),
)
