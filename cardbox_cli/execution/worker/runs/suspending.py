"""A turn suspends: which calls it waits for and how long is decided, and one statement writes every row."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

import msgspec

from cardbox_cli.execution.recovery.lost_reports import report_lost
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.tool_calls import ToolCall
from cardbox_cli.execution.worker.runs.turn_state import TurnState
from cardbox_cli.model.execution.turns import SUSPENDED, InboxRow, new_id
from cardbox_cli.model.identity import Tool


class Suspension(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn waits for: `calls` are the names of their tools by their ids; for so many `seconds`."""

    calls: Mapping[str, str]
    seconds: float


def decide(
    tools: Sequence[Tool], calls: Sequence[ToolCall], *, tool_wait: float, at_least: float = 0
) -> Suspension:
    """How long a turn that is offered `tools` waits for these calls: what the slowest tool is given.

    One that names no time, or is not offered, is given `tool_wait` seconds.
    """
    given = {tool.tool_name: tool.timeout_seconds for tool in tools}
    times = [given.get(call.tool_name) or tool_wait for call in calls]
    return Suspension(
        calls={call.tool_call_id: call.tool_name for call in calls}, seconds=max(at_least, *times)
    )


def suspend(
    runtime: Runtime, turn: TurnState, row: InboxRow, calls: Sequence[ToolCall], *, at_least: float = 0
) -> None:
    """Let the turn wait for the results of `calls`, for so many seconds at least; its claimed row is done.

    Raises StaleEpoch.
    """
    plan = decide(turn.tools, calls, tool_wait=runtime.settings.tool_wait, at_least=at_least)
    with runtime.transaction(savepoint=False):
        deadline = runtime.steps.suspend(
            turn.fence,
            turn.step_id or new_id("step"),
            plan.calls,
            inbox_id=row.inbox_id,
            wait=timedelta(seconds=plan.seconds),
        )
        if deadline is None:
            raise runtime.heads.stale(turn.fence, runtime.heads.get(turn.fence.agent_id))
        report_lost(runtime, turn.fence.agent_turn_id)
        runtime.follow_suspension(turn.fence)
        runtime.publish_state(
            turn.head,
            SUSPENDED,
            turn.head.turn_epoch,
            waiting_tool_count=len(plan.calls),
            waiting_tool_call_ids=list(plan.calls),
            resume_deadline=deadline.isoformat(),
        )
