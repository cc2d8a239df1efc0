"""What every use case of execution stands on: a project's stores, the settings, and what follows a commit.

A doorbell is rung, and an event sent, when the outermost transaction has committed, and never otherwise. A
caller whose own transaction a use case joins does that himself, with `follow`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from cardbox_cli.execution.notifications.events import Events, NoEvents, Phase, TurnAddress
from cardbox_cli.model.execution.headers import traceparent_of
from cardbox_cli.model.execution.turns import DEFAULT_CHANNEL, EndStatus, Head, InboxRow
from cardbox_cli.settings import Settings, settings_from
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.heads import HeadStore
from cardbox_cli.store.inbox import InboxStore
from cardbox_cli.store.roster import RosterStore
from cardbox_cli.store.turns import TurnStore

Notify = Callable[["Call"], None]


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A doorbell to ring: there is work for a worker target."""

    row: InboxRow
    worker_target: str
    reason: str


class Runtime:
    """One project on one database. After a commit `ring` is called and `events` told; by default nobody."""

    def __init__(
        self,
        database: Database,
        project_id: str,
        *,
        settings: Settings | None = None,
        notify: Notify = lambda call: None,
        events: Events | None = None,
    ) -> None:
        self.database = database
        self.project_id = project_id
        self.settings = settings or settings_from()
        self.cards = CardStore(database, project_id)
        self.boxes = BoxStore(database, project_id)
        self.heads = HeadStore(database, project_id)
        self.inbox = InboxStore(database, project_id)
        self.turns = TurnStore(database, project_id)
        self.roster = RosterStore(database, project_id)
        self._notify = notify
        self.events: Events = events or NoEvents()
        self._following: list[Callable[[], None]] = []

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction, or a part of the caller's; after the outermost commit the bells ring."""
        outermost = self.database.idle
        known = len(self._following)
        try:
            with self.database.transaction():
                yield
        except BaseException:
            del self._following[known:]
            raise
        if outermost:
            self.follow()

    @contextmanager
    def rehearsal(self) -> Iterator[None]:
        """A transaction that is taken back in the end, and rings nothing."""
        known = len(self._following)
        try:
            with self.database.aside():
                yield
        finally:
            del self._following[known:]

    def follow(self) -> None:
        """Do what was put off until the commit."""
        following, self._following = self._following, []
        for action in following:
            action()

    def call(self, row: InboxRow, reason: str) -> None:
        """Ring, after the commit, for the workers of this row's agent; for nobody if it is on no roster."""
        agent = self.roster.find(row.agent_id)
        if agent is not None:
            call = Call(row=row, worker_target=agent.worker_target, reason=reason)
            self.after_commit(lambda: self._notify(call))

    def after_commit(self, action: Callable[[], None]) -> None:
        """Do this when the outermost transaction has committed."""
        self._following.append(action)

    def tell_state(self, head: Head, status: str, turn_epoch: int, **metadata: Any) -> None:
        """Say, after the commit, that the turn of this head is in this state now."""
        if isinstance(self.events, NoEvents):
            return
        turn, now = self._address(head, turn_epoch), self.database.now()
        self.after_commit(
            lambda: self.events.state(
                turn, status=status, updated_at=now, output_box_id=head.output_box_id, metadata=metadata
            )
        )

    def tell_step(self, head: Head, step_id: str, phase: Phase, new_card_ids: Sequence[str] = ()) -> None:
        """Say, after the commit, that a step has come to this phase."""
        turn = self._address(head, head.turn_epoch)
        self.after_commit(
            lambda: self.events.step(turn, step_id=step_id, phase=phase, new_card_ids=new_card_ids)
        )

    def tell_end(
        self,
        head: Head,
        end_status: EndStatus,
        *,
        deliverable_card_id: str,
        error: str | None,
        error_code: str | None,
    ) -> None:
        """Say, after the commit, that the turn of this head has ended."""
        turn = self._address(head, head.turn_epoch)
        self.after_commit(
            lambda: self.events.task_ended(
                turn,
                status=end_status,
                output_box_id=head.output_box_id,
                deliverable_card_id=deliverable_card_id,
                error=error,
                error_code=error_code,
            )
        )

    def _address(self, head: Head, turn_epoch: int) -> TurnAddress:
        return TurnAddress(
            project_id=self.project_id,
            channel_id=head.active_channel_id or DEFAULT_CHANNEL,
            agent_id=head.agent_id,
            agent_turn_id=head.active_agent_turn_id or "",
            turn_epoch=turn_epoch,
            recursion_depth=head.active_recursion_depth,
            traceparent=traceparent_of(head.trace_id) if head.trace_id else None,
        )
