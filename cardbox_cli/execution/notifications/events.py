"""What is published of turns, after the commit: their ends, their steps, their states.

Observers listen to these events; nothing in cbx depends on them, and each may be lost.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from cardbox_cli.model.execution.turns import EndStatus

Phase = Literal["started", "planning", "executing", "completed", "failed"]


class TurnAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The turn that an event is about, and where it belongs."""

    project_id: str
    channel_id: str
    agent_id: str
    agent_turn_id: str
    turn_epoch: int
    recursion_depth: int = 0
    traceparent: str | None = None


class TurnEvent(msgspec.Struct, frozen=True):
    """Something that happened to a turn, as others read it; what is None in `body` is left out."""

    turn: TurnAddress
    kind: Literal["task", "step", "state"]
    body: dict[str, Any]


# Publishes an event. Never raises, nor blocks for longer than seconds.
Publish = Callable[[TurnEvent], None]


def end_event(
    turn: TurnAddress, status: EndStatus, output_box_id: str | None, card_id: str, **error: str | None
) -> TurnEvent:
    """The turn has ended, with the deliverable `card_id`; as `error` and `error_code` say, if it failed."""
    body = {
        "agent_turn_id": turn.agent_turn_id,
        "status": status,
        "output_box_id": output_box_id,
        "deliverable_card_id": card_id,
        **error,
    }
    return TurnEvent(turn, "task", body)


def step_event(turn: TurnAddress, step_id: str, phase: Phase, new_card_ids: Sequence[str] = ()) -> TurnEvent:
    """A step of the turn has come to `phase`."""
    body = {
        "agent_turn_id": turn.agent_turn_id,
        "step_id": step_id,
        "phase": phase,
        "metadata": {},
        "new_card_ids": list(new_card_ids),
    }
    return TurnEvent(turn, "step", body)


def state_event(
    turn: TurnAddress, status: str, updated_at: datetime, output_box_id: str | None = None, **metadata: Any
) -> TurnEvent:
    """The agent's head is now `status`. Metadata: activity, current_tool and the like."""
    body = {
        "agent_id": turn.agent_id,
        "agent_turn_id": turn.agent_turn_id,
        "status": status,
        "turn_epoch": turn.turn_epoch,
        "updated_at": updated_at.astimezone(UTC),
        "output_box_id": output_box_id,
        "metadata": metadata,
    }
    return TurnEvent(turn, "state", body)
