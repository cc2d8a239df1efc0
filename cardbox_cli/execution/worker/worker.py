"""A worker: claims what is due for its target, runs it in threads, and keeps its leases alive.

One thread claims and reaps, one sends heartbeats, and each turn that runs has a thread and a connection of
its own. A notification only ends a wait: what is due is found by looking. Knows no command line and no
terminal; what happens is written to a `Journal`.
"""

import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from threading import Event, Lock, Thread
from typing import Literal, Protocol, TypeVar

import msgspec
import uuid6

from cardbox_cli.errors import CbxError, DatabaseUnavailable
from cardbox_cli.execution.notifications.service import WakeupListener
from cardbox_cli.execution.queue.claims import begin, claim, defer, hand_back, heartbeat
from cardbox_cli.execution.recovery.reaping import Reaped, reap
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.worker.command_output import Once, shown_trouble
from cardbox_cli.execution.worker.connections import Connection, Connections, MakeRuntime
from cardbox_cli.execution.worker.runner import CancellationToken, Outcome, Run
from cardbox_cli.execution.worker.turn_ledger import TurnLedger
from cardbox_cli.execution.worker.worker_program import Program
from cardbox_cli.model.execution.turns import InboxRow
from cardbox_cli.settings import Settings
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.driver_errors import is_refusal
from cardbox_cli.store.execution import worker_store

_T = TypeVar("_T")

# Seconds between two looks at whether it is time to leave.
_LOOK = 0.2


class Journal(Protocol):
    """Where what happens is written, from any thread."""

    def line(self, text: str) -> None:
        """One event, in words."""

    def ended(self, project_id: str, outcome: Outcome) -> None:
        """The run of a turn is over."""


class WorkerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is to do. `project_id` None stands for all; `grace` is in seconds.

    `mode`: `once` makes one claim, `drain` goes on until nothing is due or running, `serve` never ends.
    """

    target: str
    program: Program
    project_id: str | None
    concurrency: int = 1
    mode: Literal["once", "drain", "serve"] = "serve"
    grace: float = 30


class _Running(msgspec.Struct, eq=False):
    """A claimed row that is being worked on; from when it resumed its turn on, at the turn's new epoch."""

    row: InboxRow
    cancellation: CancellationToken

    @property
    def key(self) -> tuple[str, str]:
        """Which row it is, in whatever project."""
        return self.row.project_id, self.row.inbox_id


class Worker:
    """One worker process. `connect` opens a connection, `make_runtime` wires its notifiers."""

    def __init__(
        self,
        plan: WorkerPlan,
        settings: Settings,
        *,
        connect: Callable[[], Database],
        make_runtime: MakeRuntime,
        journal: Journal,
        listener: WakeupListener,
    ) -> None:
        self.worker_id = f"{socket.gethostname()}-{os.getpid()}-{uuid6.uuid7().hex[-8:]}"
        self._plan = plan
        self._settings = settings
        self._connections = Connections(
            connect, make_runtime, longest_pause=settings.lease_time, announce=journal.line
        )
        self._journal = journal
        self._warn = Once(journal.line)
        self._listener = listener
        self._lock = Lock()
        self._running: list[_Running] = []
        self._leaving = False
        self._at_once = False
        self._over = Event()
        self._reap_at = 0.0
        # What failed when it was tried last, and why; and what of it the database knows.
        self._failing: dict[str, str] = {}
        self._noted: str | None = None

    # --- from outside

    def leave(self) -> None:
        """Stop claiming, and end when what runs is done; the second call, or after the grace, hand it back.

        May be called from a signal handler.
        """
        self._at_once = self._leaving
        self._leaving = True
        self._listener.wake()

    def run(self) -> None:
        """Work until the plan is fulfilled, or until `leave`. Raises what connecting first raises."""
        with closing(self._connections), self._connections.own(lambda: self._leaving) as connection:
            connection.database().require_worker()
            self._serve(connection)

    def _serve(self, connection: Connection) -> None:
        beats = Thread(target=self._beat_until_over, name="heartbeat", daemon=True)
        beats.start()
        try:
            self._claim_until_done(connection)
            self._wait_for_running()
        except BaseException:
            self._leaving = self._at_once = True
            self._wait_for_running()
            raise
        finally:
            self._over.set()
            beats.join()
            self._dismiss(connection)

    # --- claiming

    def _claim_until_done(self, connection: Connection) -> None:
        try:
            while not self._leaving and self._is_more_to_do(connection):
                pass
        except DatabaseUnavailable:
            if not self._leaving:
                raise

    def _is_more_to_do(self, connection: Connection) -> bool:
        """One look, at what is overdue and at what is due; then a wait, unless more may be found at once."""
        if time.monotonic() >= self._reap_at:
            self._reap_all(connection)
            self._reap_at = time.monotonic() + self._settings.poll
        claimed = self._claim(connection)
        if self._plan.mode == "once" or (
            self._plan.mode == "drain" and not claimed and self._is_drained(connection)
        ):
            return False
        if not claimed or self._free() == 0:
            self._listener.wait(self._settings.poll)
        return True

    def _projects(
        self,
        connection: Connection,
        find: Callable[[Database, str], Sequence[str]] = worker_store.due_projects,
    ) -> Sequence[str]:
        """The project that is served; of all those that `find` answers for the target."""
        if self._plan.project_id is not None:
            return [self._plan.project_id]
        return connection.with_database(lambda database: find(database, self._plan.target))

    def _reap_all(self, connection: Connection) -> None:
        for each in self._projects(connection, worker_store.unsettled_projects):
            reaped = self._tried(f"reap {each}", partial(connection.attempt, each, reap))
            if reaped is not None:
                self._log_reaped(reaped)

    def _log_reaped(self, reaped: Reaped) -> None:
        # Where there is more work than workers, each look notifies again: that is no news.
        facts = {
            name: ids for name, ids in msgspec.structs.asdict(reaped).items() if ids and name != "notified"
        }
        if facts:
            text = "; ".join(f"{name.replace('_', ' ')} {', '.join(ids)}" for name, ids in facts.items())
            self._journal.line(f"reaped: {text}")

    def _claim(self, connection: Connection) -> int:
        count = 0
        for project_id in self._projects(connection):
            free = self._free()
            if free == 0 or self._leaving:
                break
            look = partial(claim, target=self._plan.target, owner=self.worker_id, limit=free)
            found = self._tried(f"claim {project_id}", partial(connection.attempt, project_id, look)) or []
            for claimed in found:
                self._start(claimed.row)
            count += len(found)
        return count

    def _tried(self, what: str, action: Callable[[], _T]) -> _T | None:
        """What `action` answers; None where it failed for another reason than the database's absence."""
        try:
            answer = action()
        except DatabaseUnavailable:
            raise
        except CbxError as exc:
            self._failing[what] = exc.message
            self._journal.line(f"warning: {exc.message}")
            return None
        self._failing.pop(what, None)
        return answer

    def _free(self) -> int:
        with self._lock:
            return self._plan.concurrency - len(self._running)

    def _is_drained(self, connection: Connection) -> bool:
        if self._free() < self._plan.concurrency:
            return False
        target, headless = self._plan.target, []
        for project_id in self._projects(connection, worker_store.unsettled_projects):
            left = connection.attempt(project_id, lambda runtime: runtime.inbox.unfinished(target))
            # What others have claimed counts, too: they may not finish it.
            if left.rows:
                return False
            headless += left.headless
        if headless:
            agents = ", ".join(headless)
            self._journal.line(f"warning: left what is due for {agents}: without a head nobody can claim it")
        return True

    # --- running

    def _start(self, row: InboxRow) -> None:
        running = _Running(row, CancellationToken())
        with self._lock:
            for each in self._running:
                # We lost its lease, and have got it again before a heartbeat could tell.
                if each.key == running.key:
                    each.cancellation.cancel(lost=True)
            self._running.append(running)
        Thread(target=self._work, args=(running,), name=row.inbox_id, daemon=True).start()

    def _work(self, running: _Running) -> None:
        try:
            with self._connections.lent(lambda: self._at_once) as connection:
                try:
                    self._run(connection, running)
                except DatabaseUnavailable as exc:
                    if is_refusal(exc):
                        self._give_up(connection, running.row, exc.message)
                    else:
                        self._return(connection, running.row, exc.message)
                except CbxError as exc:
                    self._give_up(connection, running.row, exc.message)
                except Exception as exc:
                    self._give_up(connection, running.row, f"unexpected {type(exc).__name__}: {exc}")
        finally:
            with self._lock:
                self._running.remove(running)
            self._listener.wake()

    def _run(self, connection: Connection, running: _Running) -> None:
        row = running.row
        project_id = row.project_id
        work = connection.once(project_id, lambda runtime: begin(runtime, row, owner=self.worker_id))
        if work.kind == "done":
            self._journal.line(f"{row.message_type} {row.inbox_id}: {work.outcome}")
            return
        running.row, fence = work.row, work.fence
        self._journal.line(
            f"turn {fence.agent_turn_id} of {fence.agent_id}: {work.outcome}, epoch {fence.turn_epoch}"
        )

        def attempt(action: Callable[[Runtime], _T]) -> _T:
            return connection.attempt(project_id, action)

        run = Run(
            attempt,
            TurnLedger(work, owner=self.worker_id),
            self._plan.program,
            running.cancellation,
            tell=self._journal.line,
            warn=self._warn,
        )
        self._journal.ended(project_id, run.run())

    def _give_up(self, connection: Connection, row: InboxRow, reason: str) -> None:
        """What failed for a reason that is not the turn's own is tried again later, by the backoff."""
        self._journal.line(f"warning: {row.message_type} {row.inbox_id} failed: {reason}")
        try:
            connection.attempt(
                row.project_id, lambda runtime: defer(runtime, row, owner=self.worker_id, reason=reason)
            )
        except CbxError as exc:
            self._journal.line(f"warning: {row.inbox_id} is left to its lease: {exc.message}")

    def _return(self, connection: Connection, row: InboxRow, reason: str) -> None:
        """What began as the database went away is to be claimed again, and counts as no try."""
        try:
            connection.attempt(
                row.project_id, lambda runtime: hand_back(runtime, row, owner=self.worker_id, reason=reason)
            )
        except CbxError as exc:
            self._journal.line(f"warning: {row.inbox_id} is left to its lease: {exc.message}")

    # --- leaving

    def _wait_for_running(self) -> None:
        """Wait for what runs; once it leaves, for the grace at most, and then cancel it."""
        give_up = None
        while self._running:
            if self._leaving and give_up is None:
                give_up = time.monotonic() + self._plan.grace
                self._journal.line(f"leaving once {len(self._running)} turns are done; asked again: at once")
            if self._at_once or (give_up is not None and time.monotonic() >= give_up):
                self._at_once = True
                with self._lock:
                    for running in self._running:
                        running.cancellation.cancel()
            self._listener.wait(_LOOK)

    # --- heartbeats

    def _beat_until_over(self) -> None:
        with self._connections.own(self._over.is_set) as connection:
            while not self._over.is_set():
                # Each for itself: who may not announce itself keeps its leases all the same.
                self._beat("announce", partial(self._announce, connection))
                self._beat("extend leases", partial(self._extend_leases, connection))
                self._over.wait(self._settings.heartbeat)

    def _beat(self, what: str, action: Callable[[], None]) -> None:
        try:
            action()
            self._failing.pop(what, None)
        except CbxError as exc:
            if self._failing.get(what) != exc.message:
                self._journal.line(f"warning: no heartbeat: {exc.message}")
            self._failing[what] = exc.message

    def _announce(self, connection: Connection) -> None:
        announcement = worker_store.Announcement(
            worker_id=self.worker_id,
            served_project_id=self._plan.project_id,
            worker_target=self._plan.target,
            host=socket.gethostname(),
            pid=os.getpid(),
            concurrency=self._plan.concurrency,
        )
        lease = self._settings.lease_time
        announce = partial(worker_store.announce, worker=announcement, lease=lease)
        connection.with_database(announce, insist=False)
        connection.with_database(self._note_trouble, insist=False)

    def _note_trouble(self, database: Database) -> None:
        """Keep with the worker's entry why it cannot work, or that it can again."""
        failing = next(iter(list(self._failing.values())), None)
        trouble = shown_trouble(self._connections.refusal or failing)
        if trouble != self._noted:
            worker_store.note_error(database, self.worker_id, trouble)
            self._noted = trouble

    def _extend_leases(self, connection: Connection) -> None:
        with self._lock:
            running = list(self._running)
        for each in running:
            project_id, inbox_id = each.key
            extend = partial(heartbeat, inbox_ids=[inbox_id], owner=self.worker_id)
            if inbox_id not in connection.attempt(project_id, extend, insist=False):
                each.cancellation.cancel(lost=True)

    def _dismiss(self, connection: Connection) -> None:
        try:
            worker_store.dismiss(connection.database(), self.worker_id)
        except CbxError as exc:
            self._journal.line(f"warning: the worker could not sign off: {exc.message}")
