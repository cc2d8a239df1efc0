"""Call a handler outside a worker, on behalf of an active turn and with the rights of its agent."""

from typing import Any

from cardbox_cli.errors import Conflict, NotAllowed, NotFound
from cardbox_cli.execution.dispatch_requests import Caller, calling_turn
from cardbox_cli.execution.handlers import Awaiting, Handler
from cardbox_cli.execution.queue.reports import report_result
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.worker.turn_ledger import run_handler
from cardbox_cli.model.content import ToolResultContent
from cardbox_cli.model.execution.turns import WAITING, WATCHDOG
from cardbox_cli.model.identity import allowed_handlers
from cardbox_cli.orchestration.delegation import refuse_answered
from cardbox_cli.text.command_lines import quote_argument


def call_handler(
    runtime: Runtime,
    name: str,
    arguments: dict[str, Any],
    *,
    agent_turn_id: str,
    tool_call_id: str | None = None,
) -> Any:
    """Call a handler in one transaction, and return its result.

    If the turn waits for the call `tool_call_id`, a report gives it the result: now, or later if the handler
    returns Awaiting. Raises NotFound, NotAllowed for a handler that the agent's profile does not allow,
    Conflict for an inactive turn or an answered call, and the errors of the handler.
    """
    runtime.database.require_execution()
    with runtime.transaction():
        handler = runtime.handlers.find(name)
        steps = runtime.turns.steps(agent_turn_id)
        step_id = steps[-1].step_id if steps else None
        caller = calling_turn(runtime, agent_turn_id, step_id=step_id, tool_call_id=tool_call_id)
        _refuse_forbidden(handler, caller)
        if tool_call_id is not None:
            _lock_call(runtime, caller, agent_turn_id, tool_call_id)
        answer = run_handler(handler, runtime, caller, arguments)
        if isinstance(answer, Awaiting):
            return {"status": "waiting", "agent_turn_id": agent_turn_id, "tool_call_id": tool_call_id}
        if tool_call_id is not None:
            content = ToolResultContent("success", "suspend", result=answer)
            report_result(runtime, agent_turn_id, tool_call_id, content, source_agent_id=WATCHDOG)
    return answer


def _refuse_forbidden(handler: Handler, caller: Caller) -> None:
    if handler.name not in allowed_handlers(caller.profile or {}):
        raise NotAllowed(
            f"the profile of agent {caller.agent_id!r} does not allow the handler {handler.name!r}",
            hint="add the handler to allowed_internal_tools of the profile",
        )
    if handler.ends_turn:
        raise NotAllowed(
            f"only a worker can call the handler {handler.name!r}, because it ends the turn",
            hint="end a turn with `cbx turn report TURN --tool-call-id ID --after-execution terminate`",
        )


def _lock_call(runtime: Runtime, caller: Caller, agent_turn_id: str, tool_call_id: str) -> None:
    waiting = runtime.turns.lock_waiting(agent_turn_id, tool_call_id)
    if waiting is None:
        raise NotFound(
            f"turn {agent_turn_id} does not wait for a call {tool_call_id!r}",
            hint=f"`cbx turn show {quote_argument(agent_turn_id)}` lists the calls that the turn waits for",
        )
    if waiting.wait_status != WAITING:
        raise Conflict(
            f"the call {tool_call_id!r} of turn {agent_turn_id} is already answered",
            hint="nothing was written: a call has only one result",
        )
    refuse_answered(runtime, caller)
