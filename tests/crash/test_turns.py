"""Turns, killed at every point of what is done with them: nothing of a turn is lost, and nothing happens twice."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.cli.conftest import succeed
from tests.crash.harness import Connection, Scene, Stage, around_steps, explore, explore_steps, value

MakeStage = Callable[..., Stage]

BOX = "018f2b64-0000-7000-8000-00000000cafe"
FILES = {"clerk.yaml": "name: clerk\nworker_target: desk\nsystem_prompt: You are a clerk.\n"}
WORKER = ("python", "-m", "tests.crash.worker_steps")


def office(scene: Scene) -> None:
    """An agent `clerk`, and a box that it may be asked to read."""
    succeed(scene.run("profile", "import", "clerk.yaml"))
    succeed(scene.run("agent", "provision", "clerk", "--profile", "clerk"))
    succeed(
        scene.run("card", "add", "--id", "task", "--type", "task.instruction", "--text", "Find the cause")
    )
    execute(scene, "INSERT INTO card_boxes (tenant_id, box_id, card_ids) VALUES ('p', %s, '[\"task\"]')", BOX)


def execute(scene: Scene, query: str, *values: Any) -> None:
    with psycopg.connect(scene.conninfo) as connection:
        connection.execute(query.encode(), values)


def ask(scene: Scene, *options: str) -> None:
    succeed(scene.run("dispatch", "--agent", "clerk", "-c", BOX, *options))


def claimed(scene: Scene) -> None:
    """A turn that `w` has claimed, and another that waits behind it."""
    office(scene)
    ask(scene)
    ask(scene)
    succeed(scene.run("inbox", "claim", "--owner", "w"))


# Its last dispatched turn is at its first step and waits for the call `call`.
SUSPEND = """
WITH head AS (
    UPDATE state.agent_state_head SET status = 'suspended', waiting_tool_count = 1, resume_deadline = now()
    RETURNING *
), done AS (
    UPDATE state.agent_inbox SET status = 'consumed' WHERE status = 'processing'
), gone AS (
    DELETE FROM cbx.leases
)
INSERT INTO state.turn_waiting_tools
    (project_id, agent_id, agent_turn_id, turn_epoch, tool_call_id, step_id, tool_name, wait_status)
SELECT project_id, agent_id, active_agent_turn_id, turn_epoch, 'call', 'step_1', 'look', 'waiting' FROM head
"""


def suspended(scene: Scene) -> None:
    """A turn that waits for the call `call`, and another behind it."""
    claimed(scene)
    execute(scene, SUSPEND)


def reported(scene: Scene) -> None:
    """The report of that call is claimed by `w`."""
    suspended(scene)
    succeed(scene.run("turn", "report", active(scene), "--tool-call-id", "call", "--result", "found"))
    succeed(scene.run("inbox", "claim", "--owner", "w"))


def active(scene: Scene) -> str:
    return str(look(scene, "SELECT active_agent_turn_id FROM state.agent_state_head"))


def look(scene: Scene, query: str) -> Any:
    with psycopg.connect(scene.conninfo) as connection:
        return value(connection, query)


@pytest.fixture
def known(stage: MakeStage) -> Callable[..., tuple[Stage, str]]:
    """A stage, and what a query finds on it: an id that commands are given."""

    def make(prepare: Callable[[Scene], None], query: str) -> tuple[Stage, str]:
        made = stage(files=FILES, prepare=prepare)
        with made.scene() as scene:
            return made, str(look(scene, query))

    return make


TURN = "SELECT active_agent_turn_id FROM state.agent_state_head"
CLAIMED = "SELECT inbox_id FROM state.agent_inbox WHERE status = 'processing'"


# A turn that has not ended is its agent's or waits in its queue, and one that is not suspended has one open row.
LOST = """
SELECT count(*)
FROM cbx.turns AS t
LEFT JOIN state.agent_state_head AS h ON h.active_agent_turn_id = t.agent_turn_id
WHERE t.end_status IS NOT NULL OR coalesce(h.status, 'queued') <> 'suspended' AND 1 <> (
    SELECT count(*) FROM state.agent_inbox AS i
    WHERE i.agent_turn_id = t.agent_turn_id AND i.message_type = 'turn'
        AND i.status = ANY(CASE WHEN h.status IS NULL THEN '{queued}' ELSE '{pending,processing}'::text[] END))
"""


def no_turn_is_lost(connection: Connection) -> None:
    assert value(connection, LOST) == 0


def nothing_is_claimed(connection: Connection) -> None:
    assert value(connection, "SELECT count(*) FROM cbx.leases") == 0


class TestDispatch:
    COMMAND = ("dispatch", "--agent", "clerk", "--correlation-id", "nightly")

    def test_a_killed_dispatch_is_complete_or_absent(self, stage: MakeStage) -> None:
        points = explore(stage(files=FILES, prepare=office), *self.COMMAND, "-c", BOX)
        assert {"dispatch_situation:1", "write_turn:1", "notify:1"} <= set(points)

    def test_a_killed_dispatch_with_a_recipe_is_complete_or_absent(self, stage: MakeStage) -> None:
        recipe = ("-H", "delegate", "-a", "profile_name=clerk", "-a", "instruction=Go")
        points = explore(stage(files=FILES, prepare=office), *self.COMMAND, *recipe)
        assert {"insert_card:1", "write_turn:1"} <= set(points)


class TestWorking:
    def test_a_killed_claim_claims_nothing(self, stage: MakeStage) -> None:
        def dispatched(scene: Scene) -> None:
            office(scene)
            ask(scene)

        # One statement, which no point divides: whoever is killed before it has claimed nothing.
        prepared = stage(files=FILES, prepare=dispatched)
        points = explore_steps(prepared, "inbox", "claim", "--owner", "w", invariant=nothing_is_claimed)
        assert points[-1] == "claim_due:1"

    def test_a_killed_acknowledgement_ends_the_turn_or_changes_nothing(
        self, known: Callable[..., tuple[Stage, str]]
    ) -> None:
        prepared, row = known(claimed, CLAIMED)
        points = explore(prepared, "inbox", "ack", row, "--owner", "w")
        assert {"write_end:1", "promote_turn:1", "notify:1"} <= set(points)

    def test_a_killed_deferral_is_complete_or_absent(self, known: Callable[..., tuple[Stage, str]]) -> None:
        prepared, row = known(claimed, CLAIMED)
        explore(prepared, "inbox", "defer", row, "--owner", "w", "--reason", "busy", "--delay", "5")


class TestReports:
    def test_a_killed_report_is_complete_or_absent(self, known: Callable[..., tuple[Stage, str]]) -> None:
        prepared, turn = known(suspended, TURN)
        points = explore(prepared, "turn", "report", turn, "--tool-call-id", "call", "--result", "found")
        assert {"report_situation:1", "write_report:1", "commit:1"} <= set(points)

    def test_a_killed_application_of_a_report_is_complete_or_absent(
        self, known: Callable[..., tuple[Stage, str]]
    ) -> None:
        prepared, row = known(reported, CLAIMED)
        points = explore(prepared, *WORKER, "w", row)
        assert {"claimed_report:1", "write_applied:1", "commit:1"} <= set(points)


class TestRecovering:
    def test_a_killed_reclaim_is_complete_or_absent(self, known: Callable[..., tuple[Stage, str]]) -> None:
        prepared, turn = known(claimed, TURN)
        explore(prepared, "turn", "reclaim", turn, "--expect-epoch", "1", "--reason", "it hangs")

    def test_a_killed_reaping_of_a_lost_lease_can_be_repeated(self, stage: MakeStage) -> None:
        def lost(scene: Scene) -> None:
            claimed(scene)
            execute(scene, "UPDATE cbx.leases SET expires_at = now()")

        points = explore_steps(stage(files=FILES, prepare=lost), "reap", invariant=no_turn_is_lost)
        assert {"claimed_situation:1", "give_back:1", "write_audit:1"} <= set(points)

    def test_a_killed_reaping_of_a_deadline_can_be_repeated(self, stage: MakeStage) -> None:
        points = explore_steps(stage(files=FILES, prepare=suspended), "reap", invariant=no_turn_is_lost)
        assert {"report_situation:1", "write_report:1"} <= set(points)


# Asks for the tool `look` first, and says `done` when it has the result.
CLIENT = r"""asked=$(cat)
case $asked in
*'"role":"tool"'* | *'"role": "tool"'*) echo done ;;
*) echo '{"role": "assistant", "tool_calls":
  [{"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}]}' ;;
esac
"""
RUN = ("worker", "run", "--trust-stored-commands", "--target", "desk", "--exec", "sh client.sh")


class TestRunning:
    """A worker that is killed around all that it commits of a turn's run, with a step that calls a tool."""

    def test_another_worker_ends_the_turn_once(self, stage: MakeStage) -> None:
        def asked(scene: Scene) -> None:
            succeed(scene.run("profile", "import", "looker.yaml"))
            succeed(scene.run("tool", "add", "look", "--exec", "echo found"))
            succeed(scene.run("agent", "provision", "clerk", "--profile", "clerk"))
            succeed(scene.run("box", "create", "-o", "id"))
            box = succeed(scene.run("box", "list", "-o", "id")).strip().splitlines()[0]
            succeed(scene.run("dispatch", "--agent", "clerk", "-c", box))

        looker = FILES["clerk.yaml"] + "allowed_tools: [look]\n"
        prepared = stage(files={"looker.yaml": looker, "client.sh": CLIENT}, prepare=asked)
        with prepared.scene() as scene:
            result, points = scene.points(*RUN, "--once")
            assert result.code == 0, result.err
            self.check(scene)
        struck = 0
        for point in around_steps(points):
            with prepared.scene() as scene:
                # A slow machine has time for one more heartbeat in one run than in another.
                struck += scene.strike(point, *RUN, "--once")
                with scene.connection() as connection:
                    database = value(connection, "SELECT current_database()")
                    connection.execute(f"ALTER DATABASE {database} SET cbx.clock_offset = '90 seconds'")
                succeed(scene.run(*RUN, "--drain"))
                self.check(scene)
        assert struck > 12

    def check(self, scene: Scene) -> None:
        """The turn has ended in success, once, with the call, one result and one deliverable; nothing is left."""
        with scene.connection() as connection:
            assert value(connection, "SELECT string_agg(end_status, ',') FROM cbx.turns") == "success"
            types = connection.execute(
                "SELECT metadata ->> 'type', count(*) FROM cards WHERE metadata ? 'agent_turn_id'"
                " AND metadata ->> 'type' <> 'agent.thought' GROUP BY 1 ORDER BY 1"
            ).fetchall()
            assert types == [("task.deliverable", 1), ("tool.call", 1), ("tool.result", 1)]
            assert value(connection, "SELECT count(*) FROM cbx.leases") == 0
            assert value(connection, "SELECT string_agg(status, ',') FROM state.agent_state_head") == "idle"
