"""What other systems write and cbx does not know: nothing of it is overlooked, and nothing is ended for it."""

import pytest

from tests.diagnosis.conftest import World

# What the other system's dispatch writes for an action of a person: it takes the head, and no turn row is made.
ACTION = """
INSERT INTO state.agent_inbox (inbox_id, project_id, agent_id, message_type, correlation_id, agent_turn_id,
    turn_epoch, status, created_at, next_retry_at)
VALUES ('action_1', 'p', 'clerk', 'ui_action', 'action_1', 'turn_action', 1, 'pending', {now}, {now});
INSERT INTO state.execution_edges (edge_id, project_id, primitive, edge_phase, source_agent_id, target_agent_id,
    target_agent_turn_id, correlation_id, recursion_depth, created_at)
VALUES ('edge_action', 'p', 'enqueue', 'request', 'sys.ui', 'clerk', 'turn_action', 'action_1', 0, {now});
UPDATE state.agent_state_head SET status = 'dispatched', active_agent_turn_id = 'turn_action', turn_epoch = 1,
    updated_at = {now} WHERE agent_id = 'clerk'
"""


def act(world: World) -> str:
    world.drain()
    world.runtime.heads.ensure("clerk")
    for statement in ACTION.replace("{now}", "now()").split(";"):
        world.sql(statement)
    return "turn_action"


def test_why_offers_no_fix_for_an_action_of_another_system(world: World) -> None:
    """From acceptance to its end: no row is called missing, and no fix would end it."""
    turn = act(world)
    assert world.problems() == {}
    assert world.why(turn)["rule"] == "handled-elsewhere"
    world.later(31)
    assert world.why(turn)["rule"] == "handled-elsewhere", "workers of cbx are not asked for it"
    queued = world.ask()
    assert world.why(queued)["rule"] == "queued-behind"

    world.later(301)
    found = world.why(turn)
    assert (found["verdict"], found["rule"], found["severity"]) == ("unknown", "silent-elsewhere", "warning")
    assert (found["fix"], [each["fix"] for each in found["also"]]) == (None, [])

    world.sql("UPDATE state.agent_state_head SET status = 'running'")
    world.sql(
        "UPDATE state.agent_inbox SET status = 'processing', processed_at = now() + interval '5 min'"
        " WHERE inbox_id = 'action_1'"
    )
    assert world.why(turn)["rule"] == "running"
    world.later(1000)
    found = world.why(turn)
    assert (found["rule"], found["fix"]) == ("suspect-while-running", None)

    world.sql("UPDATE state.agent_inbox SET status = 'consumed' WHERE inbox_id = 'action_1'")
    world.sql("UPDATE state.agent_state_head SET status = 'idle', active_agent_turn_id = NULL")
    assert world.why(turn)["verdict"] == "ended"
    assert world.problems() == {queued: "queued-on-idle"}


# What else nobody of cbx writes, and who is named for it.
STRANGE = {
    "a head's status": ("UPDATE state.agent_state_head SET status = 'busy' WHERE agent_id = 'clerk'", "turn"),
    "an inbox status": ("UPDATE state.agent_inbox SET status = 'parked'", "turn"),
    "a stop in a queue": (
        "INSERT INTO state.agent_inbox (inbox_id, project_id, agent_id, message_type, agent_turn_id, status)"
        " VALUES ('stop_1', 'p', 'clerk', 'stop', 'turn_elsewhere', 'queued')",
        "turn_elsewhere",
    ),
    "a status of an old report": (
        "INSERT INTO state.agent_inbox (inbox_id, project_id, agent_id, message_type, agent_turn_id, status)"
        " VALUES ('report_1', 'p', 'clerk', 'tool_result', 'turn_elsewhere', 'lost')",
        "turn_elsewhere",
    ),
}


@pytest.mark.parametrize("what", STRANGE)
def test_an_unknown_state_gets_the_verdict_unknown(world: World, what: str) -> None:
    turn = world.ask()
    statement, named = STRANGE[what]
    world.sql(statement)
    named = turn if named == "turn" else named
    assert world.problems() == {named: "not-understood"}
    found = world.why(named)
    assert (found["verdict"], found["fix"]) == ("unknown", None)
    world.later(400)
    assert world.why(named)["verdict"] == "unknown"


def test_a_head_without_a_turn_is_listed_under_its_agent(world: World) -> None:
    world.runtime.heads.ensure("clerk")
    world.sql("UPDATE state.agent_state_head SET status = 'running' WHERE agent_id = 'clerk'")
    answer = world.cbx("why", "--all")
    assert answer.code == 8
    assert answer.out.splitlines()[1].split("  ")[0] == "of agent clerk"
    assert "1 active agent, 0 turns queued, 1 examined" in answer.err
    found = world.cbx("why", "--agent", "clerk", "-o", "json").json()
    assert (found["turn"], found["agent"], found["rule"]) == (None, "clerk", "head-without-turn")
    world.fix(found)
    assert world.problems() == {}
    world.drain()
    assert world.cbx("why", "--agent", "clerk").code == 0


def test_a_message_of_an_unknown_type_is_examined(world: World) -> None:
    world.sql(
        "INSERT INTO state.agent_inbox (inbox_id, project_id, agent_id, message_type, agent_turn_id, status,"
        " created_at) VALUES ('memo_1', 'p', 'clerk', 'memo', 'turn_memo', 'pending', now())"
    )
    answer = world.cbx("why", "--all")
    assert (answer.code, answer.err.splitlines()[-1]) == (
        0,
        "0 active agents, 0 turns queued, 1 examined",
    )
    world.later(301)
    assert world.problems() == {"turn_memo": "silent-elsewhere"}
