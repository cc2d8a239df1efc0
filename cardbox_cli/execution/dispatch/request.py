"""What a dispatch is asked, and what it answers: values, and the refusal that ends its transaction."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import msgspec

from cardbox_cli.model.cards import OPERATOR
from cardbox_cli.model.execution.turns import DEFAULT_CHANNEL
from cardbox_cli.packing.pack import Packed

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
