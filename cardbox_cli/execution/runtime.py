"""What every use case of execution stands on: a project's stores, the settings, and what follows a commit.

Workers are notified, and events published, when the outermost transaction has committed, and never otherwise.
A caller whose own transaction a use case joins does that himself, with `run_deferred`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Protocol, TypeVar

import msgspec

from cardbox_cli.execution.handlers import Handlers
from cardbox_cli.execution.notifications.notifier import (
    Phase,
    Publish,
    TurnAddress,
    TurnEvent,
    Wakeup,
    end_event,
    state_event,
    step_event,
    wakeup_for,
)
from cardbox_cli.model.execution.headers import traceparent_of
from cardbox_cli.model.execution.turns import DEFAULT_CHANNEL, EndStatus, Fence, Head, InboxRow
from cardbox_cli.settings import Settings, settings_from
from cardbox_cli.store.audit import AuditStore
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.project_store import ProjectStore
from cardbox_cli.store.execution.batch_store import BatchStore
from cardbox_cli.store.execution.dispatch_store import DispatchStore, EndStore
from cardbox_cli.store.execution.head_store import HeadStore
from cardbox_cli.store.execution.inbox_store import InboxStore
from cardbox_cli.store.execution.report_store import ReportStore
from cardbox_cli.store.execution.step_store import StepStore
from cardbox_cli.store.execution.turn_store import TurnStore
from cardbox_cli.store.roster import RosterStore
from cardbox_cli.store.views.turn_contexts import ContextStore

_S = TypeVar("_S", bound=ProjectStore)


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a turn. `error_code` and `message` say why it is no success."""

    agent_turn_id: str
    agent_id: str
    end_status: str
    deliverable_card_id: str | None
    error_code: str | None = None
    message: str | None = None


class Caught(msgspec.Struct, frozen=True, kw_only=True):
    """What a follower did that was due: `dispatched` and `stopped` are turn ids, `ended` what ended by it.

    `troubles` says what could not be done, and why.
    """

    dispatched: list[str] = []
    stopped: list[str] = []
    ended: list[str] = []
    troubles: list[str] = []


class Follower(Protocol):
    """A use case of a package above that follows turns. It keeps no state: that is in the rows.

    A runtime reports each end and each suspension to it, and asks it at each pass over what is due.
    """

    def turn_ended(self, runtime: "Runtime", ended: Ended) -> None:
        """A turn has ended. In the transaction of the end, which holds the head of its agent."""

    def turn_suspended(self, runtime: "Runtime", fence: Fence) -> None:
        """A turn waits now. In the transaction of that, which holds the head of its agent."""

    def catch_up(self, runtime: "Runtime") -> Caught:
        """Do what is due in the project, each thing in a transaction of its own."""


def _store(kind: type[_S]) -> cached_property[_S]:
    """A store of a runtime's project, made when it is first used."""
    return cached_property(lambda runtime: kind(runtime.database, runtime.project_id))


class Runtime:
    """One project on one database. `notify` and `publish` are called after commits; by default nothing is.

    `followers` act on the ends and suspensions of turns in their transactions. `handlers` answer the calls of
    models; by default only those of installed packages do, not those of cbx.
    """

    cards = _store(CardStore)
    boxes = _store(BoxStore)
    heads = _store(HeadStore)
    inbox = _store(InboxStore)
    dispatches = _store(DispatchStore)
    ends = _store(EndStore)
    contexts = _store(ContextStore)
    turns = _store(TurnStore)
    steps = _store(StepStore)
    reports = _store(ReportStore)
    audit = _store(AuditStore)
    roster = _store(RosterStore)
    batches = _store(BatchStore)

    def __init__(
        self,
        database: Database,
        project_id: str,
        *,
        settings: Settings | None = None,
        notify: Callable[[Wakeup], None] = lambda wakeup: None,
        publish: Publish | None = None,
        followers: Sequence[Follower] = (),
        handlers: Handlers | None = None,
    ) -> None:
        self.database = database
        self.project_id = project_id
        self.settings = settings or settings_from()
        self.followers = followers
        self.handlers = handlers or Handlers()
        self._notify = notify
        self._publish = publish
        self._deferred: list[Callable[[], None]] = []

    @contextmanager
    def transaction(self, *, savepoint: bool = True) -> Iterator[None]:
        """A transaction, or a part of the caller's; after the outermost commit what was put off is done.

        Without `savepoint` what was written in a part is not taken back alone: who raises has written
        nothing, or the caller's transaction ends by it.
        """
        outermost = self.database.idle
        known = len(self._deferred)
        try:
            with self.database.transaction(savepoint=savepoint):
                yield
        except BaseException:
            del self._deferred[known:]
            raise
        if outermost:
            self.run_deferred()

    @contextmanager
    def statement(self) -> Iterator[None]:
        """One statement, which is a transaction of its own unless the caller has one; as `transaction` else.

        What it writes it must decide on by itself.
        """
        alone = self.database.commits_itself
        known = len(self._deferred)
        try:
            yield
        except BaseException:
            del self._deferred[known:]
            raise
        if alone:
            self.run_deferred()

    @contextmanager
    def rehearsal(self) -> Iterator[None]:
        """A transaction that is taken back in the end, and notifies nobody."""
        known = len(self._deferred)
        try:
            with self.database.aside():
                yield
        finally:
            del self._deferred[known:]

    def run_deferred(self) -> None:
        """Do what was put off until the commit."""
        deferred, self._deferred = self._deferred, []
        for action in deferred:
            action()

    def notify(self, row: InboxRow, reason: str) -> None:
        """Wake, after the commit, the workers of this row's agent; nobody if it is on no roster."""
        agent = self.roster.find(row.agent_id)
        self.notify_target(row, None if agent is None else agent.worker_target, reason)

    def notify_target(self, row: InboxRow, worker_target: str | None, reason: str) -> None:
        """`notify` the workers of this target; nobody for None."""
        if worker_target is not None:
            wakeup = wakeup_for(row, worker_target, reason)
            self.after_commit(lambda: self._notify(wakeup))

    def after_commit(self, action: Callable[[], None]) -> None:
        """Do this when the outermost transaction has committed."""
        self._deferred.append(action)

    def follow_end(self, ended: Ended) -> None:
        """Tell all followers that a turn has ended, in the transaction of that."""
        for follower in self.followers:
            follower.turn_ended(self, ended)

    def follow_suspension(self, fence: Fence) -> None:
        """Tell all followers that a turn waits now, in the transaction of that."""
        for follower in self.followers:
            follower.turn_suspended(self, fence)

    def publish_state(self, head: Head, status: str, turn_epoch: int, **metadata: Any) -> None:
        """Publish, after the commit, that the turn of this head is in this state now."""
        if self._publish is not None:
            turn, now = self._address(head, turn_epoch), self.database.now()
            self._publish_later(state_event(turn, status, now, head.output_box_id, **metadata))

    def publish_step(self, head: Head, step_id: str, phase: Phase, new_card_ids: Sequence[str] = ()) -> None:
        """Publish, after the commit, that a step has come to this phase."""
        turn = self._address(head, head.turn_epoch)
        self._publish_later(step_event(turn, step_id, phase, new_card_ids))

    def publish_end(
        self, head: Head, end_status: EndStatus, deliverable_card_id: str, **error: str | None
    ) -> None:
        """Publish, after the commit, that the turn of this head has ended."""
        turn, box_id = self._address(head, head.turn_epoch), head.output_box_id
        self._publish_later(end_event(turn, end_status, box_id, deliverable_card_id, **error))

    def _publish_later(self, event: TurnEvent) -> None:
        publish = self._publish
        if publish is not None:
            self.after_commit(lambda: publish(event))

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
