"""Delegations: check tasks, create their agents, pack their contexts, and dispatch them.

`prepare` and `dispatch_delegation` run in the caller's transaction. A single task runs both in one
transaction, and a batch dispatches later. Nothing is written until all tasks are known to be valid.
`delegate` with the id of an existing turn is a replay. Launching a principal and asking an expert are also
delegations.
"""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from cardbox_cli.errors import BadRequest, CbxError, Conflict, CorrelationConflict, NotAllowed, NotFound
from cardbox_cli.execution.dispatch import dispatch, dispatch_result
from cardbox_cli.execution.dispatch_requests import Caller, DispatchRequest, DispatchResult, refusal_error
from cardbox_cli.execution.provision import add_agent
from cardbox_cli.execution.queue.messages import TURN
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model import exact_json
from cardbox_cli.model.handwritten.tasks import Strategy, Task
from cardbox_cli.model.ids import canonical_box_id, check_new_id, unique
from cardbox_cli.orchestration.targets import DelegationTarget, DelegationTargets
from cardbox_cli.packing.pack import Packing
from cardbox_cli.packing.plan import internal_problem, lost_cards_error
from cardbox_cli.packing.recipe_files import read_recipe
from cardbox_cli.text.error_messages import ValuePath, format_path

if TYPE_CHECKING:
    from cardbox_cli.model.handwritten.recipes import Recipe


_RECIPE = "delegate"
DELEGATE, LAUNCH, ASK = "delegate_async", "launch_principal", "ask_expert"
_COMMANDS = {DELEGATE: "delegate", LAUNCH: "launch", ASK: "ask"}


def _name_in_errors(handler: str, caller: Caller) -> str:
    """Return the name that the caller used: a model that of a handler, a person that of a command."""
    return handler if caller.is_model else _COMMANDS.get(handler, handler)


@cache
def _recipe() -> "Recipe":
    # Read the recipe that ships with cbx, even if the working directory has one with this name. Then a
    # model's call always packs the same context.
    return read_recipe(_RECIPE, folders=()).recipe


def _check_boxes(runtime: Runtime, caller: Caller, box_ids: Sequence[str]) -> list[str]:
    """Return the canonical ids of these boxes in order, without duplicates, in the caller's transaction.

    A box id is an address and not a permission, so a model may only pass on boxes that it sees. For any other
    id, it gets NotAllowed, even if the box does not exist. Raises NotFound for a missing box.
    """
    canonical_ids = unique(canonical_box_id(box_id) or box_id for box_id in box_ids)
    if caller.is_model:
        for box_id in canonical_ids:
            if box_id not in caller.visible_box_ids:
                raise NotAllowed(
                    f"unauthorized box_id: {box_id!r} is not visible to agent {caller.agent_id!r}",
                    hint="the agent sees only its context, output, memory and profile boxes",
                )
    existing = runtime.boxes.filter_existing(canonical_ids) if canonical_ids else set()
    for box_id in canonical_ids:
        if box_id not in existing:
            hint = "`cbx box list` shows the boxes"
            raise NotFound(f"no box {box_id!r} in project {runtime.project_id!r}", hint=hint)
    return canonical_ids


def _refuse_unreadable(runtime: Runtime, box_ids: Sequence[str], *, allow_dangling: bool) -> None:
    """Raise BadRequest for a box that only cbx reads, NotFound for a box with ids of cards that are gone."""
    known = runtime.boxes.inheritable(box_ids) if box_ids else {}
    for box_id in box_ids:
        if problem := internal_problem(known[box_id]):
            hint = "pass a box with a conversation; `cbx box list` shows them"
            raise BadRequest(f"box {box_id} {problem}", hint=hint)
    _refuse_lost_cards(runtime, box_ids, allow_dangling=allow_dangling)


def _refuse_lost_cards(runtime: Runtime, box_ids: Sequence[str], *, allow_dangling: bool) -> None:
    if allow_dangling:
        return
    for box_id, card_ids in runtime.boxes.id_lists(box_ids).items() if box_ids else ():
        if lost := runtime.boxes.lost_cards(card_ids):
            raise lost_cards_error(f"box {box_id}", lost)


def policy_refusal(profile: Mapping[str, Any] | None, name: str, tags: Collection[str]) -> str | None:
    """Return a sentence if an agent of `profile` may not delegate to the profile `name`, or None if it may.

    A profile without a policy allows nothing. The same applies to an invalid policy of another program.
    """
    policy = (profile or {}).get("delegation_policy")
    if not isinstance(policy, dict):
        return "the caller's profile has no delegation_policy, so it may not delegate"
    names, target_tags = policy.get("target_profiles"), policy.get("target_tags") or []
    if names is not None and (not isinstance(names, list) or name not in names):
        return f"the caller's delegation_policy has no {name!r} among its target_profiles"
    if target_tags and not (isinstance(target_tags, list) and any(tag in tags for tag in target_tags)):
        return f"the profile {name!r} has none of the target_tags of the caller's delegation_policy"
    return None


class Delegation(msgspec.Struct, frozen=True, kw_only=True):
    """A task that is ready to dispatch: its agent is on the roster, and its context is packed.

    `output_box_id` is the box to which the agent continues to write, or None for a new box. `notes` warn a
    person about requests that the caller's policy would refuse to a model.
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
    target: DelegationTarget
    box_ids: list[str]
    notes: list[str]


def prepare(
    runtime: Runtime,
    caller: Caller,
    tasks: Sequence[Task],
    *,
    tool_suffix: str,
    within: ValuePath | None = None,
    allow_dangling: bool = False,
) -> list[Delegation]:
    """Check these tasks, then create their agents and pack their contexts, in order.

    Joins the caller's transaction. Raises before anything is written: NotFound, NotAllowed or BadRequest for
    one problem, BadRequest with all problems for several. `within` is the path of the list of tasks in the
    request, None for a single task. `tool_suffix` is the author of the instructions; errors begin with it.
    `allow_dangling` accepts boxes with ids of cards that do not exist.
    """
    with runtime.transaction(savepoint=False):
        checked = _check_all(runtime, caller, tasks, tool_suffix, within, allow_dangling=allow_dangling)
        return [_create_agent_and_context(runtime, caller, each, tool_suffix) for each in checked]


def dispatch_delegation(
    runtime: Runtime, delegation: Delegation, caller: Caller, **options: Any
) -> DispatchResult:
    """Dispatch the turn of a delegation as a child of the caller's turn, on the same channel.

    `options` are further fields of DispatchRequest, for example `correlation_id`. Joins the caller's
    transaction, which must end if this raises. Raises NotAccepted with the error code of a refusal, NotFound
    for an unknown agent, and CorrelationConflict if an id is taken.
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
    if dispatched.result.status != "accepted":
        raise refusal_error(dispatched)
    return dispatched.result


def digest_of(caller: Caller, parts: Any) -> str:
    """Return a SHA-256 that equal requests of a caller share. `parts` is a JSON value."""
    turn = caller.parent.agent_turn_id if caller.parent else None
    return hashlib.sha256(exact_json.encode([caller.agent_id, turn, caller.channel_id, parts])).hexdigest()


# --- checking


def _check_all(
    runtime: Runtime,
    caller: Caller,
    tasks: Sequence[Task],
    name: str,
    within: ValuePath | None,
    *,
    allow_dangling: bool,
) -> list[_Checked]:
    targets = DelegationTargets(runtime, caller)
    checked: list[_Checked] = []
    problems: list[tuple[ValuePath, CbxError]] = []
    for index, task in enumerate(tasks):
        for key, error in _problems(runtime, caller, targets, task, checked, allow_dangling):
            problems.append(((*within, index, key) if within is not None else (key,), error))
    if problems:
        raise _refusal(_name_in_errors(name, caller), problems)
    return checked


def _problems(
    runtime: Runtime,
    caller: Caller,
    targets: DelegationTargets,
    task: Task,
    checked: list[_Checked],
    allow_dangling: bool,
) -> Iterator[tuple[str, CbxError]]:
    """Yield the problems of a task with their keys. Add a valid task to `checked`."""
    given = [task.context_box_id] if task.context_box_id else []
    target, refused = None, None
    box_ids: list[str] = []
    try:
        target = targets.find(task)
        name, tags = target.profile.name, target.profile.tags
        refused = policy_refusal(caller.profile, name, tags) if caller.is_agent else None
    except CbxError as error:
        _raise_other_errors(error)
        yield "target_ref", error
    if refused is not None and caller.is_model:
        yield "target_ref", NotAllowed(refused, hint="`cbx profile show` shows its delegation_policy")
    try:
        box_ids = _check_boxes(runtime, caller, given)
        _refuse_unreadable(runtime, box_ids, allow_dangling=allow_dangling)
    except CbxError as error:
        _raise_other_errors(error)
        yield "context_box_id", error
    if target is not None:
        inherited = [target.inherited_box_id] if target.inherited_box_id else []
        try:
            _refuse_lost_cards(runtime, inherited, allow_dangling=allow_dangling)
        except NotFound as error:
            yield "target_ref", error
        notes = [] if refused is None else [refused]
        checked.append(_Checked(task, target, unique([*box_ids, *inherited]), notes))


def _raise_other_errors(error: CbxError) -> None:
    """Raise the error again if the task did not cause it, for example if the database is unavailable."""
    if error.exit_code not in (3, 4):
        raise error


def _refusal(name: str, problems: Sequence[tuple[ValuePath, CbxError]]) -> CbxError:
    entries = [
        {"path": format_path(where), "code": error.code, "message": error.message}
        for where, error in problems
    ]
    lines = [f"{name}: {each['path']}: {each['message']}" for each in entries]
    if len(problems) == 1:
        _, error = problems[0]
        return type(error)(lines[0], hint=error.hint, details={"problems": entries})
    message = "\n".join([f"{name}: {len(problems)} problems", *lines])
    return BadRequest(message, hint="nothing was written", details={"problems": entries})


# --- writing


def _create_agent_and_context(
    runtime: Runtime, caller: Caller, checked: _Checked, tool_suffix: str
) -> Delegation:
    target = checked.target
    if target.is_new and add_agent(runtime.roster, target.agent, source_agent_id=caller.agent_id) is None:
        raise Conflict(f"the agent id {target.agent.agent_id!r} is taken", hint="try again")
    packed = Packing(
        runtime.database,
        runtime.project_id,
        recipe=_recipe(),
        recipe_name=_RECIPE,
        arguments={
            "profile_name": target.profile.name,
            "instruction": checked.task.instruction,
            "input_box_ids": checked.box_ids,
        },
        tool_suffix=tool_suffix,
        source_agent_id=caller.agent_id,
        profile=target.profile,
        # `prepare` has checked the boxes.
        allow_dangling=True,
    ).pack()
    assert packed.context_box_id is not None
    return Delegation(
        target_strategy=target.strategy,
        agent_id=target.agent.agent_id,
        profile_name=target.profile.name,
        profile_box_id=target.agent.profile_box_id,
        context_box_id=packed.context_box_id,
        output_box_id=target.output_box_id,
        notes=checked.notes,
    )


class DelegationOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a delegation. `notes` warn a person about the caller's policy."""

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
    allow_dangling: bool = False,
) -> DelegationOutcome:
    """Delegate a task to another agent: create its agent, context and turn in one transaction.

    `agent_turn_id` is the id of the new turn. The same request with this id returns the existing turn. A
    different request raises CorrelationConflict. With `waits`, the end of the turn answers the caller's tool
    call. `allow_dangling` is that of `prepare`. Joins the caller's transaction. Raises the errors of
    `prepare` and `dispatch_delegation`.
    """
    runtime.database.require_execution()
    asking = caller if waits else _not_waiting(caller)
    context_box_id = canonical_box_id(task.context_box_id or "") or task.context_box_id
    digest = digest_of(asking, [tool_suffix, {**task.model_dump(), "context_box_id": context_box_id}, waits])
    if agent_turn_id is not None:
        check_new_id(agent_turn_id, "the turn id", "such as turn_ and a UUID; omit the id to get a new id")
    with runtime.transaction():
        earlier = None if agent_turn_id is None else _find_earlier(runtime, agent_turn_id, digest)
        if earlier is not None:
            return DelegationOutcome(result=earlier)
        (prepared,) = prepare(runtime, asking, [task], tool_suffix=tool_suffix, allow_dangling=allow_dangling)
        result = dispatch_delegation(
            runtime, prepared, asking, agent_turn_id=agent_turn_id, request_sha256=digest
        )
    return DelegationOutcome(result=result, notes=prepared.notes)


def launch_principal(
    runtime: Runtime, caller: Caller, profile_name: str, instruction: str, **more: Any
) -> DelegationOutcome:
    """Delegate an instruction to a new agent of a profile. `more` are options of `delegate`."""
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
) -> DelegationOutcome:
    """Ask a new agent of a profile one question. `more` are options of `delegate`.

    With `include_history`, the agent also reads the caller's output box. Raises BadRequest if there is none.
    """
    if include_history and caller.output_box_id is None:
        who = f"agent {caller.agent_id!r}" if caller.is_agent else "a person"
        name = _name_in_errors(ASK, caller)
        raise BadRequest(f"{name}: include_history: {who} has no history", hint="leave the history out")
    history = caller.output_box_id if include_history else None
    task = Task(
        target_strategy="new", target_ref=expert_profile, instruction=question, context_box_id=history
    )
    return delegate(runtime, caller, task, tool_suffix=ASK, **more)


def _not_waiting(caller: Caller) -> Caller:
    """Return the caller without its tool call, for a turn whose end must not answer that call."""
    if caller.parent is None:
        return caller
    parent = msgspec.structs.replace(caller.parent, tool_call_id=None)
    return msgspec.structs.replace(caller, parent=parent)


def _find_earlier(runtime: Runtime, agent_turn_id: str, digest: str) -> DispatchResult | None:
    """Return the result of an earlier request with this turn id, or None. Raises CorrelationConflict."""
    row = runtime.inbox.turn_row(agent_turn_id) or runtime.inbox.find_by_correlation(TURN.name, agent_turn_id)
    if row is None:
        return None
    edge = runtime.turns.enqueue_edge(agent_turn_id)
    known = edge.metadata.get("request_sha256") if edge and isinstance(edge.metadata, dict) else None
    if known != digest:
        raise CorrelationConflict(
            f"turn id {agent_turn_id!r} was already used for a different request"
            f" (a turn of agent {row.agent_id!r})",
            hint="use another turn id, or repeat the first request exactly",
            details={"agent_turn_id": agent_turn_id, "agent_id": row.agent_id},
        )
    return dispatch_result(runtime, row, created=False)


def refuse_answered(runtime: Runtime, caller: Caller) -> None:
    """Raise Conflict if the caller's tool call already waits for the end of another turn."""
    parent = caller.parent
    if parent is None or parent.tool_call_id is None:
        return
    for edge in runtime.turns.edges(parent.agent_turn_id):
        to = edge.metadata.get("report_to") if isinstance(edge.metadata, dict) else None
        if isinstance(to, dict) and to.get("tool_call_id") == parent.tool_call_id:
            raise Conflict(
                f"turn {edge.target_agent_turn_id} already answers the call {parent.tool_call_id!r}",
                hint=f"nothing was written; see `cbx turn show {edge.target_agent_turn_id}`",
            )
