"""Waking the workers of a target after a commit: what a wakeup holds, and every notifier that there is.

A wakeup may be lost, so no failure of a notifier leaves this module: it becomes one warning.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

import msgspec

from cardbox_cli.errors import CbxError
from cardbox_cli.model.execution.turns import EndStatus, InboxRow

# What is published of turns, after the commit: their ends, their steps, their states.
#
# Observers listen to these events; nothing in cbx depends on them, and each may be lost.


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


Announce = Callable[[str], None]


class Wakeup(msgspec.Struct, frozen=True, kw_only=True):
    """There is something to claim for an agent, whose workers listen for `worker_target`."""

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
    """The wakeup for an inbox row that was committed as claimable."""
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
    """One way to reach workers. `name` says which, for warnings."""

    name: str

    def notify(self, wakeups: Sequence[Wakeup]) -> None:
        """Send all of them. Raises CbxError when that failed, within seconds."""


class Notifiers:
    """All notifiers that are configured. Notify after the commit, when no transaction is open."""

    def __init__(self, notifiers: Sequence[Notifier], announce: Announce) -> None:
        self._notifiers = notifiers
        self._announce = announce
        self._failing: set[str] = set()

    def notify(self, *wakeups: Wakeup) -> None:
        """Wake the workers. What failed is announced once, and again only after it had gone well."""
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
