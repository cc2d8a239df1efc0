"""A worker: it claims due rows for its target, runs their turns in threads, and extends its leases.

One thread claims and reaps, one sends heartbeats, and each running turn has its own thread and connection. A
notification only ends a wait. The worker finds due rows by polling. It writes events to a `WorkerJournal` and
does not depend on a command line or terminal.
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

from cardbox_cli.errors import CbxError, DatabaseUnavailable, ServiceUnavailable
from cardbox_cli.execution.notifications.service import WakeupListener
from cardbox_cli.execution.queue.claims import begin, claim, defer, hand_back, heartbeat
from cardbox_cli.execution.recovery.reaping import ReapOutcome, reap
from cardbox_cli.execution.worker.command_output import DeduplicatedWarnings, shorten_trouble
from cardbox_cli.execution.worker.connections import MakeRuntime, WorkerConnection, WorkerConnectionPool
from cardbox_cli.execution.worker.runner import CancellationToken, Run, RunOutcome
from cardbox_cli.execution.worker.turn_ledger import TurnLedger
from cardbox_cli.execution.worker.worker_program import Program
from cardbox_cli.model.execution.turns import InboxRow
from cardbox_cli.process_identity import make_owner_name
from cardbox_cli.settings import Settings
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.driver_errors import is_refusal
from cardbox_cli.store.execution import worker_store
from cardbox_cli.text.quantities import format_count

_T = TypeVar("_T")

_LEAVE_POLL_INTERVAL = 0.2
# After this number of its own failures in a row, a worker claims only one turn after each pause. A pause is a
# lease longer than the one before, up to this number of leases.
_MAX_FAILURES, _MAX_PAUSES = 3, 10
# The key of the model's command among the failing actions.
_COMMAND = "command"


class WorkerJournal(Protocol):
    """The log of a worker. Any thread may write to it."""

    def line(self, text: str) -> None:
        """Write one line of text."""

    def write_outcome(self, project_id: str, outcome: RunOutcome) -> None:
        """Write the outcome of a run."""


class WorkerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a worker. If `project_id` is None, it serves all projects. `grace` is in seconds.

    The mode `once` claims once, `drain` ends when nothing is due or running, and `serve` never ends.
    """

    target: str
    program: Program
    project_id: str | None
    concurrency: int = 1
    mode: Literal["once", "drain", "serve"] = "serve"
    grace: float = 30


class _Running(msgspec.Struct, eq=False):
    """A claimed row and the work that runs for it. `row` has the epoch of the turn, also after a resume."""

    row: InboxRow
    cancellation: CancellationToken

    @property
    def key(self) -> tuple[str, str]:
        return self.row.project_id, self.row.inbox_id


class Worker:
    """One worker process. `connect` opens a connection, and `make_runtime` makes a runtime on it."""

    def __init__(
        self,
        plan: WorkerPlan,
        settings: Settings,
        *,
        connect: Callable[[], Database],
        make_runtime: MakeRuntime,
        journal: WorkerJournal,
        listener: WakeupListener,
    ) -> None:
        self.worker_id = make_owner_name()
        self._plan = plan
        self._settings = settings
        self._connections = WorkerConnectionPool(
            connect, make_runtime, longest_pause=settings.lease_time, announce=journal.line
        )
        self._journal = journal
        self._warn = DeduplicatedWarnings(journal.line)
        self._listener = listener
        self._lock = Lock()
        self._running: list[_Running] = []
        self._leaving = Event()
        self._told_to_leave = False
        self._leaves_now = False
        self._stopped = Event()
        self._reap_at = 0.0
        # The worker's own failures in a row, and the end of the pause that follows them.
        self._failures = 0
        self._paused_until = 0.0
        # The last error of each failing action, and the error that the worker's entry now shows.
        self._failing: dict[str, str] = {}
        self._stored_error: str | None = None

    def leave(self) -> None:
        """Stop claiming, and end once the running work is done. Safe in a signal handler.

        After a second call or the grace, running work is canceled and returned to the inbox.
        """
        self._leaves_now = self._told_to_leave
        self._told_to_leave = True
        self.drain()

    def drain(self) -> None:
        """Stop claiming, and end once the running work is done. A first call of `leave` adds nothing."""
        self._leaving.set()
        self._listener.wake()

    def run(self) -> None:
        """Work until the plan is done or `leave` is called. Raises the errors of the first connection."""
        with closing(self._connections), self._connections.open_own(self._leaving.is_set) as connection:
            connection.database().require_worker()
            self._serve(connection)

    def _serve(self, connection: WorkerConnection) -> None:
        heartbeats = Thread(target=self._beat_until_over, name="heartbeat", daemon=True)
        heartbeats.start()
        try:
            self._claim_until_done(connection)
            self._wait_for_running()
        except BaseException:
            self._leaves_now = True
            self._leaving.set()
            self._wait_for_running()
            raise
        finally:
            self._stopped.set()
            heartbeats.join()
            self._dismiss(connection)

    # --- claiming

    def _claim_until_done(self, connection: WorkerConnection) -> None:
        try:
            while not self._leaving.is_set() and self._is_more_to_do(connection):
                pass
        except DatabaseUnavailable:
            if not self._leaving.is_set():
                raise

    def _is_more_to_do(self, connection: WorkerConnection) -> bool:
        """Reap if it is time, claim due rows, and wait if there are none. Return whether to continue."""
        if time.monotonic() >= self._reap_at:
            self._reap_all(connection)
            self._reap_at = time.monotonic() + self._settings.poll
        claimed = self._claim(connection)
        if self._plan.mode == "drain" and (trouble := self._failing.get(_COMMAND)) is not None:
            raise ServiceUnavailable(
                f"this worker cannot run turns: {trouble}",
                hint="repair the command; its turns wait for another worker",
            )
        if self._plan.mode == "once" or (
            self._plan.mode == "drain" and not claimed and self._is_drained(connection)
        ):
            return False
        if not claimed or self._free() == 0:
            self._listener.wait(self._settings.poll)
        return True

    def _projects(
        self,
        connection: WorkerConnection,
        find: Callable[[Database, str], Sequence[str]] = worker_store.due_projects,
    ) -> Sequence[str]:
        """Return the project that the worker serves. If it serves all, return the projects from `find`."""
        if self._plan.project_id is not None:
            return [self._plan.project_id]
        return connection.retry(lambda database: find(database, self._plan.target))

    def _reap_all(self, connection: WorkerConnection) -> None:
        for each in self._projects(connection, worker_store.unsettled_projects):
            reaped = self._try(f"reap {each}", partial(connection.attempt, each, reap)) or ReapOutcome()
            # The log omits notifications, because each pass repeats them if there is more work than workers.
            facts = [
                f"{name.replace('_', ' ')} {', '.join(ids)}"
                for name, ids in msgspec.structs.asdict(reaped).items()
                if ids and name != "notified"
            ]
            if facts:
                self._journal.line(f"reaped: {'; '.join(facts)}")

    def _claim(self, connection: WorkerConnection) -> int:
        count = 0
        for project_id in self._projects(connection):
            free = self._free()
            if free == 0 or self._leaving.is_set():
                break
            action = partial(claim, target=self._plan.target, owner=self.worker_id, limit=free)
            claimed = self._try(f"claim {project_id}", partial(connection.attempt, project_id, action)) or []
            for each in claimed:
                self._start(each.row)
            count += len(claimed)
        return count

    def _try(self, what: str, action: Callable[[], _T]) -> _T | None:
        """Return the result of `action`, or None if it fails for a reason other than a lost database."""
        try:
            result = action()
        except DatabaseUnavailable:
            raise
        except CbxError as exc:
            self._failing[what] = exc.message
            self._journal.line(f"warning: {exc.message}")
            return None
        self._failing.pop(what, None)
        return result

    def _free(self) -> int:
        """Return the number of rows to claim. If the command is broken, only one turn tries it again."""
        with self._lock:
            free = self._plan.concurrency - len(self._running)
            if self._failures < _MAX_FAILURES:
                return free
            is_paused = self._running or time.monotonic() < self._paused_until
            return 0 if is_paused else min(free, 1)

    def _is_drained(self, connection: WorkerConnection) -> bool:
        if self._running:
            return False
        target, headless = self._plan.target, []
        for project_id in self._projects(connection, worker_store.unsettled_projects):
            left = connection.attempt(project_id, lambda runtime: runtime.inbox.unfinished(target))
            # Rows that other workers have claimed also count, because they may become due again.
            if left.rows:
                return False
            headless += left.headless
        if headless:
            agents = ", ".join(headless)
            self._journal.line(f"warning: left due rows of {agents}: without a head no worker can claim them")
        return True

    # --- running

    def _start(self, row: InboxRow) -> None:
        running = _Running(row, CancellationToken(self._leaving))
        with self._lock:
            for each in self._running:
                # This worker lost the lease and claimed the row again before a heartbeat noticed the loss.
                if each.key == running.key:
                    each.cancellation.cancel(lost=True)
            self._running.append(running)
        Thread(target=self._work_on, args=(running,), name=row.inbox_id, daemon=True).start()

    def _work_on(self, running: _Running) -> None:
        try:
            with self._connections.borrow(lambda: self._leaves_now) as connection:
                try:
                    self._run(connection, running)
                except DatabaseUnavailable as exc:
                    if is_refusal(exc):
                        self._defer(connection, running.row, exc.message)
                    else:
                        # The database is unavailable, so this does not count as a try.
                        self._return_row(connection, running.row, partial(hand_back, reason=exc.message))
                except CbxError as exc:
                    self._defer(connection, running.row, exc.message)
                except Exception as exc:
                    self._defer(connection, running.row, f"unexpected {type(exc).__name__}: {exc}")
        finally:
            with self._lock:
                self._running.remove(running)
            self._listener.wake()

    def _run(self, connection: WorkerConnection, running: _Running) -> None:
        row = running.row
        project_id = row.project_id
        work = connection.try_once(project_id, lambda runtime: begin(runtime, row, owner=self.worker_id))
        if work.kind == "done":
            self._journal.line(f"{row.message_type} {row.inbox_id}: {work.outcome}")
            return
        running.row, fence = work.row, work.fence
        self._journal.line(
            f"turn {fence.agent_turn_id} of {fence.agent_id}: {work.outcome}, epoch {fence.turn_epoch}"
        )

        run = Run(
            partial(connection.attempt, project_id),
            TurnLedger(work, owner=self.worker_id),
            self._plan.program,
            running.cancellation,
            tell=self._journal.line,
            warn=self._warn,
        )
        outcome = run.run()
        self._journal.write_outcome(project_id, outcome)
        self._count_failure(outcome)

    def _count_failure(self, outcome: RunOutcome) -> None:
        """Pause claiming after some own failures of this worker in a row. Another outcome ends the pause."""
        failure = outcome.failure
        with self._lock:
            if failure is None or failure.cause != "worker":
                if outcome.kind in ("ended", "suspended", "deferred"):
                    self._failures = 0
                    self._failing.pop(_COMMAND, None)
                return
            self._failures += 1
            if self._failures < _MAX_FAILURES:
                return
            seconds = self._settings.lease * min(self._failures - _MAX_FAILURES + 1, _MAX_PAUSES)
            self._paused_until = time.monotonic() + seconds
            trouble = f"the command failed {self._failures} times in a row: {failure.message}"
            self._failing[_COMMAND] = trouble
        self._journal.line(f"warning: {trouble}; claiming is paused for {seconds:g} s")

    def _defer(self, connection: WorkerConnection, row: InboxRow, reason: str) -> None:
        """Defer a row that failed for a reason outside its turn. The backoff decides when it is due again."""
        self._journal.line(f"warning: {row.message_type} {row.inbox_id} failed: {reason}")
        self._return_row(connection, row, partial(defer, reason=reason))

    def _return_row(self, connection: WorkerConnection, row: InboxRow, action: Callable[..., object]) -> None:
        try:
            connection.attempt(row.project_id, partial(action, row=row, owner=self.worker_id))
        except CbxError as exc:
            self._journal.line(f"warning: {row.inbox_id} is left to its lease: {exc.message}")

    # --- leaving

    def _wait_for_running(self) -> None:
        """Wait for running work. If the worker leaves, cancel the work after the grace."""
        deadline = None
        while self._running:
            if self._leaving.is_set() and deadline is None:
                deadline = time.monotonic() + self._plan.grace
                count = format_count(len(self._running), "turn")
                self._journal.line(f"finishing {count} before exiting; interrupt again to exit at once")
            if self._leaves_now or (deadline is not None and time.monotonic() >= deadline):
                self._leaves_now = True
                with self._lock:
                    for running in self._running:
                        running.cancellation.cancel()
            self._listener.wait(_LEAVE_POLL_INTERVAL)

    # --- heartbeats

    def _beat_until_over(self) -> None:
        with self._connections.open_own(self._stopped.is_set) as connection:
            while not self._stopped.is_set():
                # Two actions, because a worker that cannot announce itself must still extend its leases.
                self._beat("announce", partial(self._announce, connection))
                self._beat("extend leases", partial(self._extend_leases, connection))
                self._stopped.wait(self._settings.heartbeat)

    def _beat(self, what: str, action: Callable[[], None]) -> None:
        try:
            action()
            self._failing.pop(what, None)
        except CbxError as exc:
            if self._failing.get(what) != exc.message:
                self._journal.line(f"warning: no heartbeat: {exc.message}")
            self._failing[what] = exc.message

    def _announce(self, connection: WorkerConnection) -> None:
        announcement = worker_store.Announcement(
            worker_id=self.worker_id,
            served_project_id=self._plan.project_id,
            worker_target=self._plan.target,
            host=socket.gethostname(),
            pid=os.getpid(),
            concurrency=self._plan.concurrency,
        )
        record = partial(worker_store.record_worker, worker=announcement, lease=self._settings.lease_time)
        connection.retry(record, insist=False)
        connection.retry(self._note_trouble, insist=False)

    def _note_trouble(self, database: Database) -> None:
        """Store in the worker's entry why the worker cannot work, or that it can work again."""
        failing = next(iter(list(self._failing.values())), None)
        trouble = shorten_trouble(self._connections.refusal or failing)
        if trouble != self._stored_error:
            worker_store.note_error(database, self.worker_id, trouble)
            self._stored_error = trouble

    def _extend_leases(self, connection: WorkerConnection) -> None:
        with self._lock:
            running = list(self._running)
        for each in running:
            project_id, inbox_id = each.key
            extend = partial(heartbeat, inbox_ids=[inbox_id], owner=self.worker_id)
            if inbox_id not in connection.attempt(project_id, extend, insist=False):
                each.cancellation.cancel(lost=True)

    def _dismiss(self, connection: WorkerConnection) -> None:
        try:
            worker_store.remove_worker(connection.database(), self.worker_id)
        except CbxError as exc:
            self._journal.line(f"warning: cannot remove the entry of the worker: {exc.message}")
