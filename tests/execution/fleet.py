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
from typing import Any, Literal, TypeVar

import msgspec

from cardbox_cli.errors import Conflict, DatabaseUnavailable
from cardbox_cli.execution.dispatch.dispatch import dispatch
from cardbox_cli.execution.dispatch.request import DispatchRequest, Parent
from cardbox_cli.execution.notifications.notifier import Wakeup
from cardbox_cli.execution.notifications.service import Wakeups
from cardbox_cli.execution.provision import AgentRequest, provision
from cardbox_cli.execution.queue.reports import report_result
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.cards import draft_card
from cardbox_cli.model.content import ToolResultContent
from cardbox_cli.model.identity import NO_PARAMETERS, Tool
from cardbox_cli.model.ids import new_box_id
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from cardbox_cli.store.profiles import ProfileStore
from cardbox_cli.store.tools import ToolStore
from tests.conftest import PROJECT

_T = TypeVar("_T")

# What a turn does: answer, answer slowly, fail, call a tool that has a command, one that the test answers, or
# one that another agent's turn answers.
Kind = Literal["plain", "slow", "fail", "look", "ask", "delegate"]
_KINDS: tuple[Kind, ...] = ("plain", "slow", "fail", "look", "ask", "delegate")
_SHARES = (50, 15, 5, 14, 10, 6)

_CALL = (
    r"""printf '{"role":"assistant","content":null,"tool_calls":[{"id":"","type":"function","""
    r""""function":{"name":"%s","arguments":"{}"}}]}\n'"""
)
# The model. A turn's own results stand behind its instruction, those of earlier turns before it.
MODEL = f"""asked=$(cat)
case $asked in
  *"please fail"*) exit 3 ;;
  *"please slow"*) sleep 0.4; echo done ;;
  *"please "*'"role":"tool"'*) echo done ;;
  *"please look"*) {_CALL} look ;;
  *"please ask"*) {_CALL} ask ;;
  *"please delegate"*) {_CALL} delegate ;;
  *) echo done ;;
esac"""

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
    agent_id: str
    output_box_id: str


class Hangs(AssertionError):
    """Not everything ended in time; says what did not, and what the workers said last."""


class _Desk:
    """The project for one thread of the test, on a connection that is made anew when it breaks."""

    def __init__(self, target: Target, rng: Random) -> None:
        self._target = target
        self._rng = rng
        self._wakeups = Wakeups(lambda text: None)
        self._database: Database | None = None

    def do(self, action: Callable[[Runtime], _T]) -> _T:
        """What `action` answers, once the database is there. Raises DatabaseUnavailable in the end."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                return action(self._runtime())
            except DatabaseUnavailable:
                self.close()
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def _runtime(self) -> Runtime:
        if self._database is None:
            self._database = Database.open_target(self._target)
        notifiers = self._wakeups.notifiers(self._database)

        def notify(wakeup: Wakeup) -> None:
            # Half of all notifications are lost.
            if self._rng.random() < 0.5:
                notifiers.notify(wakeup)

        return Runtime(self._database, PROJECT, notify=notify)

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None


class Fleet:
    """Agents in project PROJECT of `target`, and their workers. `elsewhere` is a database where nobody notifies."""

    def __init__(self, target: Target, elsewhere: Target, scale: Scale, seed: str, folder: Path) -> None:
        self.target = target
        self.scale = scale
        self.seed = seed
        self.asked: dict[str, AskedFor] = {}
        self.killed = self.frozen = 0
        self._elsewhere = elsewhere
        self._folder = folder
        self._over = Event()
        self._contexts: dict[Kind, str] = {}
        self._boxes: dict[str, str] = {}
        self._workers: list[subprocess.Popen[bytes]] = []
        self._logs: list[Path] = []
        self._ended = 0

    # --- its life

    def run(self, in_the_middle: Callable[["Fleet"], None] | None = None) -> None:
        """Ask for all turns and wait until they have ended; then the workers are told to leave.

        `in_the_middle` is done once a third of them has ended. Raises Hangs.
        """
        self._people()
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

    def _people(self) -> None:
        with Database.open_target(self.target) as database:
            self._provision(database)

    def _provision(self, database: Database) -> None:
        profile = {"name": "clerk", "worker_target": "worker_generic", "tags": [], "allowed_tools": None}
        ProfileStore(database, PROJECT).save(profile, author_id="t")
        for name, options in (("look", {"exec": "cat"}), ("ask", {}), ("delegate", {})):
            tool = Tool(
                tool_name=name,
                description=name,
                parameters=NO_PARAMETERS,
                target_subject=None,
                after_execution=None,
                options=options,
            )
            ToolStore(database, PROJECT).add(tool, actor="t")
        runtime = Runtime(database, PROJECT)
        for number in range(self.scale.agents):
            agent_id = f"agent_{number}"
            provision(database, PROJECT, AgentRequest(agent_id=agent_id, profile_name="clerk"))
            if number % 3 == 0:
                self._boxes[agent_id] = new_box_id()
        for kind in _KINDS:
            card = draft_card("task.instruction", f"please {kind}")
            runtime.cards.add(card)
            self._contexts[kind] = runtime.boxes.create([card.card_id]).box_id

    # --- asking

    def _ask_for_turns(self, slot: int) -> None:
        with self._desk(f"dispatcher {slot}") as (desk, rng):
            for number in range(slot, self.scale.turns, self.scale.dispatchers):
                if self._over.is_set():
                    return
                [kind] = rng.choices(_KINDS, _SHARES)
                agent_id = f"agent_{rng.randrange(self.scale.agents)}"
                for _ in range(1 + (rng.random() < 0.1)):
                    # Now and then asked for twice, as by somebody who has not heard the answer.
                    self._ask(desk, kind, agent_id, f"{self.seed} {number}")

    def _ask(
        self, desk: _Desk, kind: Kind, agent_id: str, correlation_id: str, parent: Parent | None = None
    ) -> None:
        request = DispatchRequest(
            target_agent_id=agent_id,
            context_box_id=self._contexts[kind],
            output_box_id=self._boxes.get(agent_id),
            correlation_id=correlation_id,
            parent=parent,
        )
        result = desk.do(lambda runtime: dispatch(runtime, request)).result
        assert result.status == "accepted", result
        assert result.agent_turn_id is not None
        assert result.output_box_id is not None
        asked = AskedFor(kind=kind, agent_id=agent_id, output_box_id=result.output_box_id)
        assert self.asked.setdefault(result.agent_turn_id, asked) == asked

    # --- answering calls

    def _answer_calls(self) -> None:
        """Answer the calls that turns wait for, by a report, a turn of another agent, or not at all."""
        seen: set[str] = set()
        with self._desk("answers") as (desk, rng):
            while not self._over.wait(0.1):
                for turn_id, call_id, tool_name in desk.do(_waiting_calls):
                    if call_id not in seen:
                        seen.add(call_id)
                        self._answer(desk, rng, turn_id, call_id, tool_name)

    def _answer(self, desk: _Desk, rng: Random, turn_id: str, call_id: str, tool_name: str) -> None:
        if tool_name == "delegate":
            agent_id = f"agent_{rng.randrange(self.scale.agents)}"
            parent = Parent(agent_turn_id=turn_id, tool_call_id=call_id)
            self._ask(desk, "plain", agent_id, f"child of {call_id}", parent)
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
                    )
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

    def _busy(self, desk: _Desk) -> list[tuple[int, str]]:
        """The workers that have a lease right now, as (slot, owner)."""
        owners = {owner for _, owner in desk.do(_leases)}
        slots = {worker.pid: slot for slot, worker in enumerate(self._workers)}
        pids = {owner: int(owner.split("-")[-2]) for owner in owners}
        return sorted((slots[pid], owner) for owner, pid in pids.items() if pid in slots)

    def _kill(self, slot: int) -> None:
        self._workers[slot].kill()
        assert self._workers[slot].wait() == -signal.SIGKILL
        self._workers[slot] = self._start_worker(slot)
        self.killed += 1

    def _freeze(self, desk: _Desk, slot: int, owner: str) -> None:
        """Stop a worker, and let it go on as soon as another has what it had."""
        worker = self._workers[slot]
        worker.send_signal(signal.SIGSTOP)
        try:
            had = {inbox_id for inbox_id, who in desk.do(_leases) if who == owner}
            while not self._over.wait(0.02):
                now = dict(desk.do(_leases))
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
            "CBX_PROJECT": PROJECT,
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
                before, self._ended = self._ended, desk.do(_count_ended)
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
            parts.extend(str(row) for row in database.connection.execute(_UNENDED).fetchall())
        parts.append(self._why())
        for slot, _ in enumerate(self._workers):
            log = [path for path in self._logs if path.name.startswith(f"worker-{slot}-")][-1]
            parts.extend([f"--- {log.name}", *log.read_text(errors="replace").splitlines()[-12:]])
        return "\n".join(parts)

    def _why(self) -> str:
        environment = {
            **os.environ,
            "CBX_DATABASE_URL": self.target.conninfo or "",
            "CBX_PROJECT": PROJECT,
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
    def _desk(self, name: str) -> Iterator[tuple[_Desk, Random]]:
        rng = Random(f"{self.seed} {name}")
        desk = _Desk(self.target, rng)
        try:
            yield desk, rng
        finally:
            desk.close()


_UNENDED = """
    SELECT i.agent_id, i.agent_turn_id, i.message_type, i.status, i.turn_epoch, i.retry_count, i.last_error,
           h.status, h.turn_epoch, h.active_agent_turn_id = i.agent_turn_id,
           l.owner, l.expires_at - clock_timestamp()
    FROM state.agent_inbox AS i
    JOIN cbx.turns AS t USING (project_id, agent_turn_id)
    LEFT JOIN state.agent_state_head AS h ON h.project_id = i.project_id AND h.agent_id = i.agent_id
    LEFT JOIN cbx.leases AS l ON l.project_id = i.project_id AND l.inbox_id = i.inbox_id
    WHERE t.end_status IS NULL
    ORDER BY i.status = 'queued', i.created_at
    LIMIT 20
"""


def _count_ended(runtime: Runtime) -> int:
    with runtime.database.snapshot():
        rows = runtime.database.connection.execute(
            "SELECT count(*) FROM cbx.turns WHERE end_status IS NOT NULL"
        ).fetchall()
    return int(rows[0][0])


def _leases(runtime: Runtime) -> list[tuple[str, str]]:
    with runtime.database.snapshot():
        return runtime.database.connection.execute("SELECT inbox_id, owner FROM cbx.leases").fetchall()


def _waiting_calls(runtime: Runtime) -> list[tuple[Any, ...]]:
    with runtime.database.snapshot():
        return runtime.database.connection.execute(
            "SELECT agent_turn_id, tool_call_id, tool_name FROM state.turn_waiting_tools"
            " WHERE wait_status = 'waiting' ORDER BY created_at, tool_call_id"
        ).fetchall()
