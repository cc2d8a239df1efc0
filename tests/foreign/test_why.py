"""`cbx why` on what an existing deployment wrote, without any table of cbx: at once, and when nothing more happened."""

import json
from typing import Any

import pytest

from tests.conftest import Cbx
from tests.foreign import scenes
from tests.foreign.scenes import SCENES, Scene
from tests.foreign.tables import rows
from tests.foreign.writer import Deployment

# What is said of a turn at once, and seven minutes later.
SAID = {
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


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_every_scene_is_explained_without_changing_a_byte(
    scene: Scene, deployment: Deployment, cbx: Cbx
) -> None:
    turn = scene(deployment)
    before = rows(deployment.connection)
    said = []
    for seconds in (0, 420):
        name = deployment.connection.info.dbname
        deployment.connection.execute(f"ALTER DATABASE {name} SET cbx.clock_offset = '{seconds} seconds'")
        answer = cbx("why", turn.agent_turn_id, "-o", "json")
        found: dict[str, Any] = json.loads(answer.out)
        assert answer.code == (8 if found["verdict"] == "stuck" else 0)
        listed = {each["turn"] for each in json.loads(cbx("why", "--all", "-o", "json").out)}
        assert (turn.agent_turn_id in listed) == (answer.code == 8 and scene != scenes.queued_behind_another)
        said.append(found["rule"])
    assert tuple(said) == SAID[scene]
    assert rows(deployment.connection) == before


def test_nobody_is_called_dead(deployment: Deployment, cbx: Cbx) -> None:
    turn = scenes.running(deployment)
    name = deployment.connection.info.dbname
    deployment.connection.execute(f"ALTER DATABASE {name} SET cbx.clock_offset = '1 hour'")
    answer = cbx("why", turn.agent_turn_id)
    assert "suspect" in answer.out
    assert "this database keeps no leases" in answer.out
    fix = next(line for line in answer.out.splitlines() if line.startswith("fix"))
    refused = cbx(*fix.split("cbx ", 1)[1].replace("'", "").split(" --reason")[0].split(), "--reason", "r")
    assert refused.code == 7
    assert "cbx db init" in refused.err
