"""Rules about steps and calls that take much longer than usual, without proof that they are stuck."""

from datetime import datetime

from cardbox_cli.diagnosis import evidence as show
from cardbox_cli.diagnosis.registry import Proof, RowEvidence, seen_rule
from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.model.execution.situations import DurationEstimate

# A duration is long if it exceeds both _FACTOR times the p95 of at least _MIN_ENDED, and _MIN_SECONDS.
_FACTOR, _MIN_ENDED, _MIN_SECONDS = 10, 20, 1


def _is_long(s: Snapshot, begun: datetime | None, pace: DurationEstimate) -> bool:
    limit = max(_FACTOR * pace.p95_seconds, _MIN_SECONDS)
    return pace.ended >= _MIN_ENDED and s.age(begun).total_seconds() > limit


def _format_pace(pace: DurationEstimate) -> str:
    return f"95 % of the last {pace.ended} that ended took at most {pace.p95_seconds:.3g} s"


def _long_step(s: Snapshot) -> Proof:
    step = s.steps[-1] if s.steps else None
    if not s.running or step is None or step.ended_at is not None or s.step_pace is None:
        return None
    if not _is_long(s, step.started_at, s.step_pace):
        return None
    started = f"{step.status}, started {show.instant(s, step.started_at)}"
    shows = f"{started}; steps of its profile: {_format_pace(s.step_pace)}"
    return (RowEvidence("state.agent_steps", step.step_id, shows),)


def _long_call(s: Snapshot) -> Proof:
    proof = []
    for call in s.open_calls if s.suspended else ():
        pace = s.call_paces.get(call.tool_name)
        if pace is not None and _is_long(s, call.created_at, pace):
            since = f"{call.tool_name}, since {show.instant(s, call.created_at)}"
            shows = f"{since}; calls of this tool: {_format_pace(pace)}"
            proof.append(RowEvidence("state.turn_waiting_tools", call.tool_call_id, shows))
    return tuple(proof) or None


RULES = (
    seen_rule(
        name="long-step",
        proves=f"The step has run more than {_FACTOR} times as long as 95 % of recent steps of its profile.",
        rank=7,
        holds=_long_step,
        actor="worker {owner}; the operator, if its command hangs",
    ),
    seen_rule(
        name="long-call",
        proves=f"A call has waited more than {_FACTOR} times as long as 95 % of recent calls of its tool.",
        rank=6,
        holds=_long_call,
        actor="the program or person that answers {calls}",
    ),
)
