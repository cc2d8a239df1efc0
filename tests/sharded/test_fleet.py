"""A fleet on a cluster: many projects, workers that are killed and frozen, and a node that crashes.

`CBX_TEST_CITUS_CRASH` is a shell command that crashes one node, waits a moment, and starts it again.
"""

import os
import subprocess
from pathlib import Path

import pytest

from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from tests.execution.fleet import Fleet, Scale
from tests.execution.judging import judge_rows
from tests.sharded.cluster import CRASH

_PROJECTS = tuple(f"tenant {number}" for number in range(10))
_SCALE = Scale(workers=4, concurrency=4, agents=100, turns=2000, dispatchers=4, troubles=40, seconds=2400)


@pytest.mark.soak
def test_every_turn_of_ten_projects_ends_once_despite_a_node_crash(
    target: Target, database: Database, seed: str, tmp_path: Path
) -> None:
    command = os.environ.get(CRASH)
    if not command:
        pytest.skip(f"{CRASH} names no command that crashes a node of the cluster")
    fleet = Fleet(target, target, _SCALE, seed, tmp_path, _PROJECTS)

    def crash(fleet: Fleet) -> None:
        subprocess.run(command, shell=True, check=True, timeout=300)  # the tester's own
        fleet.wait_until_back()

    fleet.run(in_the_middle=crash)
    print(f"{len(fleet.asked)} turns, {fleet.killed} killed, {fleet.frozen} frozen", flush=True)
    assert fleet.killed + fleet.frozen == _SCALE.troubles
    judge_rows(database, fleet)
