"""Every rule of `why`: the database brought into its state, the verdict, the fix as printed, the turn's end.

The state comes about as it really does, or, where the transactions of cbx exclude it, by the writes of another
system or of an accident.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from cardbox_cli.diagnosis.registry import rules
from cardbox_cli.execution.queue import claims
from cardbox_cli.execution.recovery.reaping import reap
from cardbox_cli.model.cards import draft_card
from cardbox_cli.orchestration.batch_manager import BatchManager
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.execution import worker_store
from cardbox_cli.store.profiles import ProfileStore
from tests.crash.processes import until
from tests.diagnosis.conftest import ASKED, CALL, CALLED, GOOD, OWNER, TARGET, World

Case = Callable[[World], str]
CASES: dict[str, list[Case]] = {}


def case(rule: str) -> Callable[[Case], Case]:
    """Register what brings a turn into the state of a rule; it answers the turn's id."""

    def register(bring: Case) -> Case:
        CASES.setdefault(rule, []).append(bring)
        return bring

    return register


# --- boxes


@case("missing-box")
def context_box_is_dropped(world: World) -> str:
    asked = world.asked()
    world.sql("DELETE FROM card_boxes WHERE box_id = %(box)s::uuid", box=asked.context_box_id)
    return asked.agent_turn_id or ""


@case("missing-box")
def context_box_of_a_queued_turn_is_dropped(world: World) -> str:
    world.ask()
    box = world.runtime.boxes.create([]).box_id
    turn = world.ask(context_box_id=box)
    world.sql("DELETE FROM card_boxes WHERE box_id = %(box)s::uuid", box=box)
    return turn


@case("missing-box")
def output_box_of_a_suspended_turn_is_dropped(world: World) -> str:
    asked = world.asked()
    turn = world.suspend()
    world.sql("DELETE FROM card_boxes WHERE box_id = %(box)s::uuid", box=asked.output_box_id)
    return turn


def a_card(world: World, *, ttl_seconds: int | None = None) -> tuple[str, str]:
    card = draft_card("task.instruction", "Soon gone.", ttl_seconds=ttl_seconds)
    world.runtime.cards.add(card)
    box = world.runtime.boxes.create([card.card_id]).box_id
    return card.card_id, world.ask(context_box_id=box)


@case("dangling-card")
def a_card_is_purged(world: World) -> str:
    card_id, turn = a_card(world)
    world.sql("DELETE FROM cards WHERE card_id = %(id)s", id=card_id)
    return turn


@case("deleted-card")
def a_card_is_deleted(world: World) -> str:
    card_id, turn = a_card(world)
    assert world.cbx("card", "delete", card_id, "--yes", "--force").code == 0
    return turn


@case("expired-card")
def a_card_expires(world: World) -> str:
    _, turn = a_card(world, ttl_seconds=60)
    world.later(66)
    return turn


@case("no-profile")
def the_box_of_its_profile_is_emptied(world: World) -> str:
    turn = world.ask()
    world.sql(
        "UPDATE card_boxes SET card_ids = '[]' WHERE box_id IN"
        " (SELECT profile_box_id FROM state.agent_state_head WHERE agent_id = 'clerk')"
    )
    return turn


@case("history-refused")
def a_call_of_its_context_has_no_result(world: World) -> str:
    return world.ask(context_box_id=world.box(ASKED, CALLED))


@case("history-refused")
def what_it_wrote_before_has_no_result(world: World) -> str:
    return world.ask(output_box_id=world.box(ASKED, CALLED))


@case("shared-output")
def two_turns_write_to_one_box(world: World) -> str:
    asked = world.asked()
    turn = world.ask("scribe")
    world.sql(
        "UPDATE state.agent_state_head SET output_box_id = %(box)s::uuid WHERE agent_id = 'scribe'",
        box=asked.output_box_id,
    )
    return turn


# --- configuration


def profile_now(world: World, target: str) -> None:
    """The profile is imported again with another worker target."""
    said = {"name": "clerk", "worker_target": target, "tags": [], "allowed_tools": None}
    ProfileStore(world.runtime.database, world.runtime.project_id).save(said, author_id="t")


def of_target(world: World, target: str) -> None:
    """The agents have this worker target."""
    world.sql("UPDATE resource.project_agents SET worker_target = %(target)s", target=target)


@case("not-on-roster")
def the_agent_is_taken_off_the_roster(world: World) -> str:
    turn = world.ask()
    world.sql("DELETE FROM resource.project_agents WHERE agent_id = 'clerk'")
    world.later(31)
    return turn


@case("target-outdated")
def its_profile_has_another_target_now(world: World) -> str:
    of_target(world, "typewriters")
    profile_now(world, TARGET)
    turn = world.ask()
    world.later(31)
    world.worker()
    return turn


@case("target-misspelt")
def its_profile_has_a_slip_in_the_target(world: World) -> str:
    of_target(world, "worker_genric")
    profile_now(world, "worker_genric")
    turn = world.ask()
    world.later(31)
    world.worker()
    return turn


@case("worker-elsewhere")
def the_worker_serves_another_project(world: World) -> str:
    turn = world.ask()
    world.later(31)
    world.worker()
    world.sql("UPDATE cbx.workers SET project_id = 'other'")
    return turn


# --- waiting to be run


@case("queued-behind-stuck")
def the_turn_before_is_stuck(world: World) -> str:
    world.worker()
    world.ask()
    turn = world.ask()
    world.later(31)
    return turn


@case("queued-on-idle")
def nobody_promoted_it(world: World) -> str:
    first = world.ask()
    turn = world.ask()
    finish_elsewhere(world, first)
    return turn


def finish_elsewhere(world: World, turn: str) -> None:
    """Another system's worker runs a turn and dies before it promotes the next."""
    world.sql("UPDATE state.agent_inbox SET status = 'consumed' WHERE inbox_id = %(turn)s", turn=turn)
    world.sql(
        "INSERT INTO state.agent_steps (project_id, agent_id, step_id, agent_turn_id, status, ended_at)"
        " SELECT project_id, agent_id, 'step_' || inbox_id, inbox_id, 'completed', now()"
        " FROM state.agent_inbox WHERE inbox_id = %(turn)s",
        turn=turn,
    )
    world.sql(
        "UPDATE state.agent_state_head SET status = 'idle', active_agent_turn_id = NULL, context_box_id = NULL,"
        " output_box_id = NULL WHERE active_agent_turn_id = %(turn)s",
        turn=turn,
    )


@case("no-live-worker")
def nobody_works(world: World) -> str:
    turn = world.ask()
    world.later(31)
    return turn


@case("no-live-worker")
def nobody_works_and_a_guard_touches_the_head(world: World) -> str:
    """Another system's guard writes to the head of what nobody claims every ten seconds."""
    turn = world.ask()
    world.later(240)
    world.sql("UPDATE state.agent_state_head SET updated_at = now() + interval '240 seconds'")
    return turn


@case("worker-cannot-work")
def its_worker_says_why_it_cannot(world: World) -> str:
    turn = world.ask()
    world.worker()
    worker_store.note_error(world.runtime.database, OWNER, "the database role may not do this")
    world.later(31)
    return turn


@case("database-read-only")
def the_database_takes_no_writes(world: World) -> str:
    turn = world.ask()
    name = world.runtime.database.connection.info.dbname
    world.sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    return turn


@case("lost-doorbell")
def the_doorbell_is_dropped(world: World) -> str:
    turn = world.ask()
    world.worker()
    world.later(31)
    return turn


@case("never-entered")
def a_worker_claims_and_hangs(world: World) -> str:
    turn = world.ask()
    row = world.claim().row
    for _ in range(2):
        world.later(40)
        world.beat(row)
    return turn


@case("retry-far-ahead")
def it_is_deferred_for_an_hour(world: World) -> str:
    turn = world.ask()
    row = world.enter()
    claims.defer(world.runtime, row, owner=OWNER, reason="the model is down", delay=timedelta(hours=1))
    return turn


# --- waiting for other turns


@case("wait-cycle")
def its_child_is_queued_on_its_own_agent(world: World) -> str:
    world.ask()
    parent = world.suspend()
    world.delegate(parent, "clerk")
    return parent


@case("wait-cycle")
def it_is_queued_on_its_parents_agent(world: World) -> str:
    world.ask()
    return world.delegate(world.suspend(), "clerk")


@case("wait-cycle")
def its_grandchild_is_queued_on_its_agent(world: World) -> str:
    world.ask()
    parent = world.suspend()
    world.delegate(parent)
    child, call = world.wait_for_call()
    world.delegate(child, "clerk", call)
    return parent


@case("awaited-stuck")
def nobody_runs_its_child(world: World) -> str:
    world.ask()
    parent = world.suspend()
    world.delegate(parent)
    world.later(31)
    return parent


@case("awaited-stuck")
def its_grandchilds_doorbell_is_dropped(world: World) -> str:
    world.ask()
    parent = world.suspend()
    world.delegate(parent)
    child, call = world.wait_for_call()
    world.runtime.heads.ensure("reader")
    world.sql(
        "INSERT INTO resource.project_agents SELECT project_id, 'reader', profile_box_id, worker_target"
        " FROM resource.project_agents WHERE agent_id = 'clerk'"
    )
    world.delegate(child, "reader", call)
    world.worker()
    world.later(31)
    return parent


# --- claimed


@case("crashed-claim")
def a_worker_claims_and_dies(world: World) -> str:
    turn = world.ask()
    world.claim()
    world.later(66)
    return turn


@case("crashed-claim")
def a_claim_of_another_system_without_a_date(world: World) -> str:
    turn = world.ask()
    world.sql("UPDATE state.agent_inbox SET status = 'processing' WHERE inbox_id = %(turn)s", turn=turn)
    return turn


@case("crashed-claim")
def a_claim_of_another_system_long_ago(world: World) -> str:
    turn = world.ask()
    world.sql(
        "UPDATE state.agent_inbox SET status = 'processing', processed_at = now() WHERE inbox_id = %(turn)s",
        turn=turn,
    )
    world.later(301)
    return turn


@case("crashed-claim")
def a_report_is_claimed_and_its_worker_dies(world: World) -> str:
    world.ask()
    turn = world.suspend()
    world.report(turn)
    world.claim()
    world.later(66)
    return turn


@case("dead-while-running")
def a_worker_dies_in_its_step(world: World) -> str:
    turn = world.ask()
    world.enter()
    world.later(66)
    return turn


@case("suspect-while-running")
def another_systems_worker_is_silent(world: World) -> str:
    turn = begin_elsewhere(world)
    world.later(301)
    return turn


def begin_elsewhere(world: World) -> str:
    """Another system's worker claims a turn and enters it."""
    turn = world.ask()
    enter_elsewhere(world, turn)
    return turn


def enter_elsewhere(world: World, turn: str) -> None:
    """Another system's worker claims this turn and enters it."""
    world.sql(
        "UPDATE state.agent_inbox SET status = 'processing', processed_at = now() WHERE inbox_id = %(turn)s",
        turn=turn,
    )
    world.sql(
        "UPDATE state.agent_state_head SET status = 'running', updated_at = now()"
        " WHERE active_agent_turn_id = %(turn)s",
        turn=turn,
    )


@case("orphan-lease")
def another_system_ends_a_claimed_turn(world: World) -> str:
    turn = world.ask()
    world.claim()
    finish_elsewhere(world, turn)
    return turn


# --- suspended


@case("deadline-passed")
def no_result_comes(world: World) -> str:
    world.ask()
    turn = world.suspend()
    world.later(306)
    return turn


@case("no-deadline")
def it_waits_for_ever(world: World) -> str:
    world.ask()
    return world.suspend(deadline=False)


@case("report-not-claimed")
def the_doorbell_of_a_report_is_dropped(world: World) -> str:
    world.ask()
    turn = world.suspend()
    world.report(turn)
    world.worker()
    world.later(31)
    return turn


@case("result-not-applied")
def a_tool_stores_its_result_and_dies(world: World) -> str:
    world.ask()
    turn = world.suspend()
    metadata = {"agent_turn_id": turn}
    card = draft_card("tool.result", GOOD, author_id="tool.search", tool_call_id=CALL, metadata=metadata)
    world.runtime.cards.add(card)
    world.later(31)
    return turn


@case("deadline-passed")
def a_conversation_holds_a_result_of_the_same_id(world: World) -> str:
    world.ask()
    turn = world.suspend()
    world.runtime.cards.add(draft_card("tool.result", GOOD, author_id="a", tool_call_id=CALL))
    world.later(601)
    return turn


@case("result-not-applied")
def a_result_was_received_and_is_gone(world: World) -> str:
    world.ask()
    turn = world.suspend()
    world.sql("UPDATE state.turn_waiting_tools SET wait_status = 'received'")
    return turn


@case("report-consumed-not-applied")
def a_report_is_consumed_for_nothing(world: World) -> str:
    world.ask()
    turn = world.suspend()
    row = world.report(turn)
    world.sql("UPDATE state.agent_inbox SET status = 'consumed' WHERE inbox_id = %(row)s", row=row)
    return turn


@case("waiting-count-drift")
def the_calls_are_gone(world: World) -> str:
    world.ask()
    turn = world.suspend()
    world.sql("DELETE FROM state.turn_waiting_tools")
    return turn


@case("stale-calls")
def the_calls_are_of_an_earlier_epoch(world: World) -> str:
    world.ask()
    turn = world.suspend()
    world.sql("UPDATE state.turn_waiting_tools SET turn_epoch = turn_epoch - 1")
    return turn


# --- rows that contradict each other


@case("head-lost")
def the_head_is_deleted(world: World) -> str:
    turn = world.ask()
    world.sql("DELETE FROM state.agent_state_head WHERE agent_id = 'clerk'")
    return turn


@case("head-without-turn")
def the_head_forgets_its_turn(world: World) -> str:
    turn = world.ask()
    world.sql("UPDATE state.agent_state_head SET active_agent_turn_id = NULL WHERE agent_id = 'clerk'")
    return turn


@case("head-without-turn")
def the_head_that_forgot_its_turn_keeps_another_queued(world: World) -> str:
    finish_elsewhere(world, world.ask())
    world.sql("UPDATE state.agent_state_head SET status = 'running' WHERE agent_id = 'clerk'")
    return world.ask()


@case("wrong-epoch")
def the_head_is_ahead(world: World) -> str:
    turn = world.ask()
    world.sql("UPDATE state.agent_state_head SET turn_epoch = turn_epoch + 5 WHERE agent_id = 'clerk'")
    return turn


@case("wrong-epoch")
def the_row_is_ahead(world: World) -> str:
    turn = world.ask()
    world.sql("UPDATE state.agent_inbox SET turn_epoch = 7 WHERE inbox_id = %(turn)s", turn=turn)
    return turn


@case("wrong-epoch")
def the_agent_is_not_at_its_promoted_turn(world: World) -> str:
    turn = world.ask()
    world.sql(
        "UPDATE state.agent_state_head SET status = 'idle', active_agent_turn_id = NULL WHERE agent_id = 'clerk'"
    )
    return turn


@case("consumed-not-applied")
def its_row_is_consumed_in_silence(world: World) -> str:
    turn = world.ask()
    world.sql("UPDATE state.agent_inbox SET status = 'consumed' WHERE inbox_id = %(turn)s", turn=turn)
    return turn


@case("consumed-not-applied")
def its_row_is_skipped_by_hand(world: World) -> str:
    turn = world.ask()
    world.sql("UPDATE state.agent_inbox SET status = 'skipped' WHERE inbox_id = %(turn)s", turn=turn)
    return turn


@case("consumed-not-applied")
def its_row_is_dropped_by_a_worker(world: World) -> str:
    """The head was set back; the worker finds that the turn is elsewhere, and consumes its row."""
    turn = the_agent_is_not_at_its_promoted_turn(world)
    world.drain()
    return turn


@case("consumed-not-applied")
def its_row_is_consumed_in_its_second_step(world: World) -> str:
    """The first step was over, which is no end: another had begun."""
    turn = world.ask()
    finish_elsewhere(world, turn)
    world.sql(
        "INSERT INTO state.agent_steps (project_id, agent_id, step_id, agent_turn_id, status)"
        " VALUES ('p', 'clerk', 'step_second', %(turn)s, 'started')",
        turn=turn,
    )
    return turn


@case("edge-without-row")
def its_row_is_deleted(world: World) -> str:
    turn = world.ask()
    world.sql("DELETE FROM state.agent_inbox WHERE inbox_id = %(turn)s", turn=turn)
    return turn


@case("edge-without-row")
def the_row_of_a_queued_turn_is_deleted(world: World) -> str:
    world.ask()
    turn = world.ask()
    world.sql("DELETE FROM state.agent_inbox WHERE inbox_id = %(turn)s", turn=turn)
    return turn


@case("edge-without-row")
def the_row_of_a_turn_that_another_waits_for_is_deleted(world: World) -> str:
    world.ask()
    parent = world.suspend()
    child = world.delegate(parent)
    world.sql("DELETE FROM state.agent_inbox WHERE inbox_id = %(turn)s", turn=child)
    world.sql(
        "UPDATE state.agent_state_head SET status = 'idle', active_agent_turn_id = NULL WHERE agent_id = 'scribe'"
    )
    return child


@case("row-lost")
def its_row_and_its_edge_are_deleted(world: World) -> str:
    turn = its_row_is_deleted(world)
    world.sql("DELETE FROM state.execution_edges WHERE target_agent_turn_id = %(turn)s", turn=turn)
    return turn


@case("row-unreadable")
def its_payload_is_lost_in_the_queue(world: World) -> str:
    world.ask()
    turn = world.ask()
    world.sql("UPDATE state.agent_inbox SET payload = 'null' WHERE inbox_id = %(turn)s", turn=turn)
    return turn


@case("no-live-worker")
def the_clock_that_made_its_row_alone_was_ahead(world: World) -> str:
    turn = world.ask()
    world.sql("UPDATE state.agent_inbox SET created_at = created_at + interval '1 hour'")
    world.later(31)
    return turn


@case("deleted-card")
def a_card_is_deleted_behind_a_turn_that_runs(world: World) -> str:
    world.ask()
    row = world.enter()
    card_id, turn = a_card(world)
    assert world.cbx("card", "delete", card_id, "--yes", "--force").code == 0
    world.beat(row)
    return turn


@case("retry-far-ahead")
def it_is_due_never(world: World) -> str:
    turn = world.ask()
    world.sql("UPDATE state.agent_inbox SET next_retry_at = 'infinity' WHERE inbox_id = %(turn)s", turn=turn)
    return turn


@case("retry-far-ahead")
def the_clock_that_made_its_row_was_an_hour_ahead(world: World) -> str:
    turn = world.ask()
    world.sql(
        "UPDATE state.agent_inbox SET created_at = created_at + interval '1 hour',"
        " next_retry_at = next_retry_at + interval '1 hour' WHERE inbox_id = %(turn)s",
        turn=turn,
    )
    return turn


@case("missing-box")
def its_head_points_to_a_box_of_another_project(world: World) -> str:
    turn = world.ask()
    box = BoxStore(world.runtime.database, "another").create([]).box_id
    world.sql(
        "UPDATE state.agent_state_head SET context_box_id = %(box)s::uuid WHERE agent_id = 'clerk'", box=box
    )
    return turn


@case("waiting-count-drift")
def its_calls_were_dropped(world: World) -> str:
    world.ask()
    turn = world.suspend()
    world.sql("UPDATE state.turn_waiting_tools SET wait_status = 'dropped'")
    return turn


@case("poison-retry")
def it_was_put_off_a_hundred_times(world: World) -> str:
    turn = world.ask()
    world.sql(
        "UPDATE state.agent_inbox SET status = 'deferred', retry_count = 100 WHERE inbox_id = %(turn)s",
        turn=turn,
    )
    return turn


@case("dead-letter")
def a_report_is_given_up(world: World) -> str:
    world.ask()
    turn = world.suspend()
    world.report(turn)
    row = world.claim().row
    claims.fail(world.runtime, row.inbox_id, owner=OWNER, error="the tool's answer cannot be read")
    return turn


@case("dead-letter")
def another_system_kills_the_row_of_a_queued_turn(world: World) -> str:
    world.ask()
    turn = world.ask()
    world.sql(
        "UPDATE state.agent_inbox SET status = 'error', last_error = 'invalid_context' WHERE inbox_id = %(turn)s",
        turn=turn,
    )
    return turn


@case("dead-letter")
def another_system_kills_the_row_of_an_active_turn(world: World) -> str:
    turn = world.ask()
    world.sql("UPDATE state.agent_inbox SET status = 'error' WHERE inbox_id = %(turn)s", turn=turn)
    return turn


@case("poison-retry")
def it_kills_every_worker(world: World) -> str:
    turn = world.ask()
    for number in range(3):
        world.enter(f"worker_{number}")
        world.later(66)
        reap(world.runtime)
    return turn


# --- ends


def an_unreported_end(world: World) -> tuple[str, str]:
    """A turn waits for another, which a worker of another system ends; it knows nothing of who waits."""
    world.ask()
    parent = world.suspend()
    child = world.delegate(parent)
    finish_elsewhere(world, child)
    return parent, child


@case("not-reported")
def nobody_was_told_of_its_end(world: World) -> str:
    return an_unreported_end(world)[1]


@case("head-at-ended-turn")
def its_head_is_set_back(world: World) -> str:
    turn = world.ask()
    world.drain()
    world.ask()
    world.sql(
        "UPDATE state.agent_state_head SET status = 'running', active_agent_turn_id = %(turn)s,"
        " turn_epoch = turn_epoch - 1 WHERE agent_id = 'clerk'",
        turn=turn,
    )
    world.sql("UPDATE state.agent_inbox SET status = 'queued' WHERE inbox_id <> %(turn)s", turn=turn)
    return turn


@case("answer-not-reported")
def nobody_told_it_of_an_end(world: World) -> str:
    return an_unreported_end(world)[0]


# --- locks


@contextmanager
def held(world: World, statement: str) -> Iterator[int]:
    """Another session locks something and does nothing; its process."""
    with psycopg.connect(world.runtime.database.connection.info.dsn, password="") as other:
        other.execute(statement.encode())
        world.later(11)
        yield other.info.backend_pid
        other.rollback()


LOCKS = {
    "the head": "SELECT FROM state.agent_state_head WHERE agent_id = 'clerk' FOR UPDATE",
    "the row": "SELECT FROM state.agent_inbox FOR UPDATE",
    "the output box": "SELECT FROM card_boxes FOR UPDATE",
    "its record": "SELECT FROM cbx.turns FOR UPDATE",
    "a table": "LOCK TABLE state.agent_inbox IN SHARE MODE",
    "a table for everybody": "LOCK TABLE state.agent_state_head IN ACCESS EXCLUSIVE MODE",
}


@pytest.mark.parametrize("what", LOCKS)
def test_a_lock_is_shown_with_its_owner(world: World, what: str) -> None:
    turn = world.ask()
    with held(world, LOCKS[what]) as pid:
        found = world.why(turn)
        assert (found["turn"], found["rule"], found["fix"]) == (turn, "database-lock", None)
        assert f"process {pid}" in found["next_actor"]
        at = world.cbx("why", "--agent", "clerk", "-o", "json").json()
        assert (at["rule"], at["next_actor"]) == ("database-lock", found["next_actor"])
        assert world.cbx("why", "--all").code == 8
    world.drain()
    assert world.why(turn)["verdict"] == "ended"


def test_a_short_lock_is_not_a_finding(world: World) -> None:
    turn = world.ask()
    with psycopg.connect(world.runtime.database.connection.info.dsn, password="") as other:
        other.execute(b"SELECT FROM state.agent_state_head FOR UPDATE")
        assert world.why(turn)["rule"] == "dispatched"


# --- a real worker


def test_a_worker_that_is_killed_in_its_step_is_dead(world: World, tmp_path: Path) -> None:
    turn = world.ask()
    begun = tmp_path / "begun"
    command = f"touch {begun}; exec sleep 60"
    words = [sys.executable, "-m", "cardbox_cli", "worker", "run", "--exec", command]
    # A group of its own, so that the command goes with its worker, as with a machine that loses its power.
    with subprocess.Popen(words, start_new_session=True, stderr=subprocess.DEVNULL) as process:
        until(begun.exists)
        assert world.why(turn)["rule"] == "running"
        os.killpg(process.pid, signal.SIGKILL)
    found = world.why(turn)
    assert found["rule"] == "dead-while-running"
    assert [each["rule"] for each in found["also"]] == []
    world.fix(found)
    world.drain()
    assert world.why(turn)["verdict"] == "ended"


def test_a_worker_that_cannot_begin_its_turn_reports_the_cause(world: World) -> None:
    world.worker()
    turn = world.ask()
    world.claim()
    worker_store.note_error(world.runtime.database, OWNER, "permission denied for table agent_steps")
    found = world.why(turn)
    assert (found["rule"], found["fix"]) == ("worker-cannot-work", None)
    assert "agent_steps" in found["evidence"][-1]["shows"]


# --- batches


@case("batch-overdue")
def its_batch_is_past_its_deadline(world: World) -> str:
    parent, _ = world.fork(deadline_seconds=60)
    world.later(66)
    return parent


@case("batch-child-untold")
def a_child_ends_where_nobody_knows_of_batches(world: World) -> str:
    parent, _ = world.fork()
    world.runtime.followers = ()
    world.drain()
    world.runtime.followers = (BatchManager(),)
    world.later(6)
    return parent


@case("batch-not-dispatched")
def its_maker_died_before_the_children_were_dispatched(world: World) -> str:
    parent, _ = world.fork(dispatched=False)
    world.later(31)
    return parent


@case("batch-not-reported")
def its_batch_has_ended_untold(world: World) -> str:
    parent, batch = world.fork()
    world.runtime.followers = ()
    world.drain()
    world.runtime.followers = (BatchManager(),)
    world.sql("UPDATE cbx.batch_tasks SET status = 'success'")
    world.sql(
        "UPDATE cbx.batches SET status = 'success', ended_at = now(), report_due = true WHERE batch_id = %(batch)s",
        batch=batch,
    )
    world.later(6)
    return parent


# --- all of them


NAMED = [(rule, bring) for rule, brings in CASES.items() for bring in brings]


@pytest.mark.parametrize(("rule", "bring"), NAMED, ids=[f"{rule}-{bring.__name__}" for rule, bring in NAMED])
def test_each_rule_matches_and_its_fix_unblocks_the_turn(world: World, rule: str, bring: Case) -> None:
    turn = bring(world)

    found = world.why(turn)
    assert (found["rule"], found["verdict"]) == (rule, "stuck"), found
    assert found["evidence"]
    assert found["next_actor"]
    listed = world.problems()
    assert rule in listed.values() or rule in ("queued-behind-stuck", "awaited-stuck", "history-refused")

    chosen = re.search(r"wrong, run `cbx ([^`]+)`", found["next_actor"])
    if found["fix"] is not None:
        world.fix(found)
    elif chosen is not None:
        assert world.cbx(*shlex.split(chosen[1])).code == 0
    world.to_the_end(turn)

    after = world.why(turn)
    assert after["verdict"] == "ended", after
    assert world.problems() == {}


def test_every_rule_with_the_verdict_stuck_has_a_case() -> None:
    of_others = {"foreign-child-untold", "foreign-batch-overdue"}
    assert {rule.name for rule in rules() if rule.verdict == "stuck"} == {*CASES, "database-lock", *of_others}
