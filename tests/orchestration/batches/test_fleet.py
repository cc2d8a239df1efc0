"""Batches by many workers that are killed and frozen: each batch ends once, each parent goes on once."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from cardbox_cli.execution.dispatch_requests import Caller
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.handwritten.tasks import Task
from cardbox_cli.orchestration.batch_manager import BatchManager
from cardbox_cli.orchestration.delegation import delegate
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from cardbox_cli.store.profiles import ProfileStore
from tests.conftest import PROJECT
from tests.execution.fleet import SETTINGS


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """How much of everything. `seconds` is the limit for all to end."""

    workers: int
    batches: int
    children: int
    troubles: int
    seconds: float


SMALL = Scale(workers=2, batches=4, children=4, troubles=3, seconds=300)
LARGE = Scale(workers=8, batches=200, children=8, troubles=60, seconds=3600)


def model(children: int) -> str:
    """A lead forks so many clerks and says `done` when it has their results; a clerk says it after a while."""
    task = {"target_strategy": "new", "target_ref": "clerk", "instruction": "please work"}
    arguments = json.dumps({"tasks": [task] * children})
    function = {"name": "fork_join", "arguments": arguments}
    call = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_0", "type": "function", "function": function}],
    }
    return (
        "asked=$(cat)\ncase $asked in\n"
        """*'"role":"tool"'*) echo done ;;\n"""
        "*'please work'*) sleep 0.1; echo done ;;\n"
        f"*) printf '%s' '{json.dumps(call)}' ;;\nesac"
    )


class Fleet:
    """Workers of one database, each replaced when it is killed."""

    def __init__(self, target: Target, scale: Scale, folder: Path) -> None:
        self.scale = scale
        self._target = target
        self._folder = folder
        self._workers: list[subprocess.Popen[bytes]] = []

    @contextmanager
    def at_work(self) -> Iterator[None]:
        self._workers = [self._started() for _ in range(self.scale.workers)]
        try:
            yield
            for worker in self._workers:
                worker.send_signal(signal.SIGTERM)
            # One that was started a moment ago may not have come to listen yet.
            assert {worker.wait(60) for worker in self._workers} <= {0, -signal.SIGTERM}
        finally:
            for worker in self._workers:
                worker.kill()
                worker.wait()

    def _started(self) -> "subprocess.Popen[bytes]":
        kept = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
        own = {
            "CBX_HOME": str(self._folder),
            "CBX_DATABASE_URL": self._target.conninfo or "",
            "CBX_PROJECT": PROJECT,
        }
        words = ("worker", "run", "--exec", model(self.scale.children), "--concurrency", "3")
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "cardbox_cli", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**kept, **SETTINGS, **own},
            )

    def trouble(self, rng: Random) -> None:
        """Kill a worker, or freeze it for longer than its leases last."""
        slot = rng.randrange(len(self._workers))
        worker = self._workers[slot]
        if rng.random() < 0.3:
            worker.send_signal(signal.SIGSTOP)
            time.sleep(3)
            worker.send_signal(signal.SIGCONT)
            return
        worker.kill()
        worker.wait()
        self._workers[slot] = self._started()


def rows(database: Database, query: str) -> list[tuple[Any, ...]]:
    return database.connection.execute(query.encode()).fetchall()


@pytest.mark.parametrize(
    "scale", [SMALL, pytest.param(LARGE, marks=pytest.mark.soak)], ids=["small", "large"]
)
def test_each_batch_ends_once_and_each_parent_resumes_once(
    database: Database, target: Target, tmp_path: Path, scale: Scale
) -> None:
    seed = os.environ.get("CBX_FLEET_SEED") or os.urandom(4).hex()
    print(f"CBX_FLEET_SEED={seed}")
    rng = Random(seed)
    profiles = ProfileStore(database, PROJECT)
    profiles.save({"name": "clerk", "worker_target": "worker_generic", "tags": []}, author_id="t")
    profiles.save(
        {
            "name": "lead",
            "worker_target": "worker_generic",
            "tags": [],
            "allowed_internal_tools": ["fork_join"],
            "delegation_policy": {"target_profiles": ["clerk"]},
        },
        author_id="t",
    )
    runtime = Runtime(database, PROJECT, followers=(BatchManager(),))
    lead = Task(target_strategy="new", target_ref="lead", instruction="please fork")
    for _ in range(scale.batches):
        delegate(runtime, Caller(), lead)
    ended = "SELECT count(*) FROM cbx.turns WHERE end_status IS NOT NULL"
    turns = scale.batches * (scale.children + 1)
    fleet, give_up = Fleet(target, scale, tmp_path), time.monotonic() + scale.seconds
    with fleet.at_work():
        for number in range(scale.troubles):
            while rows(database, ended)[0][0] < turns * number // (scale.troubles + 1) + 1:
                assert time.monotonic() < give_up, (tmp_path / "log").read_text()[-3000:]
                time.sleep(0.05)
            fleet.trouble(rng)
        while rows(database, ended)[0][0] < turns:
            assert time.monotonic() < give_up, (tmp_path / "log").read_text()[-3000:]
            time.sleep(0.1)
    judge(database, scale)


def judge(database: Database, scale: Scale) -> None:
    """Every child delivered once, every batch ended once in success, every parent read one result of it."""
    batches, children = scale.batches, scale.batches * scale.children
    assert rows(database, "SELECT end_status, count(*) FROM cbx.turns GROUP BY 1") == [
        ("success", batches + children)
    ]
    assert rows(database, "SELECT status, count(*) FROM cbx.batches GROUP BY 1") == [("success", batches)]
    assert rows(database, "SELECT status, count(*) FROM cbx.batch_tasks GROUP BY 1") == [
        ("success", children)
    ]
    joins = "SELECT edge_phase, count(*) FROM state.execution_edges WHERE primitive = 'join' GROUP BY 1 ORDER BY 1"
    assert rows(database, joins) == [("request", batches), ("response", batches)]
    cards = "SELECT metadata ->> 'type', count(*) FROM cards WHERE metadata ->> 'type' IN ('tool.result', 'task.deliverable') GROUP BY 1 ORDER BY 1"
    assert rows(database, cards) == [("task.deliverable", batches + children), ("tool.result", batches)]
    resumed = "SELECT count(*) FROM state.turn_waiting_tools WHERE wait_status = 'applied'"
    assert rows(database, resumed) == [(batches,)]
    left = "SELECT count(*) FROM state.agent_inbox WHERE status <> 'consumed'"
    assert rows(database, left) == rows(database, "SELECT count(*) FROM cbx.leases") == [(0,)]
    assert rows(database, "SELECT count(*) FROM state.agent_state_head WHERE status <> 'idle'") == [(0,)]
    assert rows(database, "SELECT count(*) FROM cbx.batches WHERE report_due") == [(0,)]
