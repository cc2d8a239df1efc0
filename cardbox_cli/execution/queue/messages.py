"""The messages of the inbox: one entry for each type, and what is written of a message and its edge.

Whoever decides by a row's type asks its entry. What a claim of a row does is `claims.py`'s, what a report
brings to its turn `applying.py`'s. SQL has the fragments `known_types` and `report_types`.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.execution.headers import Lineage, turn_headers
from cardbox_cli.model.execution.turns import (
    PENDING,
    QUEUED,
    Edge,
    Fence,
    InboxRow,
    new_id,
)
from cardbox_cli.store.execution.inbox_store import NewRow


class MessageType(msgspec.Struct, frozen=True, kw_only=True):
    """What a message is and does.

    `claim` is what a claim of it does: `run` its turn (one of an agent at a time; the others are claimed
    while a turn runs), `apply` its result to the call that waits for it, `stop` its turn; one with None is
    never claimed. A turn that a dead row carries fails; `retry` says how an operator tries such a row again:
    the row itself, or a new turn. `payload` are the keys that the payload must hold, `brings` is what a
    timeline says that a report brings.
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
# Rows of other programs, written as consumed: by it a report finds the turn that made a call.
ANCHOR = MessageType(
    name="command_anchor", claim=None, primitive="tool_call", edge_phase="request", payload=()
)

TYPES = {each.name: each for each in (TURN, TOOL_RESULT, TIMEOUT, STOP, ANCHOR)}

# What the protocol forbids in a payload: identity is a matter of columns and headers.
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
    """The entry of a row's type; None for a type that other programs know alone."""
    return TYPES.get(row.message_type)


def is_turn(row: InboxRow) -> bool:
    """Whether the row asks for a turn."""
    return row.message_type in _RUN


def is_report(row: InboxRow) -> bool:
    """Whether the row reports to a call that a turn waits for."""
    return row.message_type in _APPLY


_RUN = frozenset(each.name for each in TYPES.values() if each.claim == "run")
_APPLY = frozenset(each.name for each in TYPES.values() if each.claim == "apply")


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be written for the turn at `fence`, which stands at `lineage`.

    `tool_call_id` and `step_id` name the call that it answers and the step that made it. The row is made with
    the status that its type begins in, unless `status` is another, and with an id of its own, unless
    `inbox_id` is.
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
    """Who sends a message, and in which turn and step, if it is one that runs a turn."""

    agent_id: str
    agent_turn_id: str | None = None
    step_id: str | None = None


def write_row(runtime: Runtime, message: Message) -> InboxRow | None:
    """Write the row of a message alone, as for one whose edge is there; None where it is taken."""
    return runtime.inbox.insert(row_of(runtime.project_id, message))


def row_of(project_id: str, message: Message) -> NewRow:
    """The row of a message."""
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


def edge_of(message: Message, row: InboxRow, sender: Sender, details: Mapping[str, Any]) -> Edge:
    """The edge that says who sent the message of this row, with `details` in its metadata."""
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
            # Who the row is for, as other programs read it.
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
