"""Batches, killed at every point: creation, dispatch, the ends of children, and the end of all are done once each."""

import os
import re
import signal
from collections.abc import Callable

import pytest

from tests.cli.conftest import succeed
from tests.crash.harness import Connection, Scene, Stage, value
from tests.crash.processes import until

MakeStage = Callable[..., Stage]

CHILDREN = 8
TASK = "{target_strategy: new, target_ref: clerk, instruction: Go.}"
FILES = {
    "clerk.yaml": "name: clerk\nworker_target: desk\n",
    "lead.yaml": "name: lead\nworker_target: desk\nallowed_internal_tools: [fork_join]\n"
    "delegation_policy: {target_profiles: [clerk]}\n",
    "tasks.yaml": f"tasks: [{', '.join([TASK] * CHILDREN)}]\n",
    # The lead forks eight clerks and says `done` when it has their results, as each clerk does at once.
    "client.sh": r"""asked=$(cat)
case $asked in
*'"role":"tool"'* | *'"role": "tool"'* | *'Go.'*) echo done ;;
*) T='{\"target_strategy\": \"new\", \"target_ref\": \"clerk\", \"instruction\": \"Go.\"}'
  echo '{"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "fork_join",
  "arguments": "{\"tasks\": ['"$T,$T,$T,$T,$T,$T,$T,$T"']}"}}]}' ;;
esac
""",
}
RUN = ("worker", "run", "--target", "desk", "--exec", "sh client.sh", "--concurrency", "1", "--drain")


def office(scene: Scene) -> None:
    succeed(scene.run("profile", "import", "clerk.yaml", "lead.yaml"))


def count(connection: Connection, query: str) -> int:
    return int(value(connection, "SELECT count(*) FROM " + query))  # noqa: S608


def check(connection: Connection, *, parents: int) -> None:
    """Each child was asked once and delivered once, the batch ended once, and its parent got one result."""
    assert value(connection, "SELECT string_agg(status, ',') FROM cbx.batches") == "success"
    assert count(connection, "cbx.batch_tasks WHERE status = 'success' AND NOT stop_due") == CHILDREN
    assert count(connection, "cbx.turns") == CHILDREN + parents
    assert count(connection, "cbx.turns WHERE end_status = 'success'") == CHILDREN + parents
    assert count(connection, "resource.project_agents") == CHILDREN + parents
    assert count(connection, "cards WHERE metadata ->> 'type' = 'task.deliverable'") == CHILDREN + parents
    assert count(connection, "cards WHERE metadata ->> 'type' = 'tool.result'") == parents
    assert count(connection, "state.execution_edges WHERE primitive = 'join'") == 2
    assert count(connection, "cbx.leases") == count(connection, "cbx.batches WHERE report_due") == 0
    assert count(connection, "state.agent_state_head WHERE status <> 'idle'") == 0
    boxes = count(connection, "card_boxes")
    used = value(
        connection,
        "SELECT count(DISTINCT box) FROM (SELECT context_box_id::text AS box FROM cbx.batch_tasks"
        " UNION SELECT output_box_id::text FROM cbx.batch_tasks"
        " UNION SELECT payload ->> 'context_box_id' FROM state.agent_inbox WHERE message_type = 'turn'"
        " UNION SELECT payload ->> 'output_box_id' FROM state.agent_inbox WHERE message_type = 'turn'"
        " UNION SELECT request_box_id::text FROM state.agent_steps"
        " UNION SELECT profile_box_id::text FROM resource.profiles) AS every WHERE box IS NOT NULL",
    )
    assert boxes == used, "no box is left behind"


def later(scene: Scene) -> None:
    """The leases of whoever was killed are over."""
    with scene.connection() as connection:
        database = value(connection, "SELECT current_database()")
        connection.execute(f"ALTER DATABASE {database} SET cbx.clock_offset = '90 seconds'")


def chosen(points: list[str], *statements: str) -> list[str]:
    """Every commit, what follows it, and each time that one of these statements comes."""
    names = ("commit", "committed", *statements)
    return [point for point in points if point.rpartition(":")[0] in names]


def test_a_killed_fork_leaves_a_complete_batch_or_none(stage: MakeStage) -> None:
    made = stage(files=FILES, prepare=office)
    with made.scene() as scene:
        result, points = scene.points("fork-join", "tasks.yaml")
        assert result.code == 0, result.err
    inside = chosen(points, "insert_batch", "insert_batch_tasks", "write_turn", "dispatch_batch_task")
    first = inside.index("committed:1")
    for point in [*inside[:first:2], *inside[first :: max(1, len(inside) // 5)]]:
        with made.scene() as scene:
            scene.kill(point, "fork-join", "tasks.yaml")
            with scene.connection() as connection:
                batches, tasks = count(connection, "cbx.batches"), count(connection, "cbx.batch_tasks")
                assert (batches, tasks) in ((0, 0), (1, CHILDREN)), point
                if not batches:
                    assert count(connection, "resource.project_agents") == 0
                    continue
            succeed(scene.run("reap"))
            with scene.connection() as connection:
                assert count(connection, "cbx.batch_tasks WHERE status = 'dispatched'") == CHILDREN, point
                assert count(connection, "cbx.turns") == CHILDREN, point


@pytest.mark.parametrize("most", [5, pytest.param(100, marks=pytest.mark.soak)])
def test_a_fork_of_a_model_is_joined_once_if_a_worker_is_killed(stage: MakeStage, most: int) -> None:
    def asked(scene: Scene) -> None:
        office(scene)
        succeed(scene.run("launch", "lead", "Find out."))

    made = stage(files=FILES, prepare=asked)
    with made.scene() as scene:
        result, points = scene.points(*RUN)
        assert result.code == 0, result.err
        with scene.connection() as connection:
            check(connection, parents=1)
    inside = ("insert_batch", "end_batch", "end_batch_task", "write_report", "dispatch_batch_task")
    found = chosen(points, *inside)
    last = [point for point in found if point.startswith("end_batch:")]
    struck = 0
    for point in [*found[:: max(1, len(found) // most)], *last]:
        with made.scene() as scene:
            # A slow machine has time for one more heartbeat in one run than in another.
            struck += scene.strike(point, *RUN)
            later(scene)
            succeed(scene.run("reap"))
            succeed(scene.run(*RUN))
            with scene.connection() as connection:
                check(connection, parents=1)
    assert struck >= most


def test_ctrl_c_leaves_the_batch_running_and_shows_how_to_continue(stage: MakeStage) -> None:
    made = stage(files=FILES, prepare=office)
    with made.scene() as scene, scene.started("fork-join", "tasks.yaml", "--wait") as command:
        until(lambda: (command.streams / "err").read_text().startswith("batch "))
        until(lambda: scene.run("turn", "list", "-o", "id").out.count("\n") == CHILDREN)
        os.kill(command.pid, signal.SIGINT)
        result = command.result()
        assert result.code == 130
        continues = (
            r"batch (\w+) continues; watch it with `cbx batch watch \1`, or end it with `cbx batch cancel \1`"
        )
        found = re.search(continues, result.err)
        assert found, result.err
        assert "running" in scene.run("batch", "show", found[1]).out
