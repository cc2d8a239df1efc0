"""Delegations, killed at every point: all of one or nothing, and a call that waits is answered once."""

from collections.abc import Callable

from tests.cli.conftest import succeed
from tests.crash.harness import Scene, Stage, around_steps, explore, value

MakeStage = Callable[..., Stage]

FILES = {
    "clerk.yaml": "name: clerk\nworker_target: desk\n",
    "lead.yaml": "name: lead\nworker_target: desk\nallowed_internal_tools: [ask_expert]\n"
    "delegation_policy: {target_profiles: [clerk]}\n",
    # The lead asks an expert and says `done` when it has the answer, as the expert does at once.
    "client.sh": r"""asked=$(cat)
case $asked in
*'"role":"tool"'* | *'"role": "tool"'* | *'Is it so?'*) echo done ;;
*) echo '{"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "ask_expert",
  "arguments": "{\"expert_profile\": \"clerk\", \"question\": \"Is it so?\", \"await\": true}"}}]}' ;;
esac
""",
}
RUN = ("worker", "run", "--target", "desk", "--exec", "sh client.sh")


def office(scene: Scene) -> None:
    succeed(scene.run("profile", "import", "clerk.yaml", "lead.yaml"))
    succeed(scene.run("agent", "provision", "clerk", "--profile", "clerk"))


def test_a_killed_delegation_is_complete_or_absent(stage: MakeStage) -> None:
    asked = ("--strategy", "new", "--ref", "clerk", "--instruction", "Go.", "--turn-id", "turn_a")
    points = explore(stage(files=FILES, prepare=office), "delegate", *asked)
    assert {"insert_agent:1", "insert_card:2", "write_turn:1", "commit:1"} <= set(points)


class TestAnExpertThatIsAwaited:
    """A worker that is killed before all that is committed of a turn that asks, of the expert's, and of what follows."""

    def test_the_expert_answers_once_if_a_worker_is_killed(self, stage: MakeStage) -> None:
        def asked(scene: Scene) -> None:
            office(scene)
            succeed(scene.run("launch", "lead", "Find out."))

        prepared = stage(files=FILES, prepare=asked)
        with prepared.scene() as scene:
            result, points = scene.points(*RUN, "--drain")
            assert result.code == 0, result.err
            self.check(scene)
        struck = 0
        for point in [each for each in around_steps(points) if not each.startswith("committed:")]:
            with prepared.scene() as scene:
                # A slow machine has time for one more heartbeat in one run than in another.
                struck += scene.strike(point, *RUN, "--drain")
                with scene.connection() as connection:
                    database = value(connection, "SELECT current_database()")
                    connection.execute(f"ALTER DATABASE {database} SET cbx.clock_offset = '90 seconds'")
                succeed(scene.run(*RUN, "--drain"))
                self.check(scene)
        assert struck > 12

    def check(self, scene: Scene) -> None:
        """Both turns have ended in success, once; one expert was asked, and its answer came once."""
        with scene.connection() as connection:
            ends = value(connection, "SELECT string_agg(end_status, ',') FROM cbx.turns")
            assert ends == "success,success"
            types = connection.execute(
                "SELECT metadata ->> 'type', count(*) FROM cards WHERE metadata ? 'agent_turn_id'"
                " AND metadata ->> 'type' <> 'agent.thought' GROUP BY 1 ORDER BY 1"
            ).fetchall()
            assert types == [("task.deliverable", 2), ("tool.call", 1), ("tool.result", 1)]
            agents = (
                "SELECT count(*) FROM resource.project_agents WHERE metadata ->> 'profile_name' = 'clerk'"
            )
            assert value(connection, agents) == 2
            assert value(connection, "SELECT count(*) FROM cbx.leases") == 0
            assert (
                value(connection, "SELECT count(*) FROM state.agent_state_head WHERE status <> 'idle'") == 0
            )
