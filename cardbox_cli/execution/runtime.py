"""What every use case of execution stands on: a project's stores, the settings, and what follows a commit.

A doorbell is rung, and an event sent, when the outermost transaction has committed, and never otherwise. A
caller whose own transaction a use case joins does that himself, with `follow`.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from cardbox_cli.execution.settings import Settings, settings_from
from cardbox_cli.model.turns import Fence, InboxRow
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.database import Database
from cardbox_cli.store.heads import HeadStore
from cardbox_cli.store.inbox import InboxStore
from cardbox_cli.store.roster import RosterStore
from cardbox_cli.store.turns import TurnStore

Ring = Callable[["Call"], None]
Emit = Callable[["Happening"], None]


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A doorbell to ring: there is work for a worker target."""

    row: InboxRow
    worker_target: str
    reason: str


class Happening(msgspec.Struct, frozen=True, kw_only=True):
    """Something that others may want to hear of: `kind` is task, step or state, `facts` its payload."""

    kind: str
    agent_id: str
    channel_id: str
    facts: dict[str, Any]


class Runtime:
    """One project on one database. `ring` and `emit` are called after the commit; by default nobody hears."""

    def __init__(
        self,
        database: Database,
        project_id: str,
        *,
        settings: Settings | None = None,
        ring: Ring = lambda call: None,
        emit: Emit = lambda happening: None,
    ) -> None:
        self.database = database
        self.project_id = project_id
        self.settings = settings or settings_from(os.environ)
        self.cards = CardStore(database, project_id)
        self.boxes = BoxStore(database, project_id)
        self.heads = HeadStore(database, project_id)
        self.inbox = InboxStore(database, project_id)
        self.turns = TurnStore(database, project_id)
        self.roster = RosterStore(database, project_id)
        self._ring = ring
        self._emit = emit
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

    def call(self, row: InboxRow, worker_target: str, reason: str) -> None:
        """Ring for this row after the commit."""
        call = Call(row=row, worker_target=worker_target, reason=reason)
        self._following.append(lambda: self._ring(call))

    def tell_state(
        self, fence: Fence, status: str, channel_id: str | None, output_box_id: str | None, **metadata: Any
    ) -> None:
        """Send, after the commit, that the turn is in this state."""
        facts = {
            "agent_id": fence.agent_id,
            "agent_turn_id": fence.agent_turn_id,
            "status": status,
            "turn_epoch": fence.turn_epoch,
            "output_box_id": output_box_id,
            "metadata": metadata,
        }
        self.tell("state", fence.agent_id, channel_id, facts)

    def tell(self, kind: str, agent_id: str, channel_id: str | None, facts: dict[str, Any]) -> None:
        """Send this event after the commit."""
        happening = Happening(kind=kind, agent_id=agent_id, channel_id=channel_id or "public", facts=facts)
        self._following.append(lambda: self._emit(happening))
