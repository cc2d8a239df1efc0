"""Rules about what takes much longer than it used to, though nothing says yet that it is stuck."""

from datetime import datetime

from cardbox_cli.diagnosis import evidence as show
from cardbox_cli.diagnosis.registry import DiagnosisRule, Evidence, Proof
from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.model.execution.situations import Pace

# How many must have ended, else nothing is said; how many times their p95 is long; seconds that never are.
ENOUGH, TIMES, SHORT = 20, 10, 1


def _is_long(s: Snapshot, begun: datetime | None, pace: Pace | None) -> bool:
    if begun is None or pace is None or pace.ended < ENOUGH:
        return False
    return s.age(begun).total_seconds() > max(TIMES * pace.p95_seconds, SHORT)


def _usual(pace: Pace) -> str:
    return f"95 of 100 took {pace.p95_seconds:.3g} s at most, by the last {pace.ended} that ended"


def _long_step(s: Snapshot) -> Proof:
    step = s.steps[-1] if s.steps else None
    if not s.running or step is None or step.ended_at is not None or s.step_pace is None:
        return None
    if not _is_long(s, step.started_at, s.step_pace):
        return None
    begun = f"{step.status}, begun {show.instant(s, step.started_at)}"
    shows = f"{begun}; of the steps of its profile {_usual(s.step_pace)}"
    return (Evidence("state.agent_steps", step.step_id, shows),)


def _long_call(s: Snapshot) -> Proof:
    if not s.suspended:
        return None
    proof = []
    for call in s.open_calls:
        pace = s.call_paces.get(call.tool_name)
        if pace is not None and _is_long(s, call.created_at, pace):
            waits = f"{call.tool_name}, since {show.instant(s, call.created_at)}; of its calls {_usual(pace)}"
            proof.append(Evidence("state.turn_waiting_tools", call.tool_call_id, waits))
    return tuple(proof) or None


RULES = (
    DiagnosisRule(
        name="long-step",
        proves=f"The step runs more than {TIMES} times as long as 95 of 100 steps of its profile did lately.",
        verdict="seen",
        severity="warning",
        rank=7,
        holds=_long_step,
        actor="worker {owner}; the operator, if its command hangs",
    ),
    DiagnosisRule(
        name="long-call",
        proves=f"A call waits more than {TIMES} times as long as 95 of 100 calls of its tool did lately.",
        verdict="seen",
        severity="warning",
        rank=6,
        holds=_long_call,
        actor="whoever answers {calls}",
    ),
)
