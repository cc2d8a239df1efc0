"""Looking at what an existing deployment wrote, on its own tables alone: no schema cbx, and not a byte changed."""

import re

import pytest

from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.views.turn_contexts import ExperienceStore
from tests.cli.conftest import succeed
from tests.conftest import PROJECT, Cbx
from tests.foreign import scenes
from tests.foreign.scenes import SCENES, Scene
from tests.foreign.tables import rows
from tests.foreign.writer import Deployment

# What `turn show` makes of each. The row of a reaped turn is open, but its last step has failed.
EXPECTED: dict[Scene, tuple[str, str | None]] = {
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
    scenes.failed_by_its_model: ("ended", "failed"),
    scenes.dropped: ("pending", None),
    scenes.given_up_by_the_guard: ("ended", "failed"),
    scenes.ran_three_times: ("ended", "success"),
    scenes.being_reaped: ("pending", None),
    scenes.reaped: ("ended", "failed"),
    scenes.retransmitted: ("dispatched", None),
    scenes.retransmitted_and_finished: ("dispatched", None),
    scenes.asked_to_stop: ("running", None),
    scenes.refused: ("ended", "failed"),
    scenes.child_of_a_waiting_parent: ("dispatched", None),
}

# Those that wait for a call whose result no open report brings.
UNREPORTED = (
    scenes.suspended,
    scenes.suspended_without_deadline,
    scenes.result_without_report,
    scenes.report_consumed_not_applied,
)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_every_state_is_read_correctly_and_left_unchanged(
    scene: Scene, deployment: Deployment, cbx: Cbx
) -> None:
    turn = scene(deployment)
    before = rows(deployment.connection)
    shown = cbx("turn", "show", turn.agent_turn_id, "-o", "json").json()
    assert (shown["status"], shown["end_status"]) == EXPECTED[scene]
    assert (shown["agent_id"], shown["output_box_id"]) == (turn.agent_id, turn.output_box_id)
    assert succeed(cbx("turn", "show", turn.agent_turn_id[-8:])).startswith("turn ")
    listed = cbx("turn", "list", "-o", "json").json()
    [short] = [found for found in listed if found["agent_turn_id"] == turn.agent_turn_id]
    assert (short["status"], short["end_status"]) == EXPECTED[scene]
    if scene is not scenes.dropped:
        # A filter looks among rows that are open, or active: this one is neither, and no end of it is there.
        assert cbx("turn", "list", "--status", shown["status"], "-o", "json").json()[0] in listed
    succeed(cbx("turn", "trace", turn.agent_turn_id))
    inbox = cbx("inbox", "list", "--agent", turn.agent_id, "-o", "json").json()
    assert turn.agent_turn_id in {row["agent_turn_id"] for row in inbox}
    assert cbx("inbox", "show", turn.inbox_id, "-o", "json").json()["inbox_id"] == turn.inbox_id
    pointers = (turn.profile_box_id, turn.context_box_id, turn.output_box_id)
    request = cbx("render", *(word for box_id in pointers for word in ("--box", box_id)))
    assert (request.code, request.err) == (0, "")
    assert request.json()["messages"][0] == {"role": "system", "content": "You are clerk."}
    asked = cbx("render", "--turn", turn.agent_turn_id, "-o", "json")
    sent = any(step["request_box_id"] for step in shown["steps"])
    is_recorded = shown["status"] == "ended" and sent
    composed, *waits = asked.err.splitlines() or [""]
    assert (asked.code, composed) == (0, "" if is_recorded else "note: as cbx would compose it")
    assert len(waits) == (scene in UNREPORTED)
    assert all(re.fullmatch(r"note: waits for \w+: its result is missing", note) for note in waits)
    said = "You are an agent." if is_recorded else "You are clerk."
    assert asked.json()["messages"][0] == {"role": "system", "content": said}
    experience = ExperienceStore(Database.adopt(deployment.connection), PROJECT).experience
    assert bool(experience(turn.profile_box_id, 5)) == (EXPECTED[scene][1] == "success")
    assert rows(deployment.connection) == before


def test_every_scene_has_an_expectation() -> None:
    assert set(EXPECTED) == set(SCENES)


class TestRecordedRequest:
    """What their turns sent, as their request boxes have it: cbx keeps nothing beside them."""

    def test_a_recorded_step_renders_from_its_request_box(self, deployment: Deployment, cbx: Cbx) -> None:
        turn = scenes.finished(deployment)
        before = rows(deployment.connection)
        command = ("render", "--turn", turn.agent_turn_id)
        first, last = (cbx(*command, "--at", at, "-o", "json").json() for at in ("1", "3"))
        assert first["model"] == last["model"] == "m"
        assert [message["role"] for message in first["messages"]] == ["system", "user"]
        assert [message["role"] for message in last["messages"]] == ["system", "assistant", "tool", "user"]
        explained = cbx(*command, "--explain", "-o", "json").json()["explanation"]["messages"]
        assert [line["layer"] for line in explained] == ["system_prompt"] + 3 * ["checkpoint_messages"]
        assert [line["rule"] for line in explained] == [None, "output", "output", None]
        found = cbx(*command, "--at", "1", "--verify", "-o", "json")
        assert found.code == 8
        assert found.json()["compared_by"] == "messages"
        assert found.json()["difference"]["composed"]["text"] == "You are clerk."
        assert cbx(*command, "--diff", "1", "3", "-o", "json").json()["kept"]["messages"] == 1
        assert rows(deployment.connection) == before

    def test_a_step_without_a_recorded_request_cannot_be_rendered(
        self, deployment: Deployment, cbx: Cbx
    ) -> None:
        turn = scenes.running(deployment)
        result = cbx("render", "--turn", turn.agent_turn_id, "--at", "1")
        assert (result.code, result.err.startswith("error: step 'step_")) == (3, True)
        assert "has no snapshot of a request\nhint: compose the next request with --at next\n" in result.err


class TestTurnHistory:
    def test_the_timeline_shows_a_wait_for_a_tool(self, deployment: Deployment, cbx: Cbx) -> None:
        turn = scenes.finished(deployment)
        shown = cbx("turn", "show", turn.agent_turn_id, "-o", "json").json()
        assert [event["event"] for event in shown["timeline"]] == [
            "enqueued",
            "step",
            "card",
            "called",
            "waiting",
            "answered",
            "reported",
            "applied",
            "step",
            "step-end",
            "step",
            "card",
            "deliverable",
            "step-end",
            "ended",
        ]
        said = [event["text"] for event in shown["timeline"] if event["event"] == "card"]
        assert said == ["said: I need help.", "said: It is refunded."]
        assert [row["message_type"] for row in shown["inbox"]] == ["turn", "command_anchor", "tool_result"]
        assert [tool["wait_status"] for tool in shown["waiting_tools"]] == ["applied"]
        assert [edge["primitive"] for edge in shown["edges"]] == ["enqueue", "tool_call", "report"]
        delivered = cbx("card", "show", shown["deliverable_card_id"], "-o", "json").json()
        assert delivered["content"]["text"] == "Order 118 is refunded."

    def test_a_parent_turn_lists_its_child(self, deployment: Deployment, cbx: Cbx) -> None:
        child = scenes.child_of_a_waiting_parent(deployment)
        shown = cbx("turn", "list", "--agent", "helper-1", "-o", "json").json()
        parent_id = shown[0]["parent_agent_turn_id"]
        parent = cbx("turn", "show", parent_id, "-o", "json").json()
        assert [below["agent_turn_id"] for below in parent["children"]] == [child.agent_turn_id]
        assert (shown[0]["recursion_depth"], shown[0]["parent_agent_id"]) == (2, scenes.AGENT)

    def test_a_refused_row_shows_its_error(self, deployment: Deployment, cbx: Cbx) -> None:
        scenes.refused(deployment)
        assert "invalid_context" in succeed(cbx("inbox", "list", "--dead"))

    def test_a_turn_that_was_enqueued_twice_is_listed_once(self, deployment: Deployment, cbx: Cbx) -> None:
        turn = scenes.retransmitted(deployment)
        assert cbx("turn", "list", "-o", "id").out.split() == [turn.agent_turn_id]
        shown = cbx("turn", "show", turn.agent_turn_id, "-o", "json").json()
        assert [row["status"] for row in shown["inbox"]] == ["pending", "queued"]


def test_turn_wait_needs_no_cbx_tables(deployment: Deployment, cbx: Cbx) -> None:
    turn = scenes.finished(deployment)
    assert "Order 118 is refunded." in succeed(cbx("turn", "wait", turn.agent_turn_id, "--timeout", "5"))
