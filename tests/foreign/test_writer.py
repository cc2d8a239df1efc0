"""The writer against the checks: what stands for an existing deployment writes what the facts say, and no check is blind."""

import pytest

from tests.foreign.checking import assert_valid_dispatch, assert_valid_end
from tests.foreign.scenes import (
    Scene,
    child_of_a_waiting_parent,
    dispatched,
    failed,
    finished,
    queued_behind_another,
    queued_on_an_idle_agent,
    running,
    suspended,
)
from tests.foreign.writer import Deployment


@pytest.mark.parametrize("scene", [dispatched, queued_behind_another, child_of_a_waiting_parent])
def test_dispatches_of_the_writer_are_valid(scene: Scene, deployment: Deployment) -> None:
    turn = scene(deployment)
    row = assert_valid_dispatch(deployment.connection, "p", turn.agent_turn_id)
    assert row["inbox_id"] == turn.inbox_id


@pytest.mark.parametrize("scene", [finished, failed])
def test_ends_of_the_writer_are_valid(scene: Scene, deployment: Deployment) -> None:
    turn = scene(deployment)
    assert_valid_end(deployment.connection, "p", turn.agent_turn_id)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE state.agent_inbox SET context_headers = context_headers - 'traceparent'",
        'UPDATE state.agent_inbox SET context_headers = context_headers || \'{"CG-Recursion-Depth": "2"}\'',
        "UPDATE state.agent_inbox SET context_headers = context_headers || '{\"CG-Recursion-Depth\": 1}'",
        'UPDATE state.agent_inbox SET payload = payload || \'{"trace_id": "x"}\'',
        "UPDATE state.agent_inbox SET next_retry_at = now() + interval '1 hour'",
        "UPDATE state.agent_inbox SET status = 'queued'",
        "UPDATE state.agent_inbox SET turn_epoch = 2",
        "UPDATE state.execution_edges SET correlation_id = 'other'",
        "UPDATE state.execution_edges SET source_agent_id = 'nobody'",
        "UPDATE state.execution_edges SET metadata = metadata #- '{cg_ctx,step_id}'",
        "UPDATE state.agent_state_head SET waiting_tool_count = 1",
        "UPDATE state.agent_state_head SET context_box_id = NULL",
        "UPDATE resource.project_agents SET worker_target = ' '",
        "DELETE FROM card_boxes",
    ],
)
def test_a_damaged_dispatch_is_detected(damage: str, deployment: Deployment) -> None:
    turn = dispatched(deployment)
    deployment.connection.execute(damage.encode())
    with pytest.raises((AssertionError, KeyError, ValueError)):
        assert_valid_dispatch(deployment.connection, "p", turn.agent_turn_id)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE state.agent_inbox SET archived_at = NULL",
        "UPDATE state.agent_inbox SET status = 'processing'",
        "UPDATE state.agent_state_head SET output_box_id = profile_box_id",
        "UPDATE state.agent_state_head SET profile_box_id = NULL",
        "UPDATE state.agent_steps SET status = 'llm_done'",
        "UPDATE state.agent_steps SET ended_at = now()",
        "DELETE FROM state.agent_state_pointers",
        'UPDATE cards SET metadata = metadata || \'{"type": "agent.thought"}\'',
        "UPDATE cards SET metadata = metadata - 'project_id'",
    ],
)
def test_a_damaged_end_is_detected(damage: str, deployment: Deployment) -> None:
    turn = finished(deployment)
    deployment.connection.execute(damage.encode())
    with pytest.raises((AssertionError, KeyError, ValueError)):
        assert_valid_end(deployment.connection, "p", turn.agent_turn_id)


@pytest.mark.parametrize("scene", [queued_on_an_idle_agent, running, suspended])
def test_a_turn_in_another_state_fails_both_checks(scene: Scene, deployment: Deployment) -> None:
    turn = scene(deployment)
    for check in (assert_valid_dispatch, assert_valid_end):
        with pytest.raises(AssertionError):
            check(deployment.connection, "p", turn.agent_turn_id)
