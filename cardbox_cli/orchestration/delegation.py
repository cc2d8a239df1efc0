"""Delegations: tasks are checked, their agents made and their contexts packed, and then they are dispatched.

Two steps, each within the caller's transaction, so that whoever asks for one turn does both at once, and
whoever asks for many may dispatch them later. Nothing is written before everything is known to be good.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from cardbox_cli.errors import BadRequest, CbxError, Conflict, NotAccepted, NotAllowed
from cardbox_cli.execution.dispatch.caller import Caller
from cardbox_cli.execution.dispatch.dispatch import dispatch
from cardbox_cli.execution.dispatch.request import DispatchRequest, DispatchResult
from cardbox_cli.execution.provision import enrol
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model import exact_json
from cardbox_cli.model.handwritten.tasks import Strategy, Task
from cardbox_cli.model.ids import unique
from cardbox_cli.orchestration.contexts import pack_context_with_instruction
from cardbox_cli.orchestration.policy import refusal_of
from cardbox_cli.orchestration.targets import Target, Targets
from cardbox_cli.orchestration.visibility import validate_box_ids_exist
from cardbox_cli.text import Where, dotted


class Delegation(msgspec.Struct, frozen=True, kw_only=True):
    """A task that is ready to be dispatched: its agent is on the roster, its context is packed.

    `output_box_id` is the box that the agent goes on writing (None: a new one), `notes` what the caller's
    policy would have refused a model, and a person is only told.
    """

    target_strategy: Strategy
    agent_id: str
    profile_name: str
    profile_box_id: str
    context_box_id: str
    output_box_id: str | None = None
    notes: list[str] = []


class _Checked(msgspec.Struct, frozen=True):
    task: Task
    target: Target
    box_ids: list[str]
    notes: list[str]


def prepare(
    runtime: Runtime, caller: Caller, tasks: Sequence[Task], *, tool_suffix: str, within: Where | None = None
) -> list[Delegation]:
    """Check these tasks, then make their agents and pack their contexts, in order.

    Joins the caller's transaction. Raises what is wrong with any of them before anything is written: one
    problem as NotFound, NotAllowed or BadRequest, several as BadRequest which names all. `within` is where
    the list of tasks stands in what was asked, None for a single task; paths begin there. `tool_suffix` is
    the author of the instructions, and what errors begin with.
    """
    with runtime.transaction(savepoint=False):
        checked = _all_checked(runtime, caller, tasks, tool_suffix, within)
        return [_provided(runtime, caller, each, tool_suffix) for each in checked]


def dispatch_delegation(
    runtime: Runtime, delegation: Delegation, caller: Caller, **options: Any
) -> DispatchResult:
    """Ask for the turn of a delegation, on behalf of `caller`, below its turn and on its channel.

    `options` are further fields of DispatchRequest, such as `correlation_id` and `agent_turn_id`. Joins the
    caller's transaction, which what it raises must end: NotAccepted with the error code where the turn is
    refused, CorrelationConflict where an id is taken.
    """
    request = DispatchRequest(
        **{
            "target_agent_id": delegation.agent_id,
            "profile_box_id": delegation.profile_box_id,
            "context_box_id": delegation.context_box_id,
            "output_box_id": delegation.output_box_id,
            "source_agent_id": caller.agent_id,
            "channel_id": caller.channel_id,
            "parent": caller.parent,
            **options,
        }
    )
    dispatched = dispatch(runtime, request)
    result = dispatched.result
    if result.status != "accepted":
        raise NotAccepted(
            f"not accepted ({result.status}, {result.error_code}): {dispatched.message}",
            hint="nothing was written",
            details={"status": result.status, "error_code": result.error_code},
        )
    return result


def digest_of(caller: Caller, parts: Any) -> str:
    """SHA-256 of what makes two requests of a caller the same; `parts` is JSON."""
    turn = caller.parent.agent_turn_id if caller.parent else None
    return hashlib.sha256(exact_json.encode([caller.agent_id, turn, caller.channel_id, parts])).hexdigest()


# --- checking


def _all_checked(
    runtime: Runtime, caller: Caller, tasks: Sequence[Task], name: str, within: Where | None
) -> list[_Checked]:
    targets = Targets(runtime, caller)
    checked: list[_Checked] = []
    problems: list[tuple[Where, CbxError]] = []
    for index, task in enumerate(tasks):
        found = list(_problems(runtime, caller, targets, task, checked))
        problems += [((*within, index, key) if within is not None else (key,), error) for key, error in found]
    if problems:
        raise _refusal(name, problems)
    return checked


def _problems(
    runtime: Runtime, caller: Caller, targets: Targets, task: Task, checked: list[_Checked]
) -> Iterator[tuple[str, CbxError]]:
    """What is wrong with a task, by the key that says it; a good one is added to `checked`."""
    given = [task.context_box_id] if task.context_box_id else []
    target, refused = None, None
    box_ids: list[str] = []
    try:
        target = targets.of(task)
        asked = target.profile
        refused = refusal_of(caller.profile, asked.name, asked.tags) if caller.is_agent else None
    except CbxError as error:
        _let_pass(error)
        yield "target_ref", error
    if refused is not None and caller.is_model:
        yield "target_ref", NotAllowed(refused, hint="`cbx profile show` shows its delegation_policy")
    try:
        box_ids = validate_box_ids_exist(runtime, caller, given)
    except CbxError as error:
        _let_pass(error)
        yield "context_box_id", error
    if target is not None:
        inherited = [target.inherited_box_id] if target.inherited_box_id else []
        notes = [] if refused is None else [refused]
        checked.append(_Checked(task, target, unique([*box_ids, *inherited]), notes))


def _let_pass(error: CbxError) -> None:
    """Raise what is no fault of the task: a database that is gone, or was in the way."""
    if error.exit_code not in (3, 4):
        raise error


def _refusal(name: str, problems: Sequence[tuple[Where, CbxError]]) -> CbxError:
    lines = [f"{name}: {dotted(where)}: {error.message}" for where, error in problems]
    details = [
        {"path": dotted(where), "code": error.code, "message": error.message} for where, error in problems
    ]
    if len(problems) == 1:
        _, error = problems[0]
        return type(error)(lines[0], hint=error.hint, details={"problems": details})
    message = "\n".join([f"{name}: {len(problems)} problems", *lines])
    return BadRequest(message, hint="nothing was written", details={"problems": details})


# --- writing


def _provided(runtime: Runtime, caller: Caller, checked: _Checked, tool_suffix: str) -> Delegation:
    target = checked.target
    if target.is_new and enrol(runtime.roster, target.agent, source_agent_id=caller.agent_id) is None:
        raise Conflict(f"the agent id {target.agent.agent_id!r} is taken", hint="try again")
    context_box_id = pack_context_with_instruction(
        runtime,
        profile=target.profile,
        instruction=checked.task.instruction,
        box_ids=checked.box_ids,
        source_agent_id=caller.agent_id,
        tool_suffix=tool_suffix,
    )
    return Delegation(
        target_strategy=target.strategy,
        agent_id=target.agent.agent_id,
        profile_name=target.profile.name,
        profile_box_id=target.agent.profile_box_id,
        context_box_id=context_box_id,
        output_box_id=target.output_box_id,
        notes=checked.notes,
    )
