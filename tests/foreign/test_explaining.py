"""`cbx why` on an existing deployment's own tables: a verdict for every state, at once and late; nothing is written."""

from dataclasses import replace

import pytest

from tests.conftest import Cbx
from tests.foreign import scenes
from tests.foreign.scenes import SCENES, Scene
from tests.foreign.tables import rows
from tests.foreign.writer import Deployment

# The rule that holds at once, and the one that holds when nobody has done anything for long.
EXPECTED: dict[Scene, tuple[str, str]] = {
    scenes.queued_on_an_idle_agent: ("being-promoted", "queued-on-idle"),
    scenes.dispatched: ("dispatched", "lost-doorbell"),
    scenes.queued_behind_another: ("queued-behind", "queued-behind-stuck"),
    scenes.claimed: ("dispatched", "crashed-claim"),
    scenes.running: ("running", "suspect-while-running"),
    scenes.running_without_its_row: ("running", "consumed-not-applied"),
    scenes.suspended: ("waiting-for-tool", "deadline-passed"),
    scenes.suspended_without_deadline: ("no-deadline", "no-deadline"),
    scenes.reported: ("result-arriving", "report-not-claimed"),
    scenes.result_without_report: ("waiting-for-tool", "result-not-applied"),
    scenes.report_consumed_not_applied: ("report-consumed-not-applied", "report-consumed-not-applied"),
    scenes.resumed: ("running", "suspect-while-running"),
    scenes.finished: ("ended", "ended"),
    scenes.failed: ("ended", "ended"),
    scenes.failed_by_its_model: ("ended", "ended"),
    scenes.dropped: ("consumed-not-applied", "consumed-not-applied"),
    scenes.given_up_by_the_guard: ("ended", "ended"),
    scenes.ran_three_times: ("ended", "ended"),
    scenes.being_reaped: ("being-ended", "wrong-epoch"),
    scenes.reaped: ("ended", "ended"),
    scenes.retransmitted: ("dispatched", "lost-doorbell"),
    scenes.retransmitted_and_finished: ("dispatched", "lost-doorbell"),
    scenes.asked_to_stop: ("running", "suspect-while-running"),
    scenes.refused: ("ended", "ended"),
    scenes.child_of_a_waiting_parent: ("dispatched", "lost-doorbell"),
}
HEALTHY = {
    "being-ended", "being-promoted", "dispatched", "ended", "queued-behind", "result-arriving", "running",
    "waiting-for-tool",
}  # fmt: skip
KEYS = ["turn", "agent", "verdict", "rule", "severity", "evidence", "next_actor", "due_at", "fix", "also"]


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_why_explains_every_state_and_changes_nothing(scene: Scene, deployment: Deployment, cbx: Cbx) -> None:
    turn = scene(deployment)
    before = rows(deployment.connection)
    assert explained(cbx, turn.agent_turn_id) == EXPECTED[scene][0]
    name = deployment.connection.info.dbname
    deployment.connection.execute(f"ALTER DATABASE {name} SET cbx.clock_offset = '700 seconds'")
    assert explained(cbx, turn.agent_turn_id) == EXPECTED[scene][1]
    assert rows(deployment.connection) == before


ENDS = {
    scenes.finished: "success",
    scenes.failed: "failed",
    scenes.failed_by_its_model: "failed",
    scenes.reaped: "failed",
    scenes.refused: "failed",
    scenes.given_up_by_the_guard: "failed",
    scenes.ran_three_times: "success",
}


@pytest.mark.parametrize("scene", ENDS, ids=lambda scene: scene.__name__)
def test_end_statuses_match_those_of_the_other_system(scene: Scene, deployment: Deployment, cbx: Cbx) -> None:
    turn = scene(deployment)
    waited = cbx("turn", "wait", turn.agent_turn_id, "--timeout", "0", "-o", "json")
    assert (waited.json()["end_status"], waited.code) == (ENDS[scene], 0 if ENDS[scene] == "success" else 8)
    shown = cbx("why", turn.agent_turn_id).out
    assert f"ended: {ENDS[scene]}" in shown


def test_a_turn_that_ran_more_than_once_is_reported(deployment: Deployment, cbx: Cbx) -> None:
    once = scenes.finished(deployment)
    assert cbx("why", once.agent_turn_id, "-o", "json").json()["also"] == []
    turn = deployment.dispatch(once.agent_id, deployment.context("Refund order 120"))
    again = [deployment.retransmit(turn) for _ in range(2)]
    running = deployment.begin(turn)
    for inbox_id in [*again, None]:
        found = cbx("why", turn.agent_turn_id, "-o", "json").json()
        assert (found["rule"], [each["rule"] for each in found["also"]]) == (
            "running",
            ["ran-more-than-once"],
        )
        deployment.finish(running)
        if inbox_id is not None:
            running = deployment.begin(deployment.now(replace(turn, inbox_id=inbox_id)))
    found = cbx("why", turn.agent_turn_id, "-o", "json").json()
    assert (found["rule"], [each["rule"] for each in found["also"]]) == ("ended", ["ran-more-than-once"])
    told = [each["row"] for each in found["also"][0]["evidence"] if each["table"] == "state.agent_inbox"]
    assert told == [turn.inbox_id, *again]
    events = cbx("turn", "show", turn.agent_turn_id, "-o", "json").json()["timeline"]
    given = [event["text"] for event in events if event["event"] == "enqueued"]
    assert given == [
        "given to agent 'clerk-1' by 'sys.pmo'",
        *["given to agent 'clerk-1' again by 'sys.pmo.l0_guard'"] * 2,
    ]


def test_an_updated_head_does_not_hide_an_unclaimed_turn(deployment: Deployment, cbx: Cbx) -> None:
    turn = scenes.dispatched(deployment)
    name = deployment.connection.info.dbname
    later = f"ALTER DATABASE {name} SET cbx.clock_offset = '%s seconds'"
    touched = "UPDATE state.agent_state_head SET updated_at = now() + interval '%s seconds'"
    for seconds, rule in ((25, "dispatched"), (40, "lost-doorbell"), (240, "lost-doorbell")):
        deployment.connection.execute((later % seconds).encode())
        deployment.connection.execute((touched % seconds).encode())
        deployment.retransmit(turn)
        deployment.connection.execute((touched % seconds).encode())
        assert explained(cbx, turn.agent_turn_id) == rule


def test_time_in_the_queue_does_not_make_a_dispatched_turn_overdue(deployment: Deployment, cbx: Cbx) -> None:
    first = scenes.running(deployment)
    turn = deployment.dispatch(first.agent_id, deployment.context("Refund order 119"))
    deployment.connection.execute(
        "UPDATE state.agent_inbox SET created_at = created_at - interval '1 hour',"
        " next_retry_at = next_retry_at - interval '1 hour'"
    )
    deployment.finish(first)
    assert explained(cbx, turn.agent_turn_id) == "dispatched"


def explained(cbx: Cbx, turn_id: str) -> str:
    """The rule that explains a turn, by itself and among all of the project."""
    one = cbx("why", turn_id, "-o", "json")
    found = one.json()
    assert (list(found), found["turn"]) == (KEYS, turn_id)
    assert one.code == (0 if found["rule"] in HEALTHY else 8)
    assert "dead" not in found["verdict"]
    [listed] = [each for each in cbx("turn", "list", "-o", "json").json() if each["agent_turn_id"] == turn_id]
    shown = cbx("turn", "show", turn_id, "-o", "json").json()
    assert (listed["status"], listed["end_status"]) == (shown["status"], shown["end_status"])
    assert (shown["status"] == "ended") == (found["verdict"] == "ended"), found
    every = cbx("why", "--all", "-o", "json")
    mine = [each["rule"] for each in every.json() if each["turn"] == turn_id]
    assert mine in ([], [found["rule"]])
    assert mine or found["rule"] in (*HEALTHY, "queued-behind-stuck")
    assert every.code == (8 if every.json() else 0)
    return str(found["rule"])
