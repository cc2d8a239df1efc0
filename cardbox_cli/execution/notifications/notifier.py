"""The wakeups and events that cbx sends after a commit, and the notifiers that send wakeups.

A wakeup may be lost, so a failing notifier raises no error: it causes one warning. Events describe the ends,
steps and states of turns for observers. Nothing in cbx depends on them.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

import msgspec

from cardbox_cli.errors import CbxError
from cardbox_cli.model.execution.turns import EndStatus, InboxRow

Phase = Literal["started", "planning", "executing", "completed", "failed"]


class TurnAddress(msgspec.Struct, frozen=True, kw_only=True):
    project_id: str
    channel_id: str
    agent_id: str
    agent_turn_id: str
    turn_epoch: int
    recursion_depth: int = 0
    traceparent: str | None = None


class TurnEvent(msgspec.Struct, frozen=True):
    """An event of a turn for other programs. Values of `body` that are None are not sent."""

    turn: TurnAddress
    kind: Literal["task", "step", "state"]
    body: dict[str, Any]


# A function that publishes an event. It never raises, and blocks for a few seconds at most.
Publish = Callable[[TurnEvent], None]


def end_event(
    turn: TurnAddress, status: EndStatus, output_box_id: str | None, card_id: str, **error: str | None
) -> TurnEvent:
    """Return the event of a turn's end. `card_id` is the deliverable. `error` has the error text and code."""
    body = {
        "agent_turn_id": turn.agent_turn_id,
        "status": status,
        "output_box_id": output_box_id,
        "deliverable_card_id": card_id,
        **error,
    }
    return TurnEvent(turn, "task", body)


def step_event(turn: TurnAddress, step_id: str, phase: Phase, new_card_ids: Sequence[str] = ()) -> TurnEvent:
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
    """Return the event of a head's new status. `metadata` has more facts, for example `current_tool`."""
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


Announce = Callable[[str], None]


class Wakeup(msgspec.Struct, frozen=True, kw_only=True):
    """A notification that a row of an agent is due, for the workers of `worker_target`."""

    project_id: str
    channel_id: str
    agent_id: str
    worker_target: str
    agent_turn_id: str | None = None
    turn_epoch: int = 0
    inbox_id: str | None = None
    traceparent: str | None = None
    reason: str | None = None


def wakeup_for(row: InboxRow, worker_target: str, reason: str) -> Wakeup:
    """Return the wakeup for an inbox row that was committed as claimable."""
    headers = row.context_headers if isinstance(row.context_headers, dict) else {}
    traceparent = headers.get("traceparent")
    return Wakeup(
        project_id=row.project_id,
        channel_id=row.channel_id,
        agent_id=row.agent_id,
        worker_target=worker_target,
        agent_turn_id=row.turn_id,
        turn_epoch=row.turn_epoch,
        inbox_id=row.inbox_id,
        traceparent=traceparent if isinstance(traceparent, str) else None,
        reason=reason,
    )


class Notifier(Protocol):
    """A channel that carries wakeups to workers. Warnings quote its `name`."""

    name: str

    def notify(self, wakeups: Sequence[Wakeup]) -> None:
        """Send all wakeups. Raises CbxError within seconds if that fails."""


class Notifiers:
    """All configured notifiers. Call them after the commit, when no transaction is open."""

    def __init__(self, notifiers: Sequence[Notifier], announce: Announce) -> None:
        self._notifiers = notifiers
        self._announce = announce
        self._failing: set[str] = set()

    def notify(self, *wakeups: Wakeup) -> None:
        """Send wakeups to workers. Several failures in a row cause only one warning."""
        if not wakeups:
            return
        failures: dict[str, str] = {}
        for notifier in self._notifiers:
            try:
                notifier.notify(wakeups)
            except CbxError as exc:
                failures[notifier.name] = f"no wakeup by {notifier.name}: {exc.message}"
        if failures.keys() - self._failing:
            reasons = "; ".join(failures.values())
            self._announce(f"warning: {reasons}; workers find the work when they poll")
        self._failing = set(failures)
