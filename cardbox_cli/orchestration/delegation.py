"""Delegations: tasks are checked, their agents made and their contexts packed, and then they are dispatched.

Two steps, each within the caller's transaction, so that whoever asks for one turn does both at once, and
whoever asks for many may dispatch them later. Nothing is written before everything is known to be good.
"""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from cardbox_cli.errors import (
    BadRequest,
    CbxError,
    Conflict,
    CorrelationConflict,
    NotAccepted,
    NotAllowed,
    NotFound,
)
from cardbox_cli.execution.admission import result_of
from cardbox_cli.execution.dispatch import dispatch
from cardbox_cli.execution.dispatch_requests import Caller, DispatchRequest, DispatchResult
from cardbox_cli.execution.provision import enrol
from cardbox_cli.execution.queue.messages import TURN
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model import exact_json
from cardbox_cli.model.handwritten.tasks import Strategy, Task
from cardbox_cli.model.ids import as_box_id, check_new_id, unique
from cardbox_cli.orchestration.targets import Target, Targets
from cardbox_cli.packing.pack import pack
from cardbox_cli.packing.recipe_files import read_recipe
from cardbox_cli.store.profiles import ProfileEntry
from cardbox_cli.text import Where, dotted

if TYPE_CHECKING:
    from cardbox_cli.model.handwritten.recipes import Recipe


# The context of a delegated task: what is inherited, the instruction, and the pointer to who asked.


_RECIPE = "delegate"


@cache
def _recipe() -> "Recipe":
    # The recipe that ships, whatever folder somebody works in: what a model's call packs is fixed.
    return read_recipe(_RECIPE, folders=()).recipe


def pack_context_with_instruction(
    runtime: "Runtime",
    *,
    profile: ProfileEntry,
    instruction: str,
    box_ids: Sequence[str],
    source_agent_id: str,
    tool_suffix: str,
) -> str:
    """Pack the cards of these boxes in order, then the instruction; the id of the new context box.

    The boxes are those that the caller may hand on. Takes part in the caller's transaction.
    """
    arguments = {"profile_name": profile.name, "instruction": instruction, "input_box_ids": list(box_ids)}
    packed = pack(
        runtime.database,
        runtime.project_id,
        recipe=_recipe(),
        recipe_name=_RECIPE,
        arguments=arguments,
        tool_suffix=tool_suffix,
        source_agent_id=source_agent_id,
        profile=profile,
    )
    assert packed.context_box_id is not None
    return packed.context_box_id


# Which boxes a caller may hand on: a box id is an address, and no permission.


def validate_box_ids_exist(runtime: Runtime, caller: Caller, box_ids: Sequence[str]) -> list[str]:
    """The canonical ids of these boxes in order, each once.

    A model may name only boxes that it sees: NotAllowed for another, whether or not there is one. Raises
    NotFound for a box that is not there. Reads in the caller's transaction.
    """
    wanted = unique(as_box_id(box_id) or box_id for box_id in box_ids)
    if caller.is_model:
        for box_id in wanted:
            if box_id not in caller.visible_box_ids:
                raise NotAllowed(
                    f"unauthorized box_id: {box_id!r} is no box that agent {caller.agent_id!r} sees",
                    hint="its own boxes are its context, output, memory and profile box",
                )
    found = runtime.boxes.existing(wanted) if wanted else set()
    for box_id in wanted:
        if box_id not in found:
            hint = "`cbx box list` shows the newest"
            raise NotFound(f"no box {box_id!r} in project {runtime.project_id!r}", hint=hint)
    return wanted


# The delegation policy of a caller's profile: which profiles its agent may ask. Pure.
#
# Nothing that is not said is allowed: a profile without a policy asks nobody.


def refusal_of(profile: Mapping[str, Any] | None, name: str, tags: Collection[str]) -> str | None:
    """Say in a sentence why an agent of `profile` may not ask one of the profile `name`; None if it may.

    Other programs store what they like: a policy that cannot be read allows nothing.
    """
    policy = (profile or {}).get("delegation_policy")
    if not isinstance(policy, dict):
        return "the caller's profile has no delegation_policy: it may ask nobody"
    names, wanted = policy.get("target_profiles"), policy.get("target_tags") or []
    if names is not None and (not isinstance(names, list) or name not in names):
        return f"the caller's delegation_policy has no {name!r} among its target_profiles"
    if wanted and not (isinstance(wanted, list) and any(tag in tags for tag in wanted)):
        return f"the profile {name!r} has none of the target_tags of the caller's delegation_policy"
    return None


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


# Delegating: one task is prepared and dispatched at once, in one transaction. Nobody waits for its end, but
# for a call that says so.
#
# Owns the idempotency by the turn's id. The other ways to ask one agent, launching a principal and asking an
# expert, are delegations of a kind.


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
