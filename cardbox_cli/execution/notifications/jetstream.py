"""NATS as a bell, as something that listens, and as the way of events.

Bells and events go into JetStream. To listen, each worker subscribes for itself: every one hears every ring,
and none leaves a consumer behind on the server. What is rung while a worker's connection is down is lost to
it; it looks when it is back.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from threading import Lock
from typing import Any

from cardbox_cli.errors import CbxError
from cardbox_cli.execution.notifications.events import Phase, TurnAddress
from cardbox_cli.execution.notifications.nats import Line, Listening, parse_servers
from cardbox_cli.execution.notifications.notifier import Announce, Wakeup
from cardbox_cli.execution.notifications.protocol import (
    event_message,
    wakeup_message,
    wakeup_subject,
)
from cardbox_cli.model.execution.turns import EndStatus


class Nats:
    """One connection for all that a process wants of NATS. It is made when first wanted."""

    def __init__(self, url: str, announce: Announce) -> None:
        self._servers = parse_servers(url)
        self._announce = announce
        self._made: Line | None = None
        self._making = Lock()

    def notifier(self) -> "NatsNotifier":
        """Rings at the streams of the protocol."""
        return NatsNotifier(self)

    def events(self) -> "NatsEvents":
        """Tells of turns there."""
        return NatsEvents(self, self._announce)

    def listen(
        self, project_id: str | None, worker_targets: Collection[str] | None, heard: Callable[[], None]
    ) -> "NatsListening | None":
        """Call `heard` for each wanted ring, and whenever one may have been missed. None where it cannot."""
        subjects = []
        for target in (None,) if worker_targets is None else worker_targets:
            try:
                subjects.append(wakeup_subject(project_id, target))
            except CbxError as exc:
                self._announce(f"warning: no wakeups by NATS: {exc.message}; workers poll")
        return NatsListening(self.line, subjects, heard) if subjects else None

    @property
    def line(self) -> Line:
        """The connection."""
        with self._making:
            if self._made is None:
                self._made = Line(self._servers, self._announce)
            return self._made

    def close(self) -> None:
        """Close the connection, if one was made."""
        if self._made is not None:
            self._made.close()


class NatsNotifier:
    """A wakeup for the workers of this system and of others that speak the protocol."""

    name = "NATS"

    def __init__(self, nats: Nats) -> None:
        self._nats = nats

    def notify(self, wakeups: Sequence[Wakeup]) -> None:
        """Publish all of them. One whose names no subject can hold does not keep the others from it."""
        messages, refused = [], None
        for wakeup in wakeups:
            try:
                messages.append(wakeup_message(wakeup))
            except CbxError as exc:
                refused = exc
        if messages:
            self._nats.line.publish(messages)
        if refused is not None:
            raise refused


class NatsEvents:
    """Events of turns. What cannot be sent is announced once, and again only after it had gone well."""

    def __init__(self, nats: Nats, announce: Announce) -> None:
        self._nats = nats
        self._announce = announce
        self._said: str | None = None

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
        body = {
            "agent_turn_id": turn.agent_turn_id,
            "status": status,
            "output_box_id": output_box_id,
            "deliverable_card_id": deliverable_card_id,
            "tool_result_card_id": tool_result_card_id,
            "error": error,
            "error_code": error_code,
            "stats": None if duration_ms is None else {"duration_ms": duration_ms},
        }
        self._tell(turn, "task", body)

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
        body = {
            "agent_turn_id": turn.agent_turn_id,
            "step_id": step_id,
            "phase": phase,
            "metadata": metadata or {},
            "new_card_ids": list(new_card_ids),
        }
        self._tell(turn, "step", body)

    def state(
        self,
        turn: TurnAddress,
        *,
        status: str,
        updated_at: datetime,
        output_box_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """The agent's head is now `status`."""
        body = {
            "agent_id": turn.agent_id,
            "agent_turn_id": turn.agent_turn_id,
            "status": status,
            "turn_epoch": turn.turn_epoch,
            "updated_at": updated_at.astimezone(UTC),
            "output_box_id": output_box_id,
            "metadata": metadata or {},
        }
        self._tell(turn, "state", body)

    def _tell(self, turn: TurnAddress, kind: str, body: Mapping[str, Any]) -> None:
        said = None
        try:
            self._nats.line.publish([event_message(turn, kind, body)])
        except CbxError as exc:
            said = f"warning: no events by NATS: {exc.message}"
        # Once until it goes well again: one trouble may be told in several words.
        if said is not None and self._said is None:
            self._announce(said)
        self._said = said


class NatsListening:
    """A subscription of this process alone."""

    def __init__(self, line: Line, subjects: Sequence[str], heard: Callable[[], None]) -> None:
        self._line = line
        self._listening = Listening(subjects, heard)
        line.listen(self._listening)

    def close(self) -> None:
        """Hear nothing any more."""
        self._line.forget(self._listening)
