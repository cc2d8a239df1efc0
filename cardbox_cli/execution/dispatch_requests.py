"""What a dispatch is asked, and what it answers: values, and the refusal that ends its transaction."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import msgspec

from cardbox_cli.context.request import profile_of
from cardbox_cli.errors import Conflict, NotFound
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.cards import OPERATOR
from cardbox_cli.model.execution.turns import DEFAULT_CHANNEL
from cardbox_cli.model.identity import PLATFORM
from cardbox_cli.packing.pack import Packed
from cardbox_cli.store.profiles import ProfileStore
from cardbox_cli.text import argument

if TYPE_CHECKING:
    from cardbox_cli.model.handwritten.recipes import Recipe


DepthPolicy = Literal["descend", "peer", "root"]


class Parent(msgspec.Struct, frozen=True, kw_only=True):
    """The turn on whose behalf another runs; `tool_call_id` names the call of it that waits for the end."""

    agent_turn_id: str
    step_id: str | None = None
    tool_call_id: str | None = None


class Handover(msgspec.Struct, frozen=True, kw_only=True):
    """A recipe and its arguments, from which the context box is packed in the same transaction.

    `turn` is the metadata that names the turn whose words the arguments are, if one packs.
    """

    recipe: "Recipe"
    recipe_name: str
    arguments: Mapping[str, Any]
    turn: Mapping[str, str] = {}


class DispatchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for: exactly one of `context_box_id` and `handover` says what the turn will see.

    `profile_box_id` defaults to the agent's, `output_box_id` to a new box, `correlation_id` to the turn's id,
    `agent_turn_id`, the id of the turn to be made, to a new one, and `request_sha256`, of what makes two
    requests the same, to that of what the turn will see. `batch` says of which batch the turn is a child,
    and is kept with the edge.
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
    """What came of it. `turn_epoch` is None while the turn is queued, at `queue_position` from 1.

    `status` is accepted, busy, rejected or error; for the last three `error_code` says why and `message` in
    words, and no row was written. `created` is False for the answer to a request that had been made before.
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


class Dispatched(msgspec.Struct, frozen=True):
    """A result, what it means in words where it was not accepted, and what was packed for it."""

    result: DispatchResult
    message: str | None = None
    packed: Packed | None = None


class Refusal(Exception):
    """The answer to a request that is not accepted. Leaves the transaction, so that nothing of it stays."""

    def __init__(self, error_code: str, message: str, status: str) -> None:
        self.error_code, self.message, self.status = error_code, message, status


def refuse(error_code: str, message: str, status: str = "rejected") -> NoReturn:
    """Do not accept the request. Raises Refusal."""
    raise Refusal(error_code, message, status)


# On whose behalf turns are asked for: an agent at a call of a turn of its, an agent that a person names, or
# a person alone.
#
# Owns what is known of the caller before anything is asked: its profile, and the boxes that it sees.


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks; by default a person at a terminal.

    `parent` is the turn, step and call in which an agent asks, `profile` what its profile says (None where it
    has none), `output_box_id` the box that it writes, or wrote last. `is_model`: nobody else decided it, so
    what its profile does not allow, and what is not among `visible_box_ids`, is refused.
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
        """Whether it is an agent, and no person or platform."""
        return not self.agent_id.startswith(PLATFORM)


def calling_turn(
    runtime: Runtime, agent_turn_id: str, *, step_id: str | None = None, tool_call_id: str | None = None
) -> Caller:
    """The agent of an active turn, which asks at this step and call of it.

    Raises NotFound for an unknown turn, Conflict for one that is not active.
    """
    head = runtime.turns.head_of(agent_turn_id)
    if head is None:
        if runtime.inbox.turn_row(agent_turn_id) is None:
            raise NotFound(f"no turn {agent_turn_id!r}", hint="`cbx turn list` shows the turns")
        hint = f"`cbx turn show {argument(agent_turn_id)}` tells where it is; only an active turn calls"
        raise Conflict(f"turn {agent_turn_id} is not active", hint=hint)
    parent = Parent(agent_turn_id=agent_turn_id, step_id=step_id, tool_call_id=tool_call_id)
    asking = _agent(runtime, head.agent_id)
    channel_id = head.active_channel_id or DEFAULT_CHANNEL
    return msgspec.structs.replace(asking, parent=parent, channel_id=channel_id, is_model=True)


def named_caller(runtime: Runtime, agent_id: str) -> Caller:
    """Whom a person names at a terminal. Raises NotFound for an unknown agent."""
    return Caller(agent_id=agent_id) if agent_id.startswith(PLATFORM) else _agent(runtime, agent_id)


def _agent(runtime: Runtime, agent_id: str) -> Caller:
    places = runtime.roster.places(agent_id)
    if places is None:
        raise runtime.roster.absent(agent_id, "`cbx agent list` shows the agents")
    card = ProfileStore(runtime.database, runtime.project_id).card(places.profile_box_id)
    return Caller(
        agent_id=agent_id,
        profile=None if card is None else profile_of([card]),
        visible_box_ids=places.box_ids,
        output_box_id=places.output,
    )
