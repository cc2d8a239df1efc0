"""Calling a handler from outside of a worker: on behalf of an active turn, with the rights of its agent."""

from typing import Any

from cardbox_cli.errors import Conflict, NotAllowed, NotFound
from cardbox_cli.execution.dispatch_requests import Caller, calling_turn
from cardbox_cli.execution.handlers import Awaiting, Handler
from cardbox_cli.execution.queue.reports import report_result
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.worker.turn_ledger import answer_by
from cardbox_cli.model.content import ToolResultContent
from cardbox_cli.model.execution.turns import WAITING, WATCHDOG
from cardbox_cli.model.identity import allowed_handlers
from cardbox_cli.orchestration.delegation import refuse_answered


def call_handler(
    runtime: Runtime,
    name: str,
    arguments: dict[str, Any],
    *,
    agent_turn_id: str,
    tool_call_id: str | None = None,
) -> Any:
    """What a handler answers, in one transaction with what it does.

    `tool_call_id` names the call that the turn waits for: the answer is reported to it, now or, where the
    handler says so, later. Raises NotFound, NotAllowed for a handler that the agent's profile does not name,
    Conflict for a turn that is not active and a call that is answered already, and what the handler raises.
    """
    runtime.database.require_execution()
    with runtime.transaction():
        handler = runtime.handlers.find(name)
        caller = calling_turn(
            runtime, agent_turn_id, step_id=_step(runtime, agent_turn_id), tool_call_id=tool_call_id
        )
        _refuse_forbidden(handler, caller)
        _refuse_ending(handler)
        if tool_call_id is not None:
            _hold_call(runtime, caller, agent_turn_id, tool_call_id)
        answer = answer_by(handler, runtime, caller, arguments)
        if isinstance(answer, Awaiting):
            return {"status": "waiting", "agent_turn_id": agent_turn_id, "tool_call_id": tool_call_id}
        if tool_call_id is not None:
            content = ToolResultContent("success", "suspend", result=answer)
            report_result(runtime, agent_turn_id, tool_call_id, content, source_agent_id=WATCHDOG)
    return answer


def _step(runtime: Runtime, agent_turn_id: str) -> str | None:
    steps = runtime.turns.steps(agent_turn_id)
    return steps[-1].step_id if steps else None


def _refuse_forbidden(handler: Handler, caller: Caller) -> None:
    if handler.name not in allowed_handlers(caller.profile or {}):
        raise NotAllowed(
            f"the profile of agent {caller.agent_id!r} does not allow the handler {handler.name!r}",
            hint="its allowed_internal_tools lists those that it does",
        )


def _refuse_ending(handler: Handler) -> None:
    if handler.ends_turn:
        raise NotAllowed(
            f"the handler {handler.name!r} ends the turn that calls it, and is answered by its worker",
            hint="`cbx turn report --after-execution terminate` ends a waiting turn by a result",
        )


def _hold_call(runtime: Runtime, caller: Caller, agent_turn_id: str, tool_call_id: str) -> None:
    waiting = runtime.turns.lock_waiting(agent_turn_id, tool_call_id)
    if waiting is None:
        raise NotFound(
            f"turn {agent_turn_id} does not wait for a call {tool_call_id!r}",
            hint="`cbx turn show` lists the calls that it waits for",
        )
    if waiting.wait_status != WAITING:
        raise Conflict(
            f"the call {tool_call_id!r} of turn {agent_turn_id} is answered already",
            hint="nothing was written; a call has one result",
        )
    refuse_answered(runtime, caller)
