"""The message types of the inbox, and the inbox row and edge that cbx writes for a message.

All code that depends on a row's type reads its `MessageType`. `claims.py` processes claimed rows, and
`reports.py` applies reports. The SQL fragments `known_types` and `report_types` repeat the type names.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.execution.headers import Lineage, turn_headers
from cardbox_cli.model.execution.turns import PENDING, QUEUED, Edge, Fence, InboxRow, new_id
from cardbox_cli.store.execution.inbox_store import NewRow


class MessageType(msgspec.Struct, frozen=True, kw_only=True):
    """A type of inbox message.

    `claim` is the effect of a claim: `run` the turn, `apply` the result to the waiting call, or `stop` the
    turn. It is None if such rows are never claimed. `payload` lists the required keys. A new row has the
    status `begins`. `retry` is the effect of a retry: make the dead row due again, or dispatch a new turn.
    `brings` describes the content of a report in a timeline.
    """

    name: str
    claim: Literal["run", "apply", "stop"] | None
    primitive: Literal["enqueue", "report", "tool_call"]
    edge_phase: Literal["request", "response"]
    payload: tuple[str, ...]
    begins: str = PENDING
    enqueue_mode: str | None = None
    retry: Literal["row", "new turn"] = "row"
    brings: str = "a result"


TURN = MessageType(
    name="turn",
    claim="run",
    primitive="enqueue",
    edge_phase="request",
    payload=("profile_box_id", "context_box_id", "output_box_id"),
    begins=QUEUED,
    enqueue_mode="call",
    retry="new turn",
)
TOOL_RESULT = MessageType(
    name="tool_result",
    claim="apply",
    primitive="report",
    edge_phase="response",
    payload=("after_execution", "status", "tool_result_card_id"),
)
TIMEOUT = msgspec.structs.replace(TOOL_RESULT, name="timeout", brings="a timeout")
STOP = MessageType(name="stop", claim="stop", primitive="enqueue", edge_phase="request", payload=("reason",))
# Other programs write such a row, already consumed, for each tool call. A report finds its turn by this row.
ANCHOR = MessageType(
    name="command_anchor", claim=None, primitive="tool_call", edge_phase="request", payload=()
)

TYPES = {each.name: each for each in (TURN, TOOL_RESULT, TIMEOUT, STOP, ANCHOR)}

# The protocol forbids these keys in a payload: identity belongs in columns and headers.
CONTROL_KEYS = frozenset(
    {
        "project_id",
        "channel_id",
        "channel",
        "agent_id",
        "agent_turn_id",
        "turn_epoch",
        "step_id",
        "tool_call_id",
        "trace_id",
        "traceparent",
        "tracestate",
        "parent_agent_id",
        "parent_agent_turn_id",
        "parent_step_id",
        "parent_traceparent",
        "recursion_depth",
    }
)


def type_of(row: InboxRow) -> MessageType | None:
    """Return the type of a row, or None if only other programs know the type."""
    return TYPES.get(row.message_type)


def is_turn(row: InboxRow) -> bool:
    return row.message_type in _RUN


def is_report(row: InboxRow) -> bool:
    return row.message_type in _APPLY


_RUN = frozenset(each.name for each in TYPES.values() if each.claim == "run")
_APPLY = frozenset(each.name for each in TYPES.values() if each.claim == "apply")


class InboxMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message to the turn that `fence` identifies. `lineage` holds the turn's depth, trace and parent.

    A message that answers a tool call has the `tool_call_id` of the call and the `step_id` of its step. If
    `inbox_id` is None, the row gets a new id. If `status` is None, it gets the first status of its type.
    """

    type: MessageType
    fence: Fence
    channel_id: str
    lineage: Lineage
    correlation_id: str | None
    payload: dict[str, Any]
    tool_call_id: str | None = None
    step_id: str | None = None
    inbox_id: str | None = None
    status: str | None = None


class Sender(msgspec.Struct, frozen=True):
    """The agent that sends a message. The turn and step are None if it sends the message outside a turn."""

    agent_id: str
    agent_turn_id: str | None = None
    step_id: str | None = None


def write_row(runtime: Runtime, message: InboxMessage) -> InboxRow | None:
    """Write the row of a message without its edge. Return None if the row's id is taken."""
    return runtime.inbox.insert(row_of(runtime.project_id, message))


def row_of(project_id: str, message: InboxMessage) -> NewRow:
    kind, fence = message.type, message.fence
    assert message.payload.keys() >= set(kind.payload), kind.name
    assert not message.payload.keys() & CONTROL_KEYS, kind.name
    return NewRow(
        inbox_id=message.inbox_id or new_id("inbox"),
        agent_id=fence.agent_id,
        message_type=kind.name,
        status=message.status or kind.begins,
        channel_id=message.channel_id,
        enqueue_mode=kind.enqueue_mode,
        correlation_id=message.correlation_id,
        agent_turn_id=fence.agent_turn_id,
        turn_epoch=fence.turn_epoch,
        payload=message.payload,
        context_headers=turn_headers(
            message.lineage,
            project_id=project_id,
            channel_id=message.channel_id,
            agent_id=fence.agent_id,
            agent_turn_id=fence.agent_turn_id,
            turn_epoch=fence.turn_epoch,
            tool_call_id=message.tool_call_id,
        ),
    )


def edge_of(message: InboxMessage, row: InboxRow, sender: Sender, details: Mapping[str, Any]) -> Edge:
    """Return the edge that records the sender of this row's message, with `details` in its metadata."""
    kind, lineage = message.type, message.lineage
    mode = {} if kind.enqueue_mode is None else {"enqueue_mode": kind.enqueue_mode}
    return Edge(
        edge_id=new_id("edge"),
        channel_id=row.channel_id,
        primitive=kind.primitive,
        edge_phase=kind.edge_phase,
        source_agent_id=sender.agent_id,
        source_agent_turn_id=sender.agent_turn_id,
        source_step_id=sender.step_id,
        target_agent_id=row.agent_id,
        target_agent_turn_id=row.agent_turn_id,
        correlation_id=row.correlation_id,
        enqueue_mode=kind.enqueue_mode,
        recursion_depth=lineage.depth,
        trace_id=lineage.trace_id,
        parent_step_id=message.step_id or lineage.parent_step_id,
        metadata={
            "message_type": kind.name,
            **mode,
            "inbox_id": row.inbox_id,
            "recursion_depth": lineage.depth,
            # Other programs read the row's recipient from this key.
            "cg_ctx": {
                "project_id": row.project_id,
                "channel_id": row.channel_id,
                "agent_id": row.agent_id,
                "agent_turn_id": row.turn_id,
                "turn_epoch": row.turn_epoch,
                "step_id": message.step_id,
                "tool_call_id": message.tool_call_id,
                "trace_id": row.lineage.trace_id,
                "recursion_depth": lineage.depth,
                "parent_agent_id": lineage.parent_agent_id,
                "parent_agent_turn_id": lineage.parent_turn_id,
                "parent_step_id": lineage.parent_step_id,
            },
            **details,
        },
        created_at=None,
    )
