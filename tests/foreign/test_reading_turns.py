"""Turns of an existing deployment, as they are shown on its own tables alone."""

import pytest

from tests.cli.conftest import lines, succeed
from tests.conftest import Cbx
from tests.execution.test_turn_commands import KEYS
from tests.foreign import scenes
from tests.foreign.scenes import SCENES, Scene
from tests.foreign.tables import rows
from tests.foreign.writer import Deployment

# What is shown of the turn of each scene.
SHOWN = {
    scenes.queued_on_an_idle_agent: ("queued", None),
    scenes.dispatched: ("dispatched", None),
    scenes.queued_behind_another: ("queued", None),
    scenes.claimed: ("dispatched", None),
    scenes.running: ("running", None),
    scenes.running_without_its_row: ("running", None),
    scenes.suspended: ("suspended", None),
    scenes.suspended_without_deadline: ("suspended", None),
    scenes.reported: ("suspended", None),
    scenes.result_without_report: ("suspended", None),
    scenes.report_consumed_not_applied: ("suspended", None),
    scenes.resumed: ("running", None),
    scenes.finished: ("ended", "success"),
    scenes.failed: ("ended", "failed"),
    scenes.reaped: ("ended", "failed"),
    scenes.retransmitted: ("dispatched", None),
    scenes.retransmitted_and_finished: ("dispatched", None),
    scenes.asked_to_stop: ("running", None),
    scenes.refused: ("ended", "failed"),
    scenes.child_of_a_waiting_parent: ("dispatched", None),
}


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_what_became_of_them_is_shown_and_nothing_written(
    scene: Scene, deployment: Deployment, cbx: Cbx
) -> None:
    turn = scene(deployment).agent_turn_id
    before = rows(deployment.connection)
    shown = cbx("turn", "show", turn[-8:], "-o", "json").json()
    assert list(shown) == KEYS
    assert (shown["status"], shown["end_status"]) == SHOWN[scene]
    assert (shown["deliverable_card_id"] is not None) == (
        scene in (scenes.finished, scenes.failed, scenes.reaped)
    )
    assert shown["inbox"]
    assert shown["timeline"][0]["event"] == "enqueued"
    listed = [each for each in cbx("turn", "list", "-o", "json").json() if each["agent_turn_id"] == turn]
    assert [(each["status"], each["end_status"]) for each in listed] == [SHOWN[scene]]
    assert turn in lines(cbx("turn", "list", "--status", shown["status"], "-o", "id"))
    assert turn in succeed(cbx("turn", "trace", turn))
    assert succeed(cbx("turn", "show", turn)).startswith("turn ")
    inbox = cbx("inbox", "list", "-o", "json").json()
    assert {row["inbox_id"] for row in shown["inbox"]} <= {row["inbox_id"] for row in inbox}
    succeed(cbx("inbox", "show", shown["inbox"][0]["inbox_id"]))
    waited = cbx("turn", "wait", turn, "--timeout", "0")
    assert waited.code == {None: 124, "success": 0}.get(shown["end_status"], 8)
    assert rows(deployment.connection) == before


def test_the_story_of_a_finished_one(deployment: Deployment, cbx: Cbx) -> None:
    turn = scenes.finished(deployment).agent_turn_id
    timeline = cbx("turn", "show", turn, "-o", "json").json()["timeline"]
    assert [event["event"] for event in timeline] == [
        "enqueued",
        *("step", "card", "called", "row", "waiting"),
        *("answered", "reported", "applied", "step", "step-end"),
        *("step", "card", "deliverable", "step-end"),
        "ended",
    ]
    told = [event["text"] for event in timeline]
    assert told[0] == "given to agent 'clerk-1' by 'sys.pmo'"
    assert told[2] == "said: I need help.; asked for help"
    assert told[4] == "an inbox row of type 'command_anchor' was written"
    assert told[-3:] == [
        "wrote the deliverable: Order 118 is refunded.",
        "step 3 completed",
        "ended: success",
    ]
