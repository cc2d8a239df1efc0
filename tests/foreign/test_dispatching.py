"""Dispatching into an existing deployment on its own tables alone: its workers must take what is left there."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import Cbx
from tests.foreign.checking import assert_valid_dispatch, assert_valid_end
from tests.foreign.scenes import AGENT, running, staffed
from tests.foreign.tables import definitions, rows
from tests.foreign.writer import Deployment, Turn

Dispatch = Callable[..., Any]


@pytest.fixture
def dispatch(deployment: Deployment, cbx: Cbx) -> Dispatch:
    """`cbx dispatch` of an instruction to the agent AGENT; its result."""

    def run(*options: str, agent: str = AGENT) -> Any:
        context = deployment.context("Refund order 118")
        answer = cbx("dispatch", "--agent", agent, "--context-box", context, *options, "-o", "json")
        assert answer.code == 0, answer.err
        return answer.json()

    return run


def as_turn(result: dict[str, Any], profile_box_id: str) -> Turn:
    """What was dispatched, as the deployment's own programs know it."""
    return Turn(
        agent_id=result["agent_id"],
        agent_turn_id=result["agent_turn_id"],
        inbox_id=result["inbox_id"],
        turn_epoch=result["turn_epoch"] or 0,
        profile_box_id=profile_box_id,
        context_box_id=result["context_box_id"],
        output_box_id=result["output_box_id"],
        trace_id=result["trace_id"],
        depth=result["recursion_depth"],
    )


class TestDispatchedRows:
    def test_an_idle_agent_gets_a_valid_turn_at_once(
        self, deployment: Deployment, dispatch: Dispatch
    ) -> None:
        staffed(deployment)
        result = dispatch()
        assert (result["status"], result["turn_epoch"], result["queue_position"]) == ("accepted", 1, None)
        row = assert_valid_dispatch(deployment.connection, "p", result["agent_turn_id"])
        assert (row["status"], row["turn_epoch"]) == ("pending", 1)

    def test_a_second_dispatch_is_queued(self, deployment: Deployment, dispatch: Dispatch) -> None:
        staffed(deployment)
        dispatch()
        results = [dispatch(), dispatch("--display-name", "Night shift", "--channel", " ")]
        assert [(found["turn_epoch"], found["queue_position"]) for found in results] == [(None, 1), (None, 2)]
        found = [
            assert_valid_dispatch(deployment.connection, "p", result["agent_turn_id"]) for result in results
        ]
        assert [row["status"] for row in found] == ["queued", "queued"]
        assert (found[1]["payload"]["display_name"], found[1]["channel_id"]) == ("Night shift", "public")

    def test_a_dispatch_behind_a_turn_of_the_deployment_is_queued(
        self, deployment: Deployment, dispatch: Dispatch
    ) -> None:
        running(deployment)
        result = dispatch()
        assert result["queue_position"] == 1
        assert_valid_dispatch(deployment.connection, "p", result["agent_turn_id"])

    def test_a_child_of_a_turn_of_the_deployment_is_one_level_deeper(
        self, deployment: Deployment, dispatch: Dispatch
    ) -> None:
        parent = running(deployment)
        deployment.wait_for(parent, "delegate_async")
        deployment.agent("helper-1", parent.profile_box_id)
        result = dispatch("--source-agent", AGENT, "--parent-turn", parent.agent_turn_id, agent="helper-1")
        row = assert_valid_dispatch(deployment.connection, "p", result["agent_turn_id"])
        assert (result["recursion_depth"], result["trace_id"]) == (parent.depth + 1, parent.trace_id)
        assert row["context_headers"]["CG-Parent-Turn-Id"] == parent.agent_turn_id

    def test_a_recipe_is_packed_for_the_dispatch(self, deployment: Deployment, cbx: Cbx) -> None:
        staffed(deployment)
        asked = ("-H", "delegate", "-a", "profile_name=clerk", "-a", "instruction=Refund order 118")
        result = cbx("dispatch", "--agent", AGENT, *asked, "-o", "json").json()
        assert_valid_dispatch(deployment.connection, "p", result["agent_turn_id"])
        shown = cbx("box", "show", result["context_box_id"], "-o", "json").json()
        assert shown["cards"][0]["content"]["text"] == "Refund order 118"

    def test_an_older_queued_row_of_the_deployment_is_promoted_first(
        self, deployment: Deployment, dispatch: Dispatch
    ) -> None:
        staffed(deployment)
        older = deployment.enqueue(AGENT, deployment.context("Refund order 117"))
        result = dispatch()
        assert result["turn_epoch"] is None
        for turn_id, status in ((older.agent_turn_id, "pending"), (result["agent_turn_id"], "queued")):
            assert assert_valid_dispatch(deployment.connection, "p", turn_id)["status"] == status


class TestDeploymentWorkers:
    def test_deployment_workers_finish_a_turn_and_promote_the_next(
        self, deployment: Deployment, dispatch: Dispatch, cbx: Cbx
    ) -> None:
        staffed(deployment)
        profile = deployment.profile("clerk")
        first, second = dispatch(), dispatch()
        turn = deployment.begin(as_turn(first, profile))
        deployment.think(turn, "It is refunded.")
        deployment.finish(turn, "Order 118 is refunded.")
        assert_valid_end(deployment.connection, "p", first["agent_turn_id"])
        shown = cbx("turn", "show", first["agent_turn_id"], "-o", "json").json()
        assert (shown["status"], shown["end_status"]) == ("ended", "success")
        promoted = assert_valid_dispatch(deployment.connection, "p", second["agent_turn_id"])
        assert (promoted["status"], promoted["turn_epoch"]) == ("pending", 2)


class TestCorrelationId:
    def test_a_repeated_request_returns_the_same_turn(
        self, deployment: Deployment, dispatch: Dispatch, cbx: Cbx
    ) -> None:
        staffed(deployment)
        first = dispatch("--correlation-id", "ticket-1")
        assert_valid_dispatch(deployment.connection, "p", first["agent_turn_id"])
        before = rows(deployment.connection)
        again = cbx(
            *("dispatch", "--agent", AGENT, "--context-box", first["context_box_id"]),
            *("--correlation-id", "ticket-1", "-o", "json"),
        ).json()
        assert (again["agent_turn_id"], again["created"]) == (first["agent_turn_id"], False)
        assert rows(deployment.connection) == before

    def test_the_correlation_id_of_a_turn_of_the_deployment_is_a_conflict(
        self, deployment: Deployment, cbx: Cbx
    ) -> None:
        staffed(deployment)
        theirs = deployment.dispatch(AGENT, deployment.context("Refund"), correlation_id="ticket-1")
        before = rows(deployment.connection)
        result = cbx(
            *("dispatch", "--agent", AGENT, "--context-box", theirs.context_box_id),
            *("--correlation-id", "ticket-1"),
        )
        assert (result.code, result.out) == (5, "")
        assert rows(deployment.connection) == before


@pytest.mark.parametrize(
    ("options", "exit_code", "code"),
    [
        (["--agent", "nobody"], 3, "agent_not_found"),
        (["--source-agent", "stranger"], 6, "invalid_source_actor"),
        (["--context-box", "018f2b64-0000-7000-8000-00000000dead"], 6, "context_box_not_found"),
    ],
)
def test_a_refused_dispatch_leaves_no_row(
    options: list[str], exit_code: int, code: str, deployment: Deployment, cbx: Cbx
) -> None:
    staffed(deployment)
    context = deployment.context("Refund order 118")
    before = rows(deployment.connection)
    result = cbx("dispatch", "--agent", AGENT, "--context-box", context, *options, "-o", "json")
    assert (result.code, result.json()["error_code"]) == (exit_code, code)
    assert rows(deployment.connection) == before


def test_a_dispatch_alters_no_table(deployment: Deployment, dispatch: Dispatch) -> None:
    staffed(deployment)
    before = definitions(deployment.connection)
    dispatch()
    assert definitions(deployment.connection) == before
    assert not [name for name, *_ in before["tables"] if name.startswith("cbx.")]
