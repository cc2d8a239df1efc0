"""After `cbx db init` turns run there: cbx's tables stand beside the others, which stay as they are."""

import shlex
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.commands.test_worker import CLIENT
from tests.cli.conftest import succeed
from tests.conftest import Cbx
from tests.foreign.checking import assert_valid_dispatch, assert_valid_end, assert_valid_report
from tests.foreign.scenes import (
    AGENT,
    SCENES,
    Scene,
    dispatched,
    failed,
    failed_by_its_model,
    finished,
    given_up_by_the_guard,
    queued_on_an_idle_agent,
    ran_three_times,
    reaped,
    refused,
    reported,
    retransmitted,
    running,
    suspended,
    suspended_without_deadline,
)
from tests.foreign.tables import definitions, rows
from tests.foreign.writer import Call, Deployment
from tests.next_release import AFTER, BEFORE, NextRelease


@pytest.fixture
def initialized(cbx: Cbx) -> Cbx:
    """`cbx` on a deployment that has got cbx's tables."""
    succeed(cbx("db", "init", "--yes"))
    return cbx


def test_init_adds_cbx_tables_and_changes_no_others(deployment: Deployment, cbx: Cbx) -> None:
    suspended(deployment)
    defined, filled = definitions(deployment.connection), rows(deployment.connection)
    added = cbx("db", "init", "--yes", "-o", "json").json()["added"]
    assert [name for name in added if not name.startswith("cbx.")] == []
    after = definitions(deployment.connection)
    theirs = {kind: [row for row in found if not row[0].startswith("cbx.")] for kind, found in after.items()}
    assert theirs == defined
    assert {name: found for name, found in rows(deployment.connection).items() if name in filled} == filled


def test_upgrade_changes_only_cbx_tables(
    deployment: Deployment, initialized: Cbx, next_release: NextRelease
) -> None:
    defined = definitions(deployment.connection)
    assert succeed(initialized("db", "upgrade")) == f"schema version {AFTER}, was {BEFORE}\n"
    after = definitions(deployment.connection)
    assert "cbx.parcels" in {row[0] for row in after["tables"]}
    theirs = {kind: [row for row in found if not row[0].startswith("cbx.")] for kind, found in after.items()}
    assert theirs == {
        kind: [row for row in found if not row[0].startswith("cbx.")] for kind, found in defined.items()
    }


def test_upgrade_without_init_adds_only_cbx_tables(deployment: Deployment, cbx: Cbx) -> None:
    suspended(deployment)
    defined, filled = definitions(deployment.connection), rows(deployment.connection)
    succeed(cbx("db", "upgrade"))
    after = definitions(deployment.connection)
    theirs = {kind: [row for row in found if not row[0].startswith("cbx.")] for kind, found in after.items()}
    assert theirs == defined
    assert {name: found for name, found in rows(deployment.connection).items() if name in filled} == filled
    assert succeed(cbx("db", "init")) == "nothing is missing\n"


@pytest.fixture
def run(initialized: Cbx) -> Callable[[], Any]:
    """Claim what is due and end its turn as a shell script would; the row."""

    def run() -> Any:
        [row] = initialized("inbox", "claim", "--owner", "script", "-o", "json").json()
        succeed(initialized("inbox", "ack", row["inbox_id"], "--owner", "script"))
        return row

    return run


class TestDeploymentTurns:
    def test_a_turn_of_the_deployment_is_claimed_and_ended(
        self, deployment: Deployment, run: Callable[[], Any]
    ) -> None:
        turn = dispatched(deployment)
        assert run()["inbox_id"] == turn.inbox_id
        assert_valid_end(deployment.connection, "p", turn.agent_turn_id, steps=False)

    def test_the_next_queued_turn_is_promoted(self, deployment: Deployment, run: Callable[[], Any]) -> None:
        dispatched(deployment)
        second = deployment.dispatch(AGENT, deployment.context("Refund order 119"))
        run()
        promoted = assert_valid_dispatch(deployment.connection, "p", second.agent_turn_id)
        assert (promoted["status"], promoted["turn_epoch"]) == ("pending", 2)

    def test_a_turn_that_the_watchdog_queued_again_runs_once(
        self, deployment: Deployment, run: Callable[[], Any], initialized: Cbx
    ) -> None:
        turn = retransmitted(deployment)
        run()
        assert initialized("inbox", "claim").code == 3
        shown = initialized("turn", "show", turn.agent_turn_id, "-o", "json").json()
        assert (shown["status"], shown["end_status"]) == ("ended", "success")
        assert [row["status"] for row in shown["inbox"]] == ["consumed", "skipped"]

    def test_a_row_without_headers_is_refused_and_the_next_is_promoted(
        self, deployment: Deployment, initialized: Cbx
    ) -> None:
        refused = queued_on_an_idle_agent(deployment)
        deployment.connection.execute(
            "UPDATE state.agent_inbox SET context_headers = context_headers - 'CG-Recursion-Depth'"
        )
        sound = deployment.enqueue(AGENT, deployment.context("Refund order 119"))
        assert initialized("reap", "-o", "json").json()["promoted"] == [sound.agent_turn_id]
        shown = initialized("turn", "show", refused.agent_turn_id, "-o", "json").json()
        assert (shown["status"], shown["end_status"]) == ("ended", "failed")
        assert shown["inbox"][0]["last_error"] == "invalid_context: its headers have no recursion depth"

    def test_a_turn_of_a_dead_worker_is_reclaimed_and_ended(
        self, deployment: Deployment, run: Callable[[], Any], initialized: Cbx
    ) -> None:
        turn = running(deployment)
        told = ("--expect-epoch", "1", "--reason", "its worker died")
        succeed(initialized("turn", "reclaim", turn.agent_turn_id, *told))
        assert run()["turn_epoch"] == 2
        assert_valid_end(deployment.connection, "p", turn.agent_turn_id)

    @pytest.mark.parametrize("scene", [queued_on_an_idle_agent, dispatched, running, suspended])
    def test_a_stopped_turn_leaves_valid_rows(
        self, scene: Scene, deployment: Deployment, initialized: Cbx
    ) -> None:
        turn = scene(deployment)
        succeed(initialized("turn", "stop", turn.agent_turn_id))
        shown = initialized("turn", "show", turn.agent_turn_id, "-o", "json").json()
        assert (shown["status"], shown["end_status"]) == ("ended", "canceled")
        if scene is not queued_on_an_idle_agent:
            assert_valid_end(deployment.connection, "p", turn.agent_turn_id, steps=False)


def pass_deadlines(deployment: Deployment) -> None:
    """Whatever waits there has waited too long."""
    deployment.connection.execute(
        "UPDATE state.agent_state_head SET resume_deadline = now() - interval '1 second'"
        " WHERE resume_deadline IS NOT NULL"
    )


class TestWaitingDeploymentTurns:
    def test_a_report_matches_those_of_the_deployment(self, deployment: Deployment, initialized: Cbx) -> None:
        turn = suspended(deployment)
        call_id = deployment.waiting_call(turn)
        asked = ("--tool-call-id", call_id, "--result", '{"refunded": true}')
        succeed(initialized("turn", "report", turn.agent_turn_id, *asked))
        assert_valid_report(deployment.connection, "p", turn.agent_turn_id, call_id)

    def test_a_deployment_worker_resumes_with_the_report(
        self, deployment: Deployment, initialized: Cbx
    ) -> None:
        turn = suspended(deployment)
        call_id = deployment.waiting_call(turn)
        asked = ("--tool-call-id", call_id, "--result", "done")
        succeed(initialized("turn", "report", turn.agent_turn_id, *asked))
        [report] = deployment.claim(AGENT)
        deployment.finish(deployment.resume(turn, report))
        assert_valid_end(deployment.connection, "p", turn.agent_turn_id)

    def test_a_passed_deadline_becomes_a_timeout(self, deployment: Deployment, initialized: Cbx) -> None:
        turn = suspended(deployment)
        call_id = deployment.waiting_call(turn)
        pass_deadlines(deployment)
        assert initialized("reap", "-o", "json").json()["timed_out"] == [call_id]
        assert_valid_report(deployment.connection, "p", turn.agent_turn_id, call_id)

    def test_a_turn_whose_call_id_is_already_used_ends_with_a_timeout(
        self, deployment: Deployment, initialized: Cbx
    ) -> None:
        """Their database allows one result per call id, and models repeat ids."""
        first = finished(deployment)
        second = deployment.begin(deployment.dispatch(AGENT, deployment.context("Refund order 119")))
        [repeated] = deployment.connection.execute(
            "SELECT tool_call_id FROM cards WHERE metadata ->> 'type' = 'tool.result'"
        ).fetchone() or [None]
        deployment.suspend(second, deployment.new_call(second, "help", repeated))
        third = deployment.begin(
            deployment.dispatch(deployment.agent("clerk-2", first.profile_box_id), first.context_box_id)
        )
        [call] = deployment.wait_for(third, "help")
        pass_deadlines(deployment)
        assert initialized("reap", "-o", "json").json()["timed_out"] == [call.tool_call_id]
        shown = initialized("turn", "show", second.agent_turn_id, "-o", "json").json()
        assert (shown["status"], shown["end_status"]) == ("ended", "timeout")
        assert_valid_end(deployment.connection, "p", second.agent_turn_id)


class TestCbxWorker:
    """`cbx worker run` on turns of theirs: the rows that it leaves are such as theirs leaves."""

    def test_a_cbx_worker_finishes_a_turn_of_the_deployment(
        self, deployment: Deployment, initialized: Cbx
    ) -> None:
        turn = dispatched(deployment)
        succeed(initialized("worker", "run", "--exec", CLIENT, "--drain"))
        row = assert_valid_end(deployment.connection, "p", turn.agent_turn_id)
        assert row["turn_epoch"] == 1
        shown = initialized("turn", "show", turn.agent_turn_id, "-o", "json").json()
        assert (shown["end_status"], len(shown["steps"])) == ("success", 1)
        assert shown["steps"][0]["request_box_id"] is not None
        deliverable = initialized("card", "show", shown["deliverable_card_id"], "-o", "json").json()
        assert deliverable["content"]["text"] == "I read 2 messages. The last request was: Refund order 118"

    def test_a_cbx_worker_resumes_with_the_report_of_a_deployment_tool(
        self, deployment: Deployment, initialized: Cbx
    ) -> None:
        turn = dispatched(deployment)
        succeed(initialized("worker", "run", "--exec", f"{CLIENT} --call help '{{}}'", "--drain"))
        call_id = deployment.waiting_call(turn)
        shown = initialized("turn", "show", turn.agent_turn_id, "-o", "json").json()
        assert (shown["status"], shown["steps"][0]["status"]) == ("suspended", "suspended")
        call = Call(call_id, "help", shown["steps"][0]["step_id"])
        deployment.report(deployment.now(turn), call, result="It is order 118.")
        succeed(initialized("worker", "run", "--exec", f"{CLIENT} --call help '{{}}'", "--drain"))
        assert_valid_end(deployment.connection, "p", turn.agent_turn_id)
        shown = initialized("turn", "show", turn.agent_turn_id, "-o", "json").json()
        assert (shown["end_status"], shown["turn_epoch"]) == ("success", 2)

    def test_a_cbx_worker_resumes_a_turn_that_the_deployment_suspended(
        self, deployment: Deployment, initialized: Cbx
    ) -> None:
        turn = reported(deployment)
        succeed(initialized("worker", "run", "--exec", CLIENT, "--drain"))
        assert_valid_end(deployment.connection, "p", turn.agent_turn_id)
        types = [
            card["type"]
            for card in initialized("box", "show", turn.output_box_id, "-o", "json").json()["cards"]
        ]
        assert types == ["agent.thought", "tool.call", "tool.result", "agent.thought", "task.deliverable"]

    def test_a_cbx_worker_runs_a_turn_once_if_the_watchdog_queued_it_again(
        self, deployment: Deployment, initialized: Cbx
    ) -> None:
        turn = retransmitted(deployment)
        succeed(initialized("worker", "run", "--exec", CLIENT, "--drain"))
        shown = initialized("turn", "show", turn.agent_turn_id, "-o", "json").json()
        assert (shown["status"], len(shown["steps"])) == ("ended", 1)
        assert sorted(row["status"] for row in shown["inbox"]) == ["consumed", "skipped"]


_OVER = (finished, failed, reaped, refused, failed_by_its_model, given_up_by_the_guard, ran_three_times)
STUCK_LATER = [scene for scene in SCENES if scene not in _OVER]


@pytest.mark.parametrize("scene", STUCK_LATER, ids=lambda scene: scene.__name__)
def test_a_stuck_turn_is_explained_and_the_printed_fix_frees_it(
    scene: Scene, deployment: Deployment, initialized: Cbx
) -> None:
    turn = scene(deployment)
    name = deployment.connection.info.dbname
    deployment.connection.execute(f"ALTER DATABASE {name} SET cbx.clock_offset = '700 seconds'")
    found = initialized("why", turn.agent_turn_id, "-o", "json").json()
    assert found["verdict"] == "stuck"
    if found["fix"] is None:
        assert found["rule"] == "no-live-worker"
    else:
        program, *words = shlex.split(found["fix"], comments=True)
        assert program == "cbx"
        succeed(initialized(*words))
    succeed(initialized("worker", "run", "--exec", CLIENT, "--drain"))
    shown = initialized("turn", "show", turn.agent_turn_id, "-o", "json").json()
    if shown["status"] == "suspended":
        [call] = [tool for tool in shown["waiting_tools"] if tool["wait_status"] == "waiting"]
        answer = ("--tool-call-id", call["tool_call_id"], "--result", "refunded")
        succeed(initialized("turn", "report", turn.agent_turn_id, *answer))
        succeed(initialized("worker", "run", "--exec", CLIENT, "--drain"))
        shown = initialized("turn", "show", turn.agent_turn_id, "-o", "json").json()
    assert shown["status"] == "ended", found
    assert initialized("why", turn.agent_turn_id).code == 0


def test_a_requeued_turn_keeps_the_output_of_its_earlier_run(
    deployment: Deployment, initialized: Cbx
) -> None:
    """Its open call is among its own cards, where a worker waits for it, and no earlier history."""
    turn = suspended_without_deadline(deployment)
    fix = initialized("why", turn.agent_turn_id, "-o", "json").json()["fix"]
    assert fix.startswith("cbx turn requeue")
    succeed(initialized(*shlex.split(fix, comments=True)[1:]))
    [(start,)] = deployment.connection.execute(
        "SELECT output_start FROM cbx.turns WHERE agent_turn_id = %s", [turn.agent_turn_id]
    ).fetchall()
    assert start == 0
    assert initialized("why", turn.agent_turn_id, "-o", "json").json()["rule"] == "dispatched"
