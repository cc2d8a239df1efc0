"""A worker: claims what is due for its target, runs it in threads, and keeps its leases alive.

One thread claims and reaps, one sends heartbeats, and each turn that runs has a thread and a connection of
its own. A doorbell only ends a wait: what is due is found by looking. Knows no command line and no terminal;
what happens is told to a `Journal`.
"""

import os
import socket
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from threading import Event, Lock, Thread
from typing import Protocol, TypeVar

import msgspec
import uuid6

from cardbox_cli.errors import CbxError, DatabaseUnavailable
from cardbox_cli.execution.claims import Claimed, begin, claim, defer, heartbeat
from cardbox_cli.execution.recovery.reaping import Reaped, reap
from cardbox_cli.execution.running.runner import Program, Reins, Rest, Run
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.settings import Settings
from cardbox_cli.execution.wakeup.ear import Ear
from cardbox_cli.store import workers
from cardbox_cli.store.database import Database

_T = TypeVar("_T")

# Makes a runtime of a project on a database.
MakeRuntime = Callable[[Database, str], Runtime]

# Seconds between tries to reach a database that went away: at first, and at most.
_SOON, _LATE = 0.2, 5.0
# Seconds between two looks at whether it is time to leave.
_LOOK = 0.2


class Journal(Protocol):
    """Who is told what happens, from any thread."""

    def line(self, text: str) -> None:
        """One event, in words."""

    def rested(self, project_id: str, rest: Rest) -> None:
        """A turn came to rest."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is to do. `project_id` None stands for all; `grace` is in seconds.

    `mode`: `once` makes one claim, `drain` goes on until nothing is due or running, `serve` never ends.
    """

    target: str
    program: Program
    project_id: str | None
    concurrency: int = 1
    mode: str = "serve"
    grace: float = 30


class _Running(msgspec.Struct):
    """A claimed row that is being worked on."""

    claimed: Claimed
    reins: Reins
    thread: Thread


class Worker:
    """One worker process. `connect` opens a connection, `make_runtime` wires its bells."""

    def __init__(
        self,
        plan: Plan,
        settings: Settings,
        *,
        connect: Callable[[], Database],
        make_runtime: MakeRuntime,
        journal: Journal,
        ear: Ear,
    ) -> None:
        self.worker_id = f"{socket.gethostname()}-{os.getpid()}-{uuid6.uuid7().hex[-8:]}"
        self._plan = plan
        self._settings = settings
        self._connect = connect
        self._make_runtime = make_runtime
        self._journal = journal
        self._ear = ear
        self._lock = Lock()
        self._running: dict[tuple[str, str], _Running] = {}
        self._idle: list[_Line] = []
        self._leaving = False
        self._at_once = False
        self._over = Event()
        self._is_down = False
        self._reap_at = 0.0

    # --- from outside

    def leave(self) -> None:
        """Stop claiming, and end when what runs is done; the second call, or after the grace, hand it back.

        May be called from a signal handler.
        """
        self._at_once = self._leaving
        self._leaving = True
        self._ear.wake()

    def run(self) -> None:
        """Work until the plan is fulfilled, or until told to leave. Raises what connecting first raises."""
        line = self._new_line(lambda: self._leaving)
        try:
            line.database().require_execution()
        except BaseException:
            line.close()
            raise
        beats = Thread(target=self._beat_until_over, name="heartbeat", daemon=True)
        beats.start()
        try:
            self._claim_until_done(line)
            self._see_off()
        except BaseException:
            self._leaving = self._at_once = True
            self._see_off()
            raise
        finally:
            self._over.set()
            beats.join()
            self._dismiss(line)
            for each in (line, *self._idle):
                each.close()

    # --- claiming

    def _claim_until_done(self, line: "_Line") -> None:
        try:
            while not self._leaving and self._is_more_to_do(line):
                pass
        except DatabaseUnavailable:
            if not self._leaving:
                raise

    def _is_more_to_do(self, line: "_Line") -> bool:
        """One look, at what is overdue and at what is due; then a wait, unless more may be found at once."""
        if time.monotonic() >= self._reap_at:
            self._reap_all(line)
            self._reap_at = time.monotonic() + self._settings.poll
        claimed = self._claim(line)
        if self._plan.mode == "once" or (
            self._plan.mode == "drain" and not claimed and self._is_drained(line)
        ):
            return False
        if not claimed or self._free() == 0:
            self._ear.wait(self._settings.poll)
        return True

    def _projects(self, line: "_Line") -> Sequence[str]:
        if self._plan.project_id is not None:
            return [self._plan.project_id]
        return line.with_database(lambda database: workers.due_projects(database, self._plan.target))

    def _reap_all(self, line: "_Line") -> None:
        project_id, target = self._plan.project_id, self._plan.target
        if project_id is not None:
            projects = [project_id]
        else:
            projects = line.with_database(lambda database: workers.unsettled_projects(database, target))
        for each in projects:
            reaped = self._tried(partial(line.attempt, each, reap))
            if reaped is not None:
                self._say_reaped(reaped)

    def _say_reaped(self, reaped: Reaped) -> None:
        # Where there is more work than workers, each look rings again: that is nothing to tell.
        facts = {name: ids for name, ids in msgspec.structs.asdict(reaped).items() if ids and name != "rung"}
        if facts:
            said = "; ".join(f"{name.replace('_', ' ')} {', '.join(ids)}" for name, ids in facts.items())
            self._journal.line(f"reaped: {said}")

    def _claim(self, line: "_Line") -> int:
        count = 0
        for project_id in self._projects(line):
            free = self._free()
            if free == 0 or self._leaving:
                break
            look = partial(claim, target=self._plan.target, owner=self.worker_id, limit=free)
            found = self._tried(partial(line.attempt, project_id, look)) or []
            for claimed in found:
                self._start(claimed)
            count += len(found)
        return count

    def _tried(self, action: Callable[[], _T]) -> _T | None:
        """What `action` answers; None where it failed for another reason than the database's absence."""
        try:
            return action()
        except DatabaseUnavailable:
            raise
        except CbxError as exc:
            self._journal.line(f"warning: {exc.message}")
            return None

    def _free(self) -> int:
        with self._lock:
            return self._plan.concurrency - len(self._running)

    def _is_drained(self, line: "_Line") -> bool:
        if self._free() < self._plan.concurrency:
            return False
        target = self._plan.target
        return not any(
            line.attempt(project_id, lambda runtime: runtime.inbox.count_unfinished(target))
            for project_id in self._projects(line)
        )

    # --- running

    def _start(self, claimed: Claimed) -> None:
        reins = Reins()
        thread = Thread(target=self._work, args=(claimed, reins), name=claimed.row.inbox_id, daemon=True)
        with self._lock:
            self._running[_key(claimed)] = _Running(claimed, reins, thread)
        thread.start()

    def _work(self, claimed: Claimed, reins: Reins) -> None:
        line = self._take_line()
        try:
            self._run(line, claimed, reins)
        except CbxError as exc:
            self._give_up(line, claimed, exc.message)
        except Exception as exc:
            self._give_up(line, claimed, f"unexpected {type(exc).__name__}: {exc}")
        finally:
            with self._lock:
                del self._running[_key(claimed)]
                self._idle.append(line)
            self._ear.wake()

    def _run(self, line: "_Line", claimed: Claimed, reins: Reins) -> None:
        project_id, row = claimed.row.project_id, claimed.row
        task = line.once(project_id, lambda runtime: begin(runtime, row, owner=self.worker_id))
        if task.kind == "done":
            self._journal.line(f"{row.message_type} {row.inbox_id}: {task.said}")
            return
        fence = task.fence
        self._journal.line(
            f"turn {fence.agent_turn_id} of {fence.agent_id}: {task.said}, epoch {fence.turn_epoch}"
        )

        def attempt(action: Callable[[Runtime], _T]) -> _T:
            return line.attempt(project_id, action)

        rest = Run(attempt, task, self._plan.program, reins, owner=self.worker_id).to_rest()
        self._journal.rested(project_id, rest)

    def _give_up(self, line: "_Line", claimed: Claimed, reason: str) -> None:
        """What failed for a reason that is not the turn's own is tried again later, by the backoff."""
        row = claimed.row
        self._journal.line(f"warning: {row.message_type} {row.inbox_id} failed: {reason}")
        try:
            line.attempt(
                row.project_id, lambda runtime: defer(runtime, row, owner=self.worker_id, reason=reason)
            )
        except CbxError as exc:
            self._journal.line(f"warning: {row.inbox_id} is left to its lease: {exc.message}")

    # --- leaving

    def _see_off(self) -> None:
        """Wait for what runs; once told to leave, for the grace at most, and then take it back."""
        give_up = None
        while self._running:
            if self._leaving and give_up is None:
                give_up = time.monotonic() + self._plan.grace
                self._journal.line(f"leaving once {len(self._running)} turns rest; told again: at once")
            if self._at_once or (give_up is not None and time.monotonic() >= give_up):
                self._at_once = True
                self._let_all_go()
            self._ear.wait(_LOOK)

    def _let_all_go(self) -> None:
        with self._lock:
            for running in self._running.values():
                running.reins.let_go()

    # --- heartbeats

    def _beat_until_over(self) -> None:
        line = self._new_line(self._over.is_set)
        while not self._over.is_set():
            try:
                self._beat(line)
            except CbxError as exc:
                self._journal.line(f"warning: no heartbeat: {exc.message}")
            self._over.wait(self._settings.heartbeat)
        line.close()

    def _beat(self, line: "_Line") -> None:
        announcement = self._announcement()
        lease = self._settings.lease_time
        line.with_database(lambda database: workers.announce(database, announcement, lease=lease))
        with self._lock:
            running = dict(self._running)
        for (project_id, inbox_id), each in running.items():
            extend = partial(heartbeat, inbox_ids=[inbox_id], owner=self.worker_id)
            if inbox_id not in line.attempt(project_id, extend):
                each.reins.lose()

    def _announcement(self) -> workers.Announcement:
        return workers.Announcement(
            worker_id=self.worker_id,
            served_project_id=self._plan.project_id,
            worker_target=self._plan.target,
            host=socket.gethostname(),
            pid=os.getpid(),
            concurrency=self._plan.concurrency,
        )

    def _dismiss(self, line: "_Line") -> None:
        try:
            workers.dismiss(line.database(), self.worker_id)
        except CbxError as exc:
            self._journal.line(f"warning: the worker could not sign off: {exc.message}")

    # --- connections

    def _new_line(self, is_over: Callable[[], bool]) -> "_Line":
        lease_time = self._settings.lease_time
        return _Line(self._connect, self._make_runtime, lease_time, is_over, self._say_down, self._say_up)

    def _take_line(self) -> "_Line":
        with self._lock:
            return self._idle.pop() if self._idle else self._new_line(lambda: self._at_once)

    def _say_down(self, exc: CbxError) -> None:
        with self._lock:
            is_new, self._is_down = not self._is_down, True
        if is_new:
            self._journal.line(f"warning: {exc.message}; trying again until it is back")

    def _say_up(self) -> None:
        with self._lock:
            was_down, self._is_down = self._is_down, False
        if was_down:
            self._journal.line("the database is back")


def _key(claimed: Claimed) -> tuple[str, str]:
    return claimed.row.project_id, claimed.row.inbox_id


class _Line:
    """A connection of one thread's, made anew when it breaks."""

    def __init__(
        self,
        connect: Callable[[], Database],
        make_runtime: MakeRuntime,
        lease_time: timedelta,
        is_over: Callable[[], bool],
        say_down: Callable[[CbxError], None],
        say_up: Callable[[], None],
    ) -> None:
        self._connect = connect
        self._make_runtime = make_runtime
        self._lease_time = lease_time
        self._is_over = is_over
        self._say_down = say_down
        self._say_up = say_up
        self._database: Database | None = None
        self._runtimes: dict[str, Runtime] = {}

    def database(self) -> Database:
        """The connection, made if there is none. Raises DatabaseUnavailable."""
        if self._database is None:
            self._database = self._connect()
            # A worker that is stopped amid a transaction must not keep others from the turn it loses.
            self._database.limit_pauses(self._lease_time)
        return self._database

    def with_database(self, action: Callable[[Database], _T]) -> _T:
        """What `action` answers, once the database is there: tried again until it is all over."""
        pause = 0.0
        while True:
            try:
                answer = action(self.database())
            except DatabaseUnavailable as exc:
                self.close()
                if type(exc) is not DatabaseUnavailable or self._is_over():
                    raise
                # A connection may just have grown old: the first try is made in silence.
                if pause:
                    self._say_down(exc)
                time.sleep(pause)
                pause = min(pause * 2, _LATE) or _SOON
            else:
                self._say_up()
                return answer

    def attempt(self, project_id: str, action: Callable[[Runtime], _T]) -> _T:
        """`with_database` for a use case of a project."""
        return self.with_database(lambda database: action(self._runtime(database, project_id)))

    def once(self, project_id: str, action: Callable[[Runtime], _T]) -> _T:
        """What `action` answers, which is not to be done twice. A connection that broke is let go of."""
        try:
            return action(self._runtime(self.database(), project_id))
        except DatabaseUnavailable:
            self.close()
            raise

    def _runtime(self, database: Database, project_id: str) -> Runtime:
        if project_id not in self._runtimes:
            self._runtimes[project_id] = self._make_runtime(database, project_id)
        return self._runtimes[project_id]

    def close(self) -> None:
        """Let go of the connection; the next use makes another."""
        self._runtimes.clear()
        if self._database is not None:
            self._database.close()
            self._database = None
