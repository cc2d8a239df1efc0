"""An agent that can be asked, and what asks it."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from cardbox_cli.execution.dispatch import dispatch
from cardbox_cli.execution.dispatch_requests import DispatchRequest, DispatchResult
from cardbox_cli.execution.notifications.notifier import Wakeup
from cardbox_cli.execution.provision import AgentRequest, provision
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.cards import draft_card
from cardbox_cli.orchestration.handler_registry import HANDLERS
from cardbox_cli.settings import Settings
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from cardbox_cli.store.profiles import ProfileStore
from tests.conftest import PROJECT
from tests.crash.processes import until
from tests.execution.desk import Desk, second_runtime, watch
from tests.foreign.writer import Deployment

Asked = Callable[..., DispatchResult]


class Heard:
    """Whom a runtime notified, in order."""

    def __init__(self) -> None:
        self.wakeups: list[Wakeup] = []


@pytest.fixture
def seed() -> str:
    """Of a fleet; printed, so that a run that failed can be repeated."""
    seed = os.environ.get("CBX_FLEET_SEED") or os.urandom(4).hex()
    print(f"CBX_FLEET_SEED={seed}")
    return seed


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def runtime(database: Database, heard: Heard) -> Runtime:
    """Project PROJECT with agents `clerk` and `scribe`, both of profile `clerk` and target `worker_generic`."""
    ProfileStore(database, PROJECT).save(
        {"name": "clerk", "worker_target": "worker_generic", "tags": [], "system_prompt": "You are a clerk."},
        author_id="t",
    )
    for agent_id in ("clerk", "scribe"):
        provision(database, PROJECT, AgentRequest(agent_id=agent_id, profile_name="clerk"))
    return Runtime(database, PROJECT, settings=Settings(), notify=heard.wakeups.append, handlers=HANDLERS)


@pytest.fixture
def deployment(database: Database) -> Deployment:
    """Another program on a database as an existing deployment has it, with the agent `clerk`."""
    made = Deployment(database.connection)
    made.project()
    made.agent("clerk", made.profile("clerk"))
    return made


@pytest.fixture
def context_box(runtime: Runtime) -> str:
    """A box that holds one instruction."""
    card = draft_card("task.instruction", "Find the cause.")
    runtime.cards.add(card)
    return runtime.boxes.create([card.card_id]).box_id


@pytest.fixture
def ask(runtime: Runtime, context_box: str) -> Asked:
    """Dispatch a turn to `clerk`, or as the arguments say."""

    def ask(agent_id: str = "clerk", /, **options: Any) -> DispatchResult:
        request = DispatchRequest(target_agent_id=agent_id, **{"context_box_id": context_box, **options})
        return dispatch(runtime, request).result

    return ask


@pytest.fixture
def watched(database: Database, runtime: Runtime) -> Iterator[None]:
    """Whatever the test does to heads and inbox rows is a move of `model/execution/turns.py`."""
    if database.sharded:
        # Shards refuse the triggers by which it is watched.
        yield
        return
    check = watch(database.connection)
    yield
    check()


@pytest.fixture
def desk(runtime: Runtime, watched: None) -> Desk:
    """A worker's desk in the project of `runtime`; every change of a state is watched."""
    return Desk(runtime)


@pytest.fixture
def second(target: Target, runtime: Runtime, heard: Heard) -> Iterator[Desk]:
    """Another worker's desk, on a connection of its own."""
    with Database.open_target(target) as opened:
        yield Desk(second_runtime(opened, runtime, notify=heard.wakeups.append), "w2")


@pytest.fixture
def at_once(target: Target) -> Iterator[Callable[..., Future[Any]]]:
    """Do something on another thread; when this returns, that waits for a lock that this test holds."""
    with ThreadPoolExecutor(1) as pool:

        def start(do: Callable[[], Any]) -> Future[Any]:
            future = pool.submit(do)
            # Asked often, but not by a prepared statement, which breaks behind a pooler.
            with psycopg.connect(
                target.conninfo or "", autocommit=True, prepare_threshold=None
            ) as connection:
                [(shards,)] = connection.execute("SELECT to_regclass('citus_stat_activity')").fetchall()
                waiting = _WAITING.format("citus_stat_activity" if shards else "pg_stat_activity").encode()
                until(lambda: future.done() or bool(connection.execute(waiting).fetchall()))
            assert not future.done(), f"it did not wait: {future.result()}"
            return future

        yield start


_WAITING = "SELECT FROM {} WHERE datname = current_database() AND wait_event_type = 'Lock'"
