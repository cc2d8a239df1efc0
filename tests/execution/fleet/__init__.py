"""A fleet: worker processes, agents, turns that are asked for from several threads, and troubles on the way.

Workers are killed and frozen, notifications dropped, results reported late or never. Owns how the fleet is run,
within a limit of time, and what is said when it hangs. What must be true afterwards is the tests' to say.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from threading import Event

import msgspec

from cardbox_cli.errors import Conflict, DatabaseUnavailable
from cardbox_cli.execution.dispatch import dispatch
from cardbox_cli.execution.dispatch_requests import DispatchRequest, Parent
from cardbox_cli.execution.queue.reports import report_result
from cardbox_cli.model.content import ToolResultContent
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from tests.conftest import PROJECT
from tests.execution.fleet.desk import Desk, count_ended, leases, unended, waiting_calls
from tests.execution.fleet.people import KINDS, MODEL, SHARES, Kind, People, Person, populate

SETTINGS = {
    "CBX_LEASE": "2.5",
    "CBX_HEARTBEAT": "0.5",
    "CBX_POLL": "0.4",
    "CBX_UNCLAIMED": "1",
    "CBX_TOOL_WAIT": "4",
    "CBX_BACKOFF": "0.2",
    "CBX_BACKOFF_CAP": "1",
    # No turn may fail for bad luck alone.
    "CBX_MAX_ATTEMPTS": "100",
}
# Seconds in which some turn must end, or the fleet hangs.
_PATIENCE = 120.0

_AWAY = "trying again until it is back"
_BACK = "the database is back"


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """How much of everything. `seconds` is the limit for all turns to end."""

    workers: int
    concurrency: int
    agents: int
    turns: int
    dispatchers: int
    troubles: int
    seconds: float


class AskedFor(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that was accepted."""

    kind: Kind
    project: str
    agent_id: str
    output_box_id: str


class Hangs(AssertionError):
    """Not everything ended in time; says what did not, and what the workers said last."""


class Fleet:
    """Agents of some projects of `target`, and their workers. `elsewhere` is a database where nobody notifies."""

    def __init__(
        self,
        target: Target,
        elsewhere: Target,
        scale: Scale,
        seed: str,
        folder: Path,
        projects: tuple[str, ...] = (PROJECT,),
    ) -> None:
        self.target = target
        self.scale = scale
        self.seed = seed
        self.asked: dict[str, AskedFor] = {}
        self.killed = self.frozen = 0
        self.projects = projects
        self._elsewhere = elsewhere
        self._folder = folder
        self._over = Event()
        self._people = People(all=[], contexts={})
        self._workers: list[subprocess.Popen[bytes]] = []
        self._logs: list[Path] = []
        self._ended = 0

    # --- its life

    def run(self, in_the_middle: Callable[["Fleet"], None] | None = None) -> None:
        """Ask for all turns and wait until they have ended; then the workers are told to leave.

        `in_the_middle` is done once a third of them has ended. Raises Hangs.
        """
        with Database.open_target(self.target) as database:
            self._people = populate(database, self.projects, self.scale.agents)
        pool = ThreadPoolExecutor(self.scale.dispatchers + 2)
        try:
            dispatchers = [pool.submit(self._ask_for_turns, slot) for slot in range(self.scale.dispatchers)]
            self._wait_for_queues(dispatchers)
            self._workers = [self._start_worker(slot) for slot in range(self.scale.workers)]
            helpers = [pool.submit(self._answer_calls), pool.submit(self._make_trouble)]
            self._wait_for_ends(dispatchers, helpers, in_the_middle)
            self._over.set()
            # What was asked for while the last turn ended.
            self._wait_for_ends([*dispatchers, *helpers], [])
            self._send_home()
        finally:
            self._over.set()
            for worker in self._workers:
                worker.kill()
                worker.wait()
            pool.shutdown()

    # --- asking

    def _ask_for_turns(self, slot: int) -> None:
        with self._desk(f"dispatcher {slot}") as (desk, rng):
            for number in range(slot, self.scale.turns, self.scale.dispatchers):
                if self._over.is_set():
                    return
                [kind] = rng.choices(KINDS, SHARES)
                person = rng.choice(self._people.all)
                for _ in range(1 + (rng.random() < 0.1)):
                    # Now and then asked for twice, as by somebody who has not heard the answer.
                    self._ask(desk, kind, person, f"{self.seed} {number}")

    def _ask(
        self, desk: Desk, kind: Kind, person: Person, correlation_id: str, parent: Parent | None = None
    ) -> None:
        request = DispatchRequest(
            target_agent_id=person.agent_id,
            context_box_id=self._people.contexts[person.project, kind],
            output_box_id=person.output_box_id,
            correlation_id=correlation_id,
            parent=parent,
        )
        result = desk.do(lambda runtime: dispatch(runtime, request), person.project).result
        assert result.status == "accepted", result
        assert result.agent_turn_id is not None
        assert result.output_box_id is not None
        asked = AskedFor(
            kind=kind,
            project=person.project,
            agent_id=person.agent_id,
            output_box_id=result.output_box_id,
        )
        assert self.asked.setdefault(result.agent_turn_id, asked) == asked

    # --- answering calls

    def _answer_calls(self) -> None:
        """Answer the calls that turns wait for, by a report, a turn of another agent, or not at all."""
        seen: set[tuple[str, ...]] = set()
        with self._desk("answers") as (desk, rng):
            while not self._over.wait(0.1):
                for call in desk.do(waiting_calls):
                    if call not in seen:
                        seen.add(call)
                        self._answer(desk, rng, *call)

    def _answer(
        self, desk: Desk, rng: Random, project: str, turn_id: str, call_id: str, tool_name: str
    ) -> None:
        if tool_name == "delegate":
            person = rng.choice(self._people.of(project))
            parent = Parent(agent_turn_id=turn_id, tool_call_id=call_id)
            self._ask(desk, "plain", person, f"child of {call_id}", parent)
            return
        if rng.random() < 0.25:
            return
        content = ToolResultContent("success", "suspend", result="blue")
        for _ in range(1 + (rng.random() < 0.3)):
            # It may have timed out meanwhile.
            with suppress(Conflict):
                desk.do(
                    lambda runtime: report_result(
                        runtime, turn_id, call_id, content, source_agent_id="tool.ask"
                    ),
                    project,
                )

    # --- troubles

    def _make_trouble(self) -> None:
        """Kill a worker amid its work, or freeze it, each time that some more turns have ended."""
        with self._desk("troubles") as (desk, rng):
            for number in range(self.scale.troubles):
                due = self.scale.turns * (number + 1) // (self.scale.troubles + 2)
                while self._ended < due or (busy := self._busy(desk)) == []:
                    if self._over.wait(0.02):
                        return
                slot, owner = rng.choice(busy)
                if number % 3 == 1:
                    self._freeze(desk, slot, owner)
                else:
                    self._kill(slot)

    def _busy(self, desk: Desk) -> list[tuple[int, str]]:
        """The workers that have a lease right now, as (slot, owner)."""
        owners = {owner for _, owner in desk.do(leases)}
        slots = {worker.pid: slot for slot, worker in enumerate(self._workers)}
        pids = {owner: int(owner.rsplit("-", 4)[1]) for owner in owners}
        return sorted((slots[pid], owner) for owner, pid in pids.items() if pid in slots)

    def _kill(self, slot: int) -> None:
        self._workers[slot].kill()
        assert self._workers[slot].wait() == -signal.SIGKILL
        self._workers[slot] = self._start_worker(slot)
        self.killed += 1

    def _freeze(self, desk: Desk, slot: int, owner: str) -> None:
        """Stop a worker, and let it go on as soon as another has what it had."""
        worker = self._workers[slot]
        worker.send_signal(signal.SIGSTOP)
        try:
            had = {inbox_id for inbox_id, who in desk.do(leases) if who == owner}
            while not self._over.wait(0.02):
                now = dict(desk.do(leases))
                if all(now.get(inbox_id) != owner for inbox_id in had) or any(
                    now.get(inbox_id, owner) != owner for inbox_id in had
                ):
                    break
        finally:
            worker.send_signal(signal.SIGCONT)
        self.frozen += 1

    # --- workers

    def _start_worker(self, slot: int) -> "subprocess.Popen[bytes]":
        """A worker. Every second one gets no wakeup."""
        kept = ("HOME", "LANG", "LC_ALL", "PATH", "PYTHONPATH")
        environment = {
            **{name: os.environ[name] for name in kept if name in os.environ},
            **SETTINGS,
            "CBX_HOME": str(self._folder / "home"),
            "CBX_DATABASE_URL": self.target.conninfo or "",
            "CBX_PROJECT": self.projects[0],
        }
        if slot % 2:
            environment["CBX_LISTEN_URL"] = self._elsewhere.conninfo or ""
        name = f"worker-{slot}-{len(self._logs)}"
        environment["PGOPTIONS"] = f"-c history.writer={name}"
        log = self._folder / f"{name}.log"
        self._logs.append(log)
        with log.open("wb") as errors:
            return subprocess.Popen(
                [
                    *(
                        sys.executable,
                        "-m",
                        "cardbox_cli",
                        "worker",
                        "run",
                        "--trust-stored-commands",
                        "--exec",
                        MODEL,
                    ),
                    *("--concurrency", str(self.scale.concurrency)),
                    *(["--all-projects"] if len(self.projects) > 1 else []),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=environment,
                cwd=self._folder,
            )

    def _send_home(self) -> None:
        for worker in self._workers:
            worker.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + _PATIENCE
        for slot, worker in enumerate(self._workers):
            try:
                code = worker.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise Hangs(self._story(f"worker {slot} does not leave when it is told to")) from None
            assert code == 0, self._story(f"worker {slot} ended with {code}")

    def said(self, text: str) -> int:
        """How many workers, dead ones too, have said this."""
        return sum(text in log.read_text(errors="replace") for log in self._logs)

    # --- waiting

    def wait_until_away(self) -> None:
        """Until a worker has said that the database is gone."""
        self.wait_until(lambda: self.said(_AWAY) > 0)

    def wait_until_back(self) -> None:
        """Until all workers that said so have said that it is back."""
        self.wait_until(lambda: self.said(_AWAY) == self.said(_BACK))

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Raises Hangs where it does not become so in time."""
        deadline = time.monotonic() + _PATIENCE
        while not is_so():
            if time.monotonic() > deadline:
                raise Hangs(self._story("what was waited for did not come"))
            time.sleep(0.05)

    def _wait_for_queues(self, asking: list[Future[None]]) -> None:
        """Wait until a quarter of all turns has been asked for, so that there is something to queue behind."""
        while len(self.asked) < self.scale.turns // 4:
            self._check_that_all_live(asking)
            time.sleep(0.02)

    def _wait_for_ends(
        self,
        asking: list[Future[None]],
        helping: list[Future[None]],
        in_the_middle: Callable[["Fleet"], None] | None = None,
    ) -> None:
        """Wait until all who ask are done, and all turns have ended."""
        began = moved = time.monotonic()
        tell = began + _PATIENCE
        with self._desk("watch") as (desk, _):
            while True:
                self._check_that_all_live([*asking, *helping])
                before, self._ended = self._ended, desk.do(count_ended)
                if all(future.done() for future in asking) and self._ended == len(self.asked):
                    return
                if in_the_middle is not None and self._ended >= self.scale.turns // 3:
                    in_the_middle(self)
                    in_the_middle = None
                now = time.monotonic()
                if now >= tell:
                    print(f"{self._ended} of {len(self.asked)} turns have ended", flush=True)
                    tell = now + _PATIENCE
                moved = now if self._ended != before else moved
                if now - moved > _PATIENCE:
                    raise Hangs(self._story(f"no turn has ended for {_PATIENCE:g} seconds"))
                if now - began > self.scale.seconds:
                    raise Hangs(self._story(f"not done after {self.scale.seconds:g} seconds"))
                time.sleep(0.1)

    def _check_that_all_live(self, futures: list[Future[None]]) -> None:
        for future in futures:
            if future.done():
                future.result()
        for slot, worker in enumerate(list(self._workers)):
            code = worker.poll()
            # One that was killed a moment ago is replaced in the next.
            assert code in (None, -signal.SIGKILL), self._story(f"worker {slot} ended with {code}")

    # --- what is said of a fleet that hangs

    def _story(self, what: str) -> str:
        """What is wrong, what has not ended, what `cbx why` says of it, and what each worker said last."""
        parts = [f"{what} (seed {self.seed!r}, {self.killed} killed, {self.frozen} frozen)"]
        # A server that is gone tells no story.
        with suppress(DatabaseUnavailable), Database.open_target(self.target) as database:
            parts.append(f"{self._ended} of {len(self.asked)} turns have ended; of the others:")
            parts.extend(str(row) for row in unended(database))
        parts.append(self._why())
        for slot, _ in enumerate(self._workers):
            log = [path for path in self._logs if path.name.startswith(f"worker-{slot}-")][-1]
            parts.extend([f"--- {log.name}", *log.read_text(errors="replace").splitlines()[-12:]])
        return "\n".join(parts)

    def _why(self) -> str:
        environment = {
            **os.environ,
            "CBX_DATABASE_URL": self.target.conninfo or "",
            "CBX_PROJECT": self.projects[0],
        }
        with (self._folder / "why").open("w+b") as said:
            asked = subprocess.Popen(
                [sys.executable, "-m", "cardbox_cli", "why", "--all"],
                env=environment,
                stdout=said,
                stderr=said,
            )
            # What it has said until then is told all the same.
            with suppress(subprocess.TimeoutExpired):
                asked.wait(_PATIENCE)
            asked.kill()
            asked.wait()
            said.seek(0)
            lines = said.read().decode(errors="replace").splitlines()
        return "\n".join(["--- cbx why --all", *lines[:60]])

    @contextmanager
    def _desk(self, name: str) -> Iterator[tuple[Desk, Random]]:
        rng = Random(f"{self.seed} {name}")
        desk = Desk(self.target, rng, _PATIENCE)
        try:
            yield desk, rng
        finally:
            desk.close()
