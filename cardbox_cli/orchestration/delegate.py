"""Delegating: one task is prepared and dispatched at once, in one transaction. Nobody waits for its end, but
for a call that says so.

Owns the idempotency by the turn's id. The other ways to ask one agent, launching a principal and asking an
expert, are delegations of a kind.
"""

from typing import Any

import msgspec

from cardbox_cli.errors import BadRequest, Conflict, CorrelationConflict
from cardbox_cli.execution.dispatch.asked import result_of
from cardbox_cli.execution.dispatch.caller import Caller
from cardbox_cli.execution.dispatch.request import DispatchResult
from cardbox_cli.execution.queue.messages import TURN
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.handwritten.tasks import Task
from cardbox_cli.model.ids import as_box_id, check_new_id
from cardbox_cli.orchestration.delegation import digest_of, dispatch_delegation, prepare

DELEGATE, LAUNCH, ASK = "delegate_async", "launch_principal", "ask_expert"


class Delegated(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a delegation. `notes` are what a person is told of the caller's policy."""

    result: DispatchResult
    notes: list[str] = []


def delegate(
    runtime: Runtime,
    caller: Caller,
    task: Task,
    *,
    tool_suffix: str = DELEGATE,
    agent_turn_id: str | None = None,
    waits: bool = False,
) -> Delegated:
    """Hand a task to another agent: its agent, context and turn, all or nothing.

    `agent_turn_id` is the id of the turn to be made: the same request again answers with that turn, another
    raises CorrelationConflict. With `waits` the end of the turn answers the caller's tool call. Raises what
    `prepare` and `dispatch_delegation` raise. Joins the caller's transaction if there is one.
    """
    runtime.database.require_execution()
    asking = caller if waits else _not_waiting(caller)
    digest = digest_of(asking, [tool_suffix, _meaning(task), waits])
    if agent_turn_id is not None:
        check_new_id(agent_turn_id, "the turn id", "such as turn_ and a UUID; leave it out for a new one")
    with runtime.transaction():
        if agent_turn_id is not None and (earlier := _earlier(runtime, agent_turn_id, digest)) is not None:
            return Delegated(result=earlier)
        (prepared,) = prepare(runtime, asking, [task], tool_suffix=tool_suffix)
        result = dispatch_delegation(
            runtime, prepared, asking, agent_turn_id=agent_turn_id, request_sha256=digest
        )
    return Delegated(result=result, notes=prepared.notes)


def launch_principal(
    runtime: Runtime, caller: Caller, profile_name: str, instruction: str, **more: Any
) -> Delegated:
    """Start a fresh agent of a profile on a task of its own, with no box. `more` as `delegate`'s."""
    task = Task(target_strategy="new", target_ref=profile_name, instruction=instruction)
    return delegate(runtime, caller, task, tool_suffix=LAUNCH, **more)


def ask_expert(
    runtime: Runtime,
    caller: Caller,
    expert_profile: str,
    question: str,
    *,
    include_history: bool = False,
    **more: Any,
) -> Delegated:
    """Ask a fresh agent of a profile one question; with history it first reads what the caller has written.

    Raises BadRequest for the history of a caller that has none. `more` as `delegate`'s.
    """
    if include_history and caller.output_box_id is None:
        who = f"agent {caller.agent_id!r} has written nothing yet" if caller.is_agent else "a person has none"
        raise BadRequest(f"{ASK}: include_history: {who}", hint="leave the history out")
    history = caller.output_box_id if include_history else None
    task = Task(
        target_strategy="new", target_ref=expert_profile, instruction=question, context_box_id=history
    )
    return delegate(runtime, caller, task, tool_suffix=ASK, **more)


def _not_waiting(caller: Caller) -> Caller:
    """The caller without its tool call, which is answered at once and not by the end of the turn."""
    if caller.parent is None:
        return caller
    parent = msgspec.structs.replace(caller.parent, tool_call_id=None)
    return msgspec.structs.replace(caller, parent=parent)


def _meaning(task: Task) -> dict[str, Any]:
    given = task.context_box_id
    return {**task.model_dump(), "context_box_id": None if given is None else as_box_id(given) or given}


def _earlier(runtime: Runtime, agent_turn_id: str, digest: str) -> DispatchResult | None:
    """The answer for a turn that was asked for under this id before. Raises CorrelationConflict."""
    row = runtime.inbox.turn_row(agent_turn_id) or runtime.inbox.by_correlation(TURN.name, agent_turn_id)
    if row is None:
        return None
    edge = runtime.turns.enqueue_edge(agent_turn_id)
    known = edge.metadata.get("request_sha256") if edge and isinstance(edge.metadata, dict) else None
    if known != digest:
        raise CorrelationConflict(
            f"the turn id {agent_turn_id!r} stands for another request: a turn of agent {row.agent_id!r}",
            hint="use another turn id, or repeat that request exactly",
            details={"agent_turn_id": agent_turn_id, "agent_id": row.agent_id},
        )
    return result_of(runtime, row, created=False)


def refuse_answered(runtime: Runtime, caller: Caller) -> None:
    """Raise Conflict where a turn was asked for already whose end answers the caller's tool call."""
    parent = caller.parent
    if parent is None or parent.tool_call_id is None:
        return
    for edge in runtime.turns.edges(parent.agent_turn_id):
        to = edge.metadata.get("report_to") if isinstance(edge.metadata, dict) else None
        if isinstance(to, dict) and to.get("tool_call_id") == parent.tool_call_id:
            raise Conflict(
                f"turn {edge.target_agent_turn_id} answers the call {parent.tool_call_id!r} already",
                hint="nothing was written; `cbx turn show` tells where it is",
            )
