"""The request for a turn, its caller, its result, and the refusal that ends its transaction."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import msgspec

from cardbox_cli.context.request import profile_of
from cardbox_cli.errors import CbxError, Conflict, NotAccepted, NotFound
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.cards import OPERATOR
from cardbox_cli.model.execution.turns import DEFAULT_CHANNEL
from cardbox_cli.model.identity import PLATFORM
from cardbox_cli.packing.pack import PackResult
from cardbox_cli.packing.plan import target_profile_name
from cardbox_cli.store.profiles import ProfileStore
from cardbox_cli.text.command_lines import quote_argument

if TYPE_CHECKING:
    from cardbox_cli.model.handwritten.recipes import Recipe


DepthPolicy = Literal["descend", "peer", "root"]


class Parent(msgspec.Struct, frozen=True, kw_only=True):
    """The turn on whose behalf the new turn runs. Its call `tool_call_id` waits for the new turn to end."""

    agent_turn_id: str
    step_id: str | None = None
    tool_call_id: str | None = None


class Handover(msgspec.Struct, frozen=True, kw_only=True):
    """A recipe and its arguments. The dispatch packs the context box from them in its transaction.

    If a turn requests this, `turn` is the metadata that names that turn as the author of the arguments.
    `allow_dangling` accepts inherited ids without a card.
    """

    recipe: "Recipe"
    recipe_name: str
    arguments: Mapping[str, Any]
    turn: Mapping[str, str] = {}
    allow_dangling: bool = False

    @property
    def profile_name(self) -> str:
        """The name of the profile for which the recipe packs. Raises BadRequest for invalid arguments."""
        return target_profile_name(self.recipe, self.recipe.bind(self.arguments))


class DispatchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a turn. Exactly one of `context_box_id` and `handover` defines what the turn sees.

    If `profile_box_id` is None, the turn gets the agent's profile box. It gets a new output box or turn id if
    none is given. `correlation_id` defaults to the turn id. Equal requests have equal `request_sha256`, which
    cbx computes if it is None. `batch` names the batch that the turn belongs to, and is stored in the edge.
    """

    target_agent_id: str
    context_box_id: str | None = None
    handover: Handover | None = None
    channel_id: str = DEFAULT_CHANNEL
    source_agent_id: str = OPERATOR
    profile_box_id: str | None = None
    output_box_id: str | None = None
    correlation_id: str | None = None
    agent_turn_id: str | None = None
    depth_policy: DepthPolicy = "descend"
    parent: Parent | None = None
    trace_id: str | None = None
    display_name: str | None = None
    runtime_config: dict[str, Any] = {}
    metadata: dict[str, Any] | None = None
    request_sha256: str | None = None
    batch: Mapping[str, Any] | None = None
    emit_state: bool = False


class DispatchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a dispatch. A queued turn has a `queue_position`, counted from 1, and no `turn_epoch`.

    `status` is accepted, busy, rejected or error. If it is not accepted, no row was written and `error_code`
    is set. `created` is False if an equal request was accepted before.
    """

    status: str
    error_code: str | None = None
    agent_id: str
    agent_turn_id: str | None = None
    turn_epoch: int | None = None
    queue_position: int | None = None
    context_box_id: str | None = None
    output_box_id: str | None = None
    inbox_id: str | None = None
    recursion_depth: int | None = None
    trace_id: str | None = None
    created: bool = False


class DispatchOutcome(msgspec.Struct, frozen=True):
    """The outcome of a dispatch: its result, the message of a refusal, and the packed context."""

    result: DispatchResult
    message: str | None = None
    packed: PackResult | None = None


NO_AGENT = "agent_not_found"
"""The error code for an unknown agent."""


def refusal_error(dispatched: DispatchOutcome, hint: str = "nothing was written") -> CbxError:
    """Return the error of a refused dispatch: NotFound for an unknown agent, otherwise NotAccepted."""
    result, message = dispatched.result, dispatched.message or ""
    details = {"status": result.status, "error_code": result.error_code}
    if result.error_code == NO_AGENT:
        return NotFound(message, hint=hint, details=details)
    reason = f"not accepted ({result.status}, {result.error_code}): {message}"
    return NotAccepted(reason, hint=hint, details=details)


class Refusal(Exception):
    """The refusal of a request. It is raised through the transaction, which rolls back the request's rows."""

    def __init__(self, error_code: str, message: str, status: str) -> None:
        self.error_code, self.message, self.status = error_code, message, status


def refuse(error_code: str, message: str, status: str = "rejected") -> NoReturn:
    raise Refusal(error_code, message, status)


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The requester of a turn: a person at a terminal (the default), an agent by name, or a running turn.

    `parent` has the turn, step and tool call of a running turn. `profile` is the content of the agent's
    profile. `output_box_id` is the box to which the agent writes now or wrote last. `is_model` is True if a
    model made the request. Then cbx refuses actions that the profile does not allow, and boxes that are not
    in `visible_box_ids`.
    """

    agent_id: str = OPERATOR
    parent: Parent | None = None
    channel_id: str = DEFAULT_CHANNEL
    profile: Mapping[str, Any] | None = None
    visible_box_ids: frozenset[str] = frozenset()
    output_box_id: str | None = None
    is_model: bool = False

    @property
    def is_agent(self) -> bool:
        """True if the requester is an agent. False if it is a person, or cbx itself."""
        return not self.agent_id.startswith(PLATFORM)


def calling_turn(
    runtime: Runtime, agent_turn_id: str, *, step_id: str | None = None, tool_call_id: str | None = None
) -> Caller:
    """Return the agent of an active turn as the caller, at this step and tool call.

    Raises NotFound for an unknown turn, and Conflict if the turn is not active.
    """
    head = runtime.turns.head_of(agent_turn_id)
    if head is None:
        if runtime.inbox.turn_row(agent_turn_id) is None:
            raise NotFound(f"no turn {agent_turn_id!r}", hint="`cbx turn list` shows the turns")
        show = f"`cbx turn show {quote_argument(agent_turn_id)}`"
        hint = f"run {show} for its state; only active turns can call"
        raise Conflict(f"turn {agent_turn_id} is not active", hint=hint)
    parent = Parent(agent_turn_id=agent_turn_id, step_id=step_id, tool_call_id=tool_call_id)
    asking = _agent(runtime, head.agent_id)
    channel_id = head.active_channel_id or DEFAULT_CHANNEL
    return msgspec.structs.replace(asking, parent=parent, channel_id=channel_id, is_model=True)


def named_caller(runtime: Runtime, agent_id: str) -> Caller:
    """Return the caller that a person names at a terminal. Raises NotFound for an unknown agent."""
    return Caller(agent_id=agent_id) if agent_id.startswith(PLATFORM) else _agent(runtime, agent_id)


def _agent(runtime: Runtime, agent_id: str) -> Caller:
    places = runtime.roster.places(agent_id)
    if places is None:
        raise runtime.roster.not_found(agent_id, "`cbx agent list` shows the agents")
    card = ProfileStore(runtime.database, runtime.project_id).card(places.profile_box_id)
    return Caller(
        agent_id=agent_id,
        profile=None if card is None else profile_of([card]),
        visible_box_ids=places.box_ids,
        output_box_id=places.output,
    )
