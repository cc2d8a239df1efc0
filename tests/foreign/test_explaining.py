"""`cbx why` on an existing deployment's own tables: a verdict for every state, at once and late; nothing is written."""

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
    scenes.reaped: ("ended", "ended"),
    scenes.retransmitted: ("dispatched", "lost-doorbell"),
    scenes.retransmitted_and_finished: ("dispatched", "lost-doorbell"),
    scenes.asked_to_stop: ("running", "suspect-while-running"),
    scenes.refused: ("dead-letter", "dead-letter"),
    scenes.child_of_a_waiting_parent: ("dispatched", "lost-doorbell"),
}
HEALTHY = {
    "being-promoted", "dispatched", "ended", "queued-behind", "result-arriving", "running", "waiting-for-tool",
}  # fmt: skip
KEYS = ["turn", "verdict", "rule", "severity", "evidence", "next_actor", "due_at", "fix", "also"]


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_every_state_is_explained_and_stays_as_it_is(scene: Scene, deployment: Deployment, cbx: Cbx) -> None:
    turn = scene(deployment)
    before = rows(deployment.connection)
    assert explained(cbx, turn.agent_turn_id) == EXPECTED[scene][0]
    name = deployment.connection.info.dbname
    deployment.connection.execute(f"ALTER DATABASE {name} SET cbx.clock_offset = '700 seconds'")
    assert explained(cbx, turn.agent_turn_id) == EXPECTED[scene][1]
    assert rows(deployment.connection) == before


def explained(cbx: Cbx, turn_id: str) -> str:
    """The rule that explains a turn, by itself and among all of the project."""
    one = cbx("why", turn_id, "-o", "json")
    found = one.json()
    assert (list(found), found["turn"]) == (KEYS, turn_id)
    assert one.code == (0 if found["rule"] in HEALTHY else 8)
    assert "dead" not in found["verdict"]
    every = cbx("why", "--all", "-o", "json")
    mine = [each["rule"] for each in every.json() if each["turn"] == turn_id]
    assert mine in ([], [found["rule"]])
    assert every.code == (8 if every.json() else 0)
    return str(found["rule"])
