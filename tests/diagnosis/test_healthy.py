"""Turns that are well are never called stuck, in whatever state they are."""

import shlex
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from cardbox_cli.execution.queue import claims
from cardbox_cli.execution.recovery import fixes
from cardbox_cli.execution.recovery.reaping import reap
from cardbox_cli.model.cards import draft_card
from cardbox_cli.store.projects import ProjectsStore
from tests.diagnosis.conftest import ANSWERED, ASKED, CALL, CALLED, GOOD, OWNER, World
from tests.diagnosis.test_rules import Case, a_card, begin_elsewhere, enter_elsewhere, finish_elsewhere

HEALTHY: dict[str, tuple[str, str, Case]] = {}


def healthy(rule: str, verdict: str) -> Callable[[Case], Case]:
    def register(bring: Case) -> Case:
        HEALTHY[bring.__name__] = (rule, verdict, bring)
        return bring

    return register


@healthy("dispatched", "healthy")
def just_dispatched(world: World) -> str:
    return world.ask()


@healthy("dispatched", "healthy")
def unclaimed_for_half_a_minute(world: World) -> str:
    turn = world.ask()
    world.later(29)
    return turn


@healthy("dispatched", "healthy")
def queued_for_an_hour_and_promoted_now(world: World) -> str:
    first = world.ask()
    turn = world.ask()
    world.later(3600)
    fixes.stop(world.runtime, first, actor="t", reason=None)
    return turn


@healthy("dispatched", "healthy")
def under_a_ban_on_writing_that_came_after_its_worker(world: World) -> str:
    world.worker()
    turn = world.ask()
    name = world.runtime.database.connection.info.dbname
    world.sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    return turn


@healthy("dispatched", "healthy")
def just_claimed(world: World) -> str:
    turn = world.ask()
    world.claim()
    world.later(50)
    return turn


@healthy("dispatched", "healthy")
def reclaimed(world: World) -> str:
    turn = world.ask()
    world.enter()
    fixes.reclaim(world.runtime, turn, expect_epoch=1, actor="t", reason="r")
    return turn


@healthy("dispatched", "healthy")
def released_after_a_lost_lease(world: World) -> str:
    turn = world.ask()
    world.enter()
    world.later(66)
    reap(world.runtime)
    return turn


@healthy("dispatched", "healthy")
def requeued(world: World) -> str:
    turn = world.ask()
    world.enter()
    fixes.requeue(world.runtime, turn, expect_epoch=1, actor="t", reason="r")
    return turn


@healthy("workers-busy", "waiting")
def behind_a_long_step_of_the_only_worker(world: World) -> str:
    world.ask("scribe")
    row = world.enter()
    turn = world.ask()
    world.later(50)
    world.beat(row)
    world.worker(concurrency=1)
    return turn


@healthy("dispatched", "healthy")
def with_a_call_that_its_worker_has_to_answer_still(world: World) -> str:
    turn = world.ask()
    row = world.enter()
    fence = row.fence
    world.runtime.cards.add(CALLED)
    world.runtime.boxes.append(row.pointer("output_box_id") or "", [CALLED.card_id], fence=fence)
    fixes.reclaim(world.runtime, turn, expect_epoch=fence.turn_epoch, actor="t", reason="r")
    return turn


@healthy("dispatched", "healthy")
def with_a_context_of_which_the_lint_warns(world: World) -> str:
    return world.ask(context_box_id=world.box(ASKED, draft_card("task.instruction", "How late is it?")))


@healthy("dispatched", "healthy")
def with_a_history_that_the_provider_of_its_model_takes(world: World) -> str:
    """OpenAI wants results right after their call; for Anthropic they are put there."""
    box = world.box(ASKED, CALLED, draft_card("task.instruction", "Hello?"), ANSWERED)
    return world.ask(context_box_id=box, runtime_config={"model": "claude-opus-4-6"})


@healthy("running", "healthy")
def just_entered(world: World) -> str:
    turn = world.ask()
    world.enter()
    return turn


@healthy("running", "healthy")
def a_step_of_ten_minutes_with_heartbeats(world: World) -> str:
    turn = world.ask()
    row = world.enter()
    for _ in range(12):
        world.later(50)
        world.beat(row)
    return turn


@healthy("running", "healthy")
def resumed_by_a_result(world: World) -> str:
    world.ask()
    turn = world.suspend()
    world.report(turn)
    world.enter()
    world.later(50)
    return turn


@healthy("running", "healthy")
def run_by_another_system(world: World) -> str:
    turn = begin_elsewhere(world)
    world.later(290)
    return turn


@healthy("running", "healthy")
def a_card_expires_while_it_runs(world: World) -> str:
    turn = world.ask()
    world.enter()
    world.sql("UPDATE cards SET expires_at = now() WHERE metadata ->> 'type' = 'task.instruction'")
    world.later(1)
    return turn


@healthy("queued-behind", "waiting")
def behind_a_turn_that_runs(world: World) -> str:
    world.ask()
    turn = world.ask()
    world.enter()
    return turn


@healthy("queued-behind", "waiting")
def behind_a_turn_that_waits_for_a_tool(world: World) -> str:
    world.ask()
    turn = world.ask()
    world.suspend()
    world.later(200)
    return turn


@healthy("waiting-for-tool", "waiting")
def suspended_in_time(world: World) -> str:
    world.ask()
    turn = world.suspend()
    world.later(299)
    return turn


@healthy("waiting-for-tool", "waiting")
def the_deadline_was_a_moment_ago(world: World) -> str:
    world.ask()
    turn = world.suspend()
    world.later(303)
    return turn


@healthy("waiting-for-tool", "waiting")
def reboxed_while_suspended(world: World) -> str:
    asked = world.asked()
    turn = world.suspend()
    fixes.rebox(
        world.runtime, turn, expect_epoch=1, actor="t", reason="r", context_box_id=asked.context_box_id
    )
    return turn


@healthy("waiting-for-tool", "waiting")
def a_tool_of_another_system_has_just_stored_its_result(world: World) -> str:
    world.ask()
    turn = world.suspend()
    world.runtime.cards.add(draft_card("tool.result", GOOD, author_id="tool.search", tool_call_id=CALL))
    return turn


@healthy("result-arriving", "waiting")
def a_report_has_arrived(world: World) -> str:
    world.ask()
    turn = world.suspend()
    world.report(turn)
    world.later(29)
    return turn


@healthy("result-arriving", "waiting")
def a_report_is_claimed(world: World) -> str:
    turn = a_report_has_arrived(world)
    world.claim()
    return turn


@healthy("result-arriving", "waiting")
def a_timeout_is_reported(world: World) -> str:
    world.ask()
    turn = world.suspend()
    world.later(306)
    reap(world.runtime)
    return turn


# --- it waits for other turns


@healthy("waiting-for-tool", "waiting")
def its_child_runs(world: World) -> str:
    world.ask()
    parent = world.suspend()
    world.delegate(parent)
    row = world.enter()
    for _ in range(5):
        world.later(50)
        world.beat(row)
    return parent


@healthy("waiting-for-tool", "waiting")
def its_child_waits_for_a_tool(world: World) -> str:
    return world.chain()[0]


@healthy("waiting-for-tool", "waiting")
def its_child_runs_again(world: World) -> str:
    world.ask()
    parent = world.suspend()
    world.delegate(parent)
    world.report(*world.wait_for_call())
    world.enter()
    return parent


@healthy("waiting-for-tool", "waiting")
def its_child_is_run_by_another_system(world: World) -> str:
    world.ask()
    parent = world.suspend()
    child = world.delegate(parent)
    enter_elsewhere(world, child)
    world.later(290)
    return parent


@healthy("waiting-for-tool", "waiting")
def its_child_is_queued_behind_a_turn_that_runs(world: World) -> str:
    world.ask("scribe")
    row = world.enter()
    world.ask()
    parent = world.suspend()
    world.delegate(parent)
    world.later(50)
    world.beat(row)
    return parent


@healthy("queued-behind", "waiting")
def behind_a_turn_whose_child_waits_for_a_tool(world: World) -> str:
    world.chain()
    return world.ask()


@healthy("waiting-for-tool", "waiting")
def another_turn_answers_in_place_of_one_that_was_stopped(world: World) -> str:
    world.ask()
    parent = world.suspend()
    first = world.delegate(parent)
    world.sql(
        "UPDATE state.execution_edges SET metadata = metadata - 'report_to' WHERE target_agent_turn_id = %(turn)s",
        turn=first,
    )
    world.sql("UPDATE cbx.turns SET report_to = NULL WHERE agent_turn_id = %(turn)s", turn=first)
    fixes.stop(world.runtime, first, actor="t", reason=None)
    world.delegate(parent)
    return parent


# --- another system's guard, and leases that end just now


@healthy("dispatched", "healthy")
def a_guard_has_touched_its_head(world: World) -> str:
    turn = world.ask()
    world.later(29)
    world.sql("UPDATE state.agent_state_head SET updated_at = now() + interval '29 seconds'")
    return turn


@healthy("running", "healthy")
def its_lease_ended_a_moment_ago(world: World) -> str:
    turn = world.ask()
    world.enter()
    world.later(64)
    return turn


@healthy("dispatched", "healthy")
def its_claim_ended_a_moment_ago(world: World) -> str:
    turn = world.ask()
    world.claim()
    world.later(64)
    return turn


@healthy("result-arriving", "waiting")
def the_claim_of_a_report_ended_a_moment_ago(world: World) -> str:
    turn = a_report_has_arrived(world)
    world.claim()
    world.later(64)
    return turn


@healthy("retrying", "waiting")
def deferred_for_a_moment(world: World) -> str:
    turn = world.ask()
    row = world.enter()
    claims.defer(world.runtime, row, owner=OWNER, reason="the model is busy")
    return turn


@healthy("retrying", "waiting")
def deferred_for_the_longest_backoff(world: World) -> str:
    turn = world.ask()
    row = world.enter()
    claims.defer(world.runtime, row, owner=OWNER, reason="the model is down", delay=timedelta(seconds=60))
    return turn


@healthy("ended", "ended")
def ended_well(world: World) -> str:
    turn = world.ask()
    world.drain()
    return turn


@healthy("ended", "ended")
def failed(world: World) -> str:
    turn = world.ask()
    row = world.enter()
    claims.fail(world.runtime, row.inbox_id, owner=OWNER, error="no answer")
    return turn


@healthy("ended", "ended")
def stopped_while_queued(world: World) -> str:
    world.ask()
    turn = world.ask()
    fixes.stop(world.runtime, turn, actor="t", reason=None)
    return turn


@healthy("ended", "ended")
def given_up_after_too_many_tries(world: World) -> str:
    turn = world.ask()
    for number in range(5):
        world.enter(f"worker_{number}")
        world.later(66)
        reap(world.runtime)
    return turn


@healthy("ended", "ended")
def ended_by_another_system(world: World) -> str:
    turn = world.ask()
    finish_elsewhere(world, turn)
    return turn


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_turn_is_not_called_stuck(world: World, name: str) -> None:
    rule, verdict, bring = HEALTHY[name]
    turn = bring(world)
    found = world.why(turn)
    assert (found["rule"], found["verdict"], found["severity"]) == (rule, verdict, "ok"), found
    assert found["fix"] is None or (rule, found["fix"].split()[1:3]) == (
        "waiting-for-tool",
        ["turn", "report"],
    )
    assert "history-refused" not in [seen["rule"] for seen in found["also"]]
    assert world.problems() == {}


def test_a_card_that_expires_during_a_run_is_an_additional_finding(world: World) -> None:
    turn = a_card_expires_while_it_runs(world)
    assert [seen["rule"] for seen in world.why(turn)["also"]] == ["expired-card"]


def test_a_turn_runs_without_a_card_if_the_project_allows_it(world: World) -> None:
    """What `why` calls stuck is what a worker would not run."""
    card = draft_card("task.instruction", "Soon gone.")
    turn = world.ask(context_box_id=world.box(ASKED, card))
    world.sql("DELETE FROM cards WHERE card_id = %(card)s", card=card.card_id)
    assert world.why(turn)["rule"] == "dangling-card"
    ProjectsStore(world.runtime.database).configure("p", allow_incomplete_context=True)
    found = world.why(turn)
    assert (found["rule"], [seen["rule"] for seen in found["also"]]) == ("dispatched", ["dangling-card"])
    assert world.problems() == {}
    world.drain()
    assert "success" in world.why(turn)["evidence"][0]["shows"]


def test_an_archived_project_and_a_long_step_are_additional_findings(world: World) -> None:
    world.sql("UPDATE projects SET status = 'archived'")
    refused = world.ask_("clerk")
    assert (refused.status, refused.error_code) == ("rejected", "project_archived")
    world.sql("UPDATE projects SET status = 'active'")
    turn = world.ask()
    row = world.enter()
    world.sql("UPDATE projects SET status = 'archived'")

    def a_step(status: str, number: int, seconds: int) -> None:
        world.sql(
            "INSERT INTO state.agent_steps (project_id, agent_id, step_id, agent_turn_id, status, profile_box_id,"
            " request_box_id, started_at, ended_at)"
            " SELECT 'p', 'clerk', 'step_' || %(number)s, %(turn)s, %(status)s, h.profile_box_id, gen_random_uuid(),"
            " now(), CASE WHEN %(status)s = 'completed' THEN now() + make_interval(secs => %(seconds)s) END"
            " FROM state.agent_state_head AS h WHERE h.agent_id = 'clerk'",
            number=number,
            turn=f"turn_{number}" if status == "completed" else turn,
            status=status,
            seconds=seconds,
        )

    for number in range(100, 119):
        a_step("completed", number, 3)
    a_step("llm_ready", 200, 0)

    def also(seconds: int) -> list[str]:
        world.later(seconds)
        world.beat(row)
        found = world.why(turn)
        assert (found["rule"], found["verdict"]) == ("running", "healthy")
        return [seen["rule"] for seen in found["also"]]

    assert also(45) == ["project-archived"]
    # Nineteen tell nothing, twenty do: one of them was slow, as one in twenty may be.
    a_step("completed", 119, 3)
    assert also(1) == ["long-step", "project-archived"]
    assert world.problems() == {}


def test_a_long_waiting_call_is_an_additional_finding(world: World) -> None:
    world.ask()
    turn = world.suspend()
    world.sql(
        "INSERT INTO state.turn_waiting_tools (project_id, agent_id, agent_turn_id, turn_epoch, tool_call_id, step_id,"
        " tool_name, wait_status, created_at, received_at, updated_at)"
        " SELECT 'p', 'clerk', 'turn_' || n, 1, 'call_' || n, 'step_' || n, 'search', 'applied', now(),"
        " now() + interval '2 seconds', now() FROM generate_series(100, 119) AS n"
    )
    assert world.why(turn)["also"] == []
    world.later(21)
    found = world.why(turn)
    assert (found["verdict"], [seen["rule"] for seen in found["also"]]) == ("waiting", ["long-call"])


def refused_beside(found: dict[str, Any]) -> dict[str, Any]:
    """What is said of the history beside the verdict."""
    [seen] = found["also"]
    assert seen["rule"] == "history-refused"
    answer: dict[str, Any] = seen
    return answer


def test_an_invalid_history_of_a_running_turn_is_an_additional_finding(world: World) -> None:
    turn = world.ask(context_box_id=world.box(ASKED, CALLED))
    world.enter()
    found = world.why(turn)
    assert (found["verdict"], found["rule"]) == ("healthy", "running")
    refused_beside(found)


def test_a_failed_turn_shows_its_possible_cause_for_one_day(world: World) -> None:
    turn = world.ask(context_box_id=world.box(ASKED, CALLED))
    world.drain("cat >/dev/null; exit 1")
    found = world.why(turn)
    assert (found["verdict"], found["rule"]) == ("ended", "ended")
    assert refused_beside(found)["fix"] is None
    world.later(86_400)
    assert world.why(turn)["also"] == []


def test_a_repaired_context_frees_a_turn_whose_history_would_be_rejected(world: World) -> None:
    box = world.box(ASKED, CALLED)
    turn = world.ask(context_box_id=box)
    behind = world.ask()
    found = world.why(turn)
    assert found["next_actor"] == (
        f"the operator: `cbx render --turn {turn} --format openai --check` shows why;"
        f" `cbx box repair {box} --for openai --synthesize` makes a repaired copy for `cbx turn rebox`;"
        " or end the turn"
    )
    [evidence] = found["evidence"]
    assert (evidence["table"], evidence["row"]) == ("public.cards", CALLED.card_id)
    assert evidence["shows"].startswith(
        "call-without-result: the tool call 'c1' has no result; at position 1 of"
    )
    assert world.why(behind)["rule"] == "queued-behind-stuck"

    mended = world.box(ASKED, CALLED, ANSWERED)
    words = ("--context-box", mended, "--expect-epoch", "1", "--reason", "r")
    assert world.cbx("turn", "rebox", turn, *words).code == 0
    assert world.why(turn)["rule"] == "dispatched"
    assert world.why(behind)["rule"] == "queued-behind"
    world.drain()
    assert (world.why(turn)["verdict"], world.why(behind)["verdict"]) == ("ended", "ended")


def test_a_turn_that_lost_a_card_cannot_be_retried(world: World) -> None:
    card_id, turn = a_card(world)
    assert world.cbx("card", "delete", card_id, "--yes", "--force").code == 0
    found = world.cbx("why", turn, "-o", "json").json()
    assert (found["rule"], found["severity"]) == ("deleted-card", "error")
    box = world.cbx("turn", "show", turn, "-o", "json").json()["context_box_id"]
    assert f"`cbx turn rebox {turn} --expect-epoch 1 --context-box BOX --reason TEXT`" in found["next_actor"]
    assert world.cbx(*shlex.split(found["fix"], comments=True)[1:]).code == 0
    lost = f"card {card_id} of the context box {box} was deleted"
    over = world.cbx("why", turn, "-o", "json").json()
    assert over["verdict"] == "ended"
    assert f"{lost}: `cbx pack` makes a new context" in over["next_actor"]
    again = world.cbx("turn", "retry", turn)
    assert (again.code, again.err.splitlines()[0]) == (
        5,
        f"error: cannot retry turn {turn}: its context is incomplete ({lost})",
    )
    ProjectsStore(world.runtime.database).configure("p", allow_incomplete_context=True)
    assert world.cbx("turn", "retry", turn).code == 0
