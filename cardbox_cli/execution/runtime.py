"""The runtime that every use case of execution shares: stores, settings, and actions that wait for a commit.

It notifies workers and publishes events only after the outermost transaction has committed. If a caller opens
that transaction on the database and not on the runtime, it must call `run_deferred` after the commit.
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
from cardbox_cli.model.execution.headers import new_traceparent
from cardbox_cli.model.execution.turns import DEFAULT_CHANNEL, EndStatus, Fence, Head, InboxRow
from cardbox_cli.settings import Settings, read_settings
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
from cardbox_cli.store.roster import AgentStore
from cardbox_cli.store.views.turn_contexts import ContextStore

_S = TypeVar("_S", bound=ProjectStore)


class TurnEndEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a turn. If it is not a success, `error_code` and `message` explain it."""

    agent_turn_id: str
    agent_id: str
    end_status: str
    deliverable_card_id: str | None
    error_code: str | None = None
    message: str | None = None


class CatchUpOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The due work that a follower has done. `troubles` are messages about work that failed.

    `dispatched` and `stopped` hold turn ids, and `ended` holds batch ids.
    """

    dispatched: list[str] = []
    stopped: list[str] = []
    ended: list[str] = []
    troubles: list[str] = []


class TurnFollower(Protocol):
    """An observer of turns, implemented by a package above this one. It stores all its state in the database.

    A runtime calls it when a turn ends or is suspended. `reap` calls `catch_up` for overdue work.
    """

    def turn_ended(self, runtime: "Runtime", ended: TurnEndEvent) -> None:
        """React to the end of a turn, in the transaction that ends it. The agent's head is locked."""

    def turn_suspended(self, runtime: "Runtime", fence: Fence) -> None:
        """React to the suspension of a turn, in its transaction. The agent's head is locked."""

    def catch_up(self, runtime: "Runtime") -> CatchUpOutcome:
        """Run the project's due work, each item in its own transaction."""


def _store(kind: type[_S]) -> cached_property[_S]:
    """Return a property that creates a store for the runtime's project at its first use."""
    return cached_property(lambda runtime: kind(runtime.database, runtime.project_id))


class Runtime:
    """The use cases of one project on one database. It calls `notify` and `publish` after commits.

    `followers` react when a turn ends or is suspended, in the same transaction. `handlers` answer tool calls
    of models. By default they are only the handlers of installed packages, without the handlers of cbx.
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
    roster = _store(AgentStore)
    batches = _store(BatchStore)

    def __init__(
        self,
        database: Database,
        project_id: str,
        *,
        settings: Settings | None = None,
        notify: Callable[[Wakeup], None] = lambda wakeup: None,
        publish: Publish | None = None,
        followers: Sequence[TurnFollower] = (),
        handlers: Handlers | None = None,
    ) -> None:
        self.database = database
        self.project_id = project_id
        self.settings = settings or read_settings()
        self.followers = followers
        self.handlers = handlers or Handlers()
        self._notify = notify
        self._publish = publish
        self._deferred: list[Callable[[], None]] = []

    @contextmanager
    def transaction(self, *, savepoint: bool = True) -> Iterator[None]:
        """Open or join a transaction, and run deferred actions after the outermost commit.

        If `savepoint` is False and the block joins a transaction, an exception does not roll back the block.
        Then the block must raise before it writes, or the caller must end its transaction.
        """
        outermost = self.database.idle
        with self._discard_on_error(), self.database.transaction(savepoint=savepoint):
            yield
        if outermost:
            self.run_deferred()

    @contextmanager
    def statement(self) -> Iterator[None]:
        """Run one statement without opening a transaction, and then the deferred actions.

        Nothing is locked before the statement, so it must itself check the conditions of its writes.
        """
        alone = self.database.is_autocommitting
        with self._discard_on_error():
            yield
        if alone:
            self.run_deferred()

    @contextmanager
    def _discard_on_error(self) -> Iterator[None]:
        """Discard the actions that the block deferred if the block raises."""
        known = len(self._deferred)
        try:
            yield
        except BaseException:
            del self._deferred[known:]
            raise

    @contextmanager
    def rolled_back(self) -> Iterator[None]:
        """Open a transaction that is always rolled back. Discard the actions that it defers."""
        known = len(self._deferred)
        try:
            with self.database.rolled_back():
                yield
        finally:
            del self._deferred[known:]

    def run_deferred(self) -> None:
        deferred, self._deferred = self._deferred, []
        for action in deferred:
            action()

    def notify(self, row: InboxRow, reason: str) -> None:
        """Notify the workers of the row's agent after the commit, if the agent is on the roster."""
        agent = self.roster.find(row.agent_id)
        self.notify_target(row, None if agent is None else agent.worker_target, reason)

    def notify_target(self, row: InboxRow, worker_target: str | None, reason: str) -> None:
        """Notify the workers of a target after the commit. Do nothing if the target is None."""
        if worker_target is not None:
            wakeup = wakeup_for(row, worker_target, reason)
            self.defer(lambda: self._notify(wakeup))

    def defer(self, action: Callable[[], None]) -> None:
        """Defer an action until the outermost transaction has committed."""
        self._deferred.append(action)

    def follow_end(self, ended: TurnEndEvent) -> None:
        """Call all followers about the end of a turn, in the transaction of the end."""
        for follower in self.followers:
            follower.turn_ended(self, ended)

    def follow_suspension(self, fence: Fence) -> None:
        """Call all followers about the suspension of a turn, in the transaction of the suspension."""
        for follower in self.followers:
            follower.turn_suspended(self, fence)

    def publish_state(self, head: Head, status: str, turn_epoch: int, **metadata: Any) -> None:
        if self._publish is not None:
            turn, now = self._address(head, turn_epoch), self.database.now()
            self._publish_later(state_event(turn, status, now, head.output_box_id, **metadata))

    def publish_step(self, head: Head, step_id: str, phase: Phase, new_card_ids: Sequence[str] = ()) -> None:
        turn = self._address(head, head.turn_epoch)
        self._publish_later(step_event(turn, step_id, phase, new_card_ids))

    def publish_end(
        self, head: Head, end_status: EndStatus, deliverable_card_id: str, **error: str | None
    ) -> None:
        turn, box_id = self._address(head, head.turn_epoch), head.output_box_id
        self._publish_later(end_event(turn, end_status, box_id, deliverable_card_id, **error))

    def _publish_later(self, event: TurnEvent) -> None:
        publish = self._publish
        if publish is not None:
            self.defer(lambda: publish(event))

    def _address(self, head: Head, turn_epoch: int) -> TurnAddress:
        return TurnAddress(
            project_id=self.project_id,
            channel_id=head.active_channel_id or DEFAULT_CHANNEL,
            agent_id=head.agent_id,
            agent_turn_id=head.active_agent_turn_id or "",
            turn_epoch=turn_epoch,
            recursion_depth=head.active_recursion_depth,
            traceparent=new_traceparent(head.trace_id) if head.trace_id else None,
        )
