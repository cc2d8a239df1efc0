"""The internal handlers of cbx, with the arguments of each as a schema for models.

`handler_registry.py` lists these handlers and the handlers of installed packages.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import Field, StrictBool, StrictStr

from cardbox_cli.errors import BadRequest, NotAllowed
from cardbox_cli.execution.dispatch_requests import DispatchResult
from cardbox_cli.execution.handlers import Awaiting, Ending, Handler
from cardbox_cli.execution.provision import AgentRequest, provision
from cardbox_cli.model.card_types import RESULT_FIELDS
from cardbox_cli.model.content import FieldSchema
from cardbox_cli.model.execution.result_fields import field_schemas
from cardbox_cli.model.handwritten.documents import document_from_value
from cardbox_cli.model.handwritten.tasks import ForkJoin, Instruction, Task
from cardbox_cli.model.handwritten.validation import Section, Trimmed, fit, keys_of, tool_parameters
from cardbox_cli.orchestration.batch_creation import FORK_JOIN_NAME, create_batch, refuse_too_many
from cardbox_cli.orchestration.delegation import (
    ASK,
    DELEGATE,
    LAUNCH,
    ask_expert,
    delegate,
    launch_principal,
    policy_refusal,
    refuse_answered,
)
from cardbox_cli.orchestration.targets import new_agent_id
from cardbox_cli.store.boxes import cards_of_type
from cardbox_cli.store.profiles import ProfileStore

if TYPE_CHECKING:
    from cardbox_cli.execution.dispatch_requests import Caller
    from cardbox_cli.execution.runtime import Runtime


A = TypeVar("A", bound="Arguments")


class Arguments(Section):
    """The arguments of a handler. Models may write null for an optional argument that they omit."""

    @classmethod
    def parameters(cls) -> dict[str, Any]:
        return tool_parameters(cls)


class NewTurnArguments(Arguments):
    """The common arguments of handlers that create one turn."""

    agent_turn_id: StrictStr | None = Field(
        default=None,
        min_length=1,
        description="Your own id for the new turn. The same call with the same id creates no second turn.",
    )


def read_arguments(kind: type[A], name: str, arguments: Mapping[str, Any]) -> A:
    """Read the arguments of a call of handler `name`. Raises BadRequest with all problems."""
    optional = {key for key, field in keys_of(kind).items() if not field.is_required()}
    given = {key: value for key, value in arguments.items() if value is not None or key not in optional}
    return fit(kind, document_from_value(given, name), refuse_with=BadRequest)


def handler_result(result: DispatchResult) -> dict[str, Any]:
    names = ("status", "agent_id", "agent_turn_id", "turn_epoch", "context_box_id", "output_box_id")
    return {name: getattr(result, name) for name in names}


class _AskExpertArguments(NewTurnArguments):
    expert_profile: Trimmed = Field(description="The profile of the expert.")
    question: Instruction = Field(description="The question.")
    include_history: StrictBool = Field(
        default=False, description="Whether the expert first reads what you have written so far."
    )
    awaits: StrictBool = Field(
        default=False,
        alias="await",
        description="Whether to wait: the expert's answer is then the result of this call.",
    )


def _handle_ask_expert(runtime: "Runtime", caller: "Caller", arguments: dict[str, Any]) -> Any:
    asked = read_arguments(_AskExpertArguments, ASK, arguments)
    if asked.awaits:
        _require_waiting_call(caller, f"{ASK}: await: no call waits for the answer")
        refuse_answered(runtime, caller)
    expert = ask_expert(
        runtime,
        caller,
        asked.expert_profile,
        asked.question,
        include_history=asked.include_history,
        agent_turn_id=asked.agent_turn_id,
        waits=asked.awaits,
    )
    if not asked.awaits:
        return handler_result(expert.result)
    # The time limit of the expert's turn normally ends the wait. This limit applies if that turn never ends.
    return Awaiting(max(runtime.settings.tool_wait, runtime.settings.turn_time))


def _require_waiting_call(caller: "Caller", refusal: str) -> None:
    if caller.parent is None or caller.parent.tool_call_id is None:
        raise BadRequest(refusal, hint="pass --tool-call-id")


ASK_EXPERT = Handler(
    name=ASK,
    description="Ask a new agent with a profile one question. Returns ids at once, or the expert's "
    "answer if await is true.",
    parameters=_AskExpertArguments.parameters(),
    function=_handle_ask_expert,
)


class _DelegateAsyncArguments(Task, NewTurnArguments):
    pass


def _handle_delegate_async(runtime: "Runtime", caller: "Caller", arguments: dict[str, Any]) -> Any:
    asked = read_arguments(_DelegateAsyncArguments, DELEGATE, arguments)
    task = Task.model_validate(asked.model_dump(include=set(Task.model_fields)))
    return handler_result(delegate(runtime, caller, task, agent_turn_id=asked.agent_turn_id).result)


DELEGATE_ASYNC = Handler(
    name=DELEGATE,
    description="Give a task to another agent. Returns the ids of its agent, turn and boxes at once; "
    "its result is not returned to you.",
    parameters=_DelegateAsyncArguments.parameters(),
    function=_handle_delegate_async,
)


class _ForkJoinHandlerArguments(ForkJoin, Arguments):
    pass


def _handle_fork_join(runtime: "Runtime", caller: "Caller", arguments: dict[str, Any]) -> Any:
    tasks = arguments.get("tasks")
    refuse_too_many(len(tasks) if isinstance(tasks, list) else 0, runtime.settings.max_tasks)
    asked = read_arguments(_ForkJoinHandlerArguments, FORK_JOIN_NAME, arguments)
    _require_waiting_call(caller, f"{FORK_JOIN_NAME}: no call waits for the results")
    create_batch(runtime, caller, asked)
    # The suspension extends the deadline of the turn to the deadline of its batch.
    return Awaiting(0)


FORK_JOIN = Handler(
    name=FORK_JOIN_NAME,
    description="Give several tasks to other agents, which run at the same time, and wait for all of "
    "them. The result has a status, and in task order the status, a summary and the box of each task.",
    parameters=_ForkJoinHandlerArguments.parameters(),
    function=_handle_fork_join,
)


class _LaunchPrincipalArguments(NewTurnArguments):
    profile_name: Trimmed = Field(description="The profile of the agent to launch.")
    instruction: Instruction = Field(description="What to do.")


def _handle_launch_principal(runtime: "Runtime", caller: "Caller", arguments: dict[str, Any]) -> Any:
    asked = read_arguments(_LaunchPrincipalArguments, LAUNCH, arguments)
    name, instruction, turn_id = asked.profile_name, asked.instruction, asked.agent_turn_id
    launched = launch_principal(runtime, caller, name, instruction, agent_turn_id=turn_id)
    return handler_result(launched.result)


LAUNCH_PRINCIPAL = Handler(
    name=LAUNCH,
    description="Start a new agent with a profile on its own task. It reads only the instruction. "
    "Returns ids at once; its result is not returned to you.",
    parameters=_LaunchPrincipalArguments.parameters(),
    function=_handle_launch_principal,
)


_PROVISION_AGENT = "provision_agent"


class _ProvisionAgentArguments(Arguments):
    profile: Trimmed = Field(description="The name of the agent's profile.")
    agent_id: Trimmed | None = Field(default=None, description="The agent's id. Default: a new agent.")
    owner: Trimmed | None = Field(default=None, description="The owner of the new agent. Default: you.")


def _handle_provision_agent(runtime: "Runtime", caller: "Caller", arguments: dict[str, Any]) -> Any:
    asked = read_arguments(_ProvisionAgentArguments, _PROVISION_AGENT, arguments)
    profile = ProfileStore(runtime.database, runtime.project_id).get(asked.profile)
    refused = policy_refusal(caller.profile, profile.name, profile.tags) if caller.is_model else None
    if refused is not None:
        raise NotAllowed(
            f"{_PROVISION_AGENT}: profile: {refused}", hint="`cbx profile show` shows its delegation_policy"
        )
    request = AgentRequest(
        agent_id=asked.agent_id or new_agent_id(profile),
        profile_name=profile.name,
        owner_agent_id=asked.owner or caller.agent_id,
    )
    done = provision(runtime.database, runtime.project_id, request, source_agent_id=caller.agent_id)
    return {"status": "accepted", "agent_id": done.agent.agent_id, "action": done.action}


PROVISION_AGENT = Handler(
    name=_PROVISION_AGENT,
    description="Create an idle agent with a profile, which can receive tasks later. An existing agent "
    "that matches the request does not change.",
    parameters=_ProvisionAgentArguments.parameters(),
    function=_handle_provision_agent,
)


_SUBMIT_RESULT = "submit_result"


class _Field(Section):
    name: StrictStr = Field(min_length=1, description="The name of the field.")
    value: Any = Field(description="The value of the field: a text, or any JSON.")

    may_be_null = frozenset({"value"})


class _SubmitResultArguments(Arguments):
    fields: list[_Field] = Field(min_length=1, description="The fields of the result, each once.")


def _fit_parameters(asked: Sequence[FieldSchema]) -> dict[str, Any]:
    """Return the schema of the arguments, with the requested result fields in a description."""
    schema = _SubmitResultArguments.parameters()
    if asked:
        descriptions = "; ".join(f"{each.name}: {each.description}".rstrip(": ") for each in asked)
        schema["properties"]["fields"]["description"] += f" Asked for: {descriptions}"
    return schema


def _handle_submit_result(runtime: "Runtime", caller: "Caller", arguments: dict[str, Any]) -> Ending:
    given = read_arguments(_SubmitResultArguments, _SUBMIT_RESULT, _normalize_fields(arguments)).fields
    head = runtime.heads.get(caller.agent_id)
    context = None if head is None else head.context_box_id
    asked = [each.name for each in field_schemas(cards_of_type(runtime.boxes, context, RESULT_FIELDS))]
    _check_names(asked, [each.name for each in given])
    order = {name: position for position, name in enumerate(asked)}
    fields = sorted(given, key=lambda each: order.get(each.name, len(order)))
    result = {"fields": [{"name": each.name, "value": each.value} for each in fields]}
    return Ending({"status": "accepted"}, result)


def _normalize_fields(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with each field as {name, value}, even if the model wrote {NAME: VALUE}."""
    given = arguments.get("fields")
    if isinstance(given, dict):
        return {**arguments, "fields": _pairs(given)}
    if isinstance(given, list):
        return {**arguments, "fields": [field for each in given for field in _fields_of(each)]}
    return arguments


def _fields_of(item: Any) -> Iterable[Any]:
    return _pairs(item) if isinstance(item, dict) and not {"name", "value"} & item.keys() else [item]


def _pairs(given: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in given.items()]


def _check_names(asked: Sequence[str], given: Sequence[str]) -> None:
    """Raise BadRequest for missing and for repeated fields."""
    missing = [name for name in asked if name not in given]
    repeated = [name for name, times in Counter(given).items() if times > 1]
    problems = {"missing": missing, "more than once": repeated}
    texts = [f"{what} {', '.join(map(repr, names))}" for what, names in problems.items() if names]
    if texts:
        raise BadRequest(f"{_SUBMIT_RESULT}: fields: {'; '.join(texts)}")


SUBMIT_RESULT = Handler(
    name=_SUBMIT_RESULT,
    description="Hand in the result of your task and finish. Call it alone, once everything is done.",
    parameters=_fit_parameters(()),
    function=_handle_submit_result,
    fitted=_fit_parameters,
    ends_turn=True,
)


def own_handlers() -> tuple[Handler, ...]:
    return (DELEGATE_ASYNC, LAUNCH_PRINCIPAL, ASK_EXPERT, FORK_JOIN, PROVISION_AGENT, SUBMIT_RESULT)
