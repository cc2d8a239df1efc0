"""What the world is told of turns, after the commit: their ends, their steps, their states.

Observers listen to these events; nothing in cbx depends on them, and each may be lost.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol

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


class Events(Protocol):
    """Who is told. No method raises, and none blocks for longer than seconds."""

    def task_ended(
        self,
        turn: TurnAddress,
        *,
        status: EndStatus,
        output_box_id: str | None,
        deliverable_card_id: str | None,
        tool_result_card_id: str | None = None,
        error: str | None = None,
        error_code: str | None = None,
        duration_ms: int | None = None,
    ) -> None:
        """The turn has ended."""

    def step(
        self,
        turn: TurnAddress,
        *,
        step_id: str,
        phase: Phase,
        metadata: Mapping[str, Any] | None = None,
        new_card_ids: Sequence[str] = (),
    ) -> None:
        """A step of the turn has come to `phase`."""

    def state(
        self,
        turn: TurnAddress,
        *,
        status: str,
        updated_at: datetime,
        output_box_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """The agent's head is now `status`. Metadata: activity, current_tool and the like."""


class NoEvents:
    """Nobody is told."""

    def task_ended(self, turn: TurnAddress, **_: Any) -> None:
        """Nothing."""

    def step(self, turn: TurnAddress, **_: Any) -> None:
        """Nothing."""

    def state(self, turn: TurnAddress, **_: Any) -> None:
        """Nothing."""
