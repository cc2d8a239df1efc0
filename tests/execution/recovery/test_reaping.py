"""Reaping: what is overdue is done once, by whoever comes first, and trouble keeps nothing else up."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from cardbox_cli.execution.queue.claims import claim
from cardbox_cli.execution.recovery.reaping import ReapOutcome, reap
from cardbox_cli.store.connection.database import Database
from tests.execution.desk import Desk, unwatched
from tests.execution.fixtures import Asked, Heard

pytestmark = pytest.mark.usefixtures("watched")


def test_reaping_does_nothing_if_nothing_is_overdue(ask: Asked, desk: Desk) -> None:
    ask()
    desk.enter()
    desk.later(59)
    assert reap(desk.runtime) == ReapOutcome()
    assert reap(desk.runtime).total == 0


class TestLeases:
    def test_an_expired_lease_counts_an_attempt_and_releases_the_turn(
        self, ask: Asked, desk: Desk, heard: Heard
    ) -> None:
        turn = ask().agent_turn_id or ""
        desk.enter()
        desk.later(61)
        heard.wakeups.clear()
        assert reap(desk.runtime) == ReapOutcome(released=[turn])
        row = desk.row(turn)
        assert (row.status, row.retry_count, row.turn_epoch) == ("pending", 1, 2)
        assert row.last_error == "the lease of w1 expired"
        assert desk.standing() == ("dispatched", 2)
        assert desk.audited(turn) == ["lease-expired"]
        assert [wakeup.agent_turn_id for wakeup in heard.wakeups] == [turn]

    def test_a_row_that_was_claimed_but_not_begun_is_released(self, ask: Asked, desk: Desk) -> None:
        turn = ask().agent_turn_id or ""
        claim(desk.runtime, target=None, owner="w1")
        desk.later(61)
        assert reap(desk.runtime).released == [turn]
        assert desk.take().fence.turn_epoch == 2

    def test_the_last_attempt_fails_the_turn_and_promotes_the_next(self, ask: Asked, desk: Desk) -> None:
        turn, following = ask().agent_turn_id or "", ask().agent_turn_id
        for _ in range(4):
            desk.take()
            desk.later(61)
            assert reap(desk.runtime).released == [turn]
        desk.enter()
        desk.later(61)
        assert reap(desk.runtime).dead == [turn]
        record = desk.runtime.turns.record(turn)
        assert record is not None
        assert (record.end_status, record.error_code) == ("failed", "max_attempts")
        assert record.error == "the lease of w1 expired, try 5"
        assert (desk.row(turn).status, desk.row(turn).retry_count) == ("error", 5)
        assert desk.output(turn) == ["task.deliverable"]
        assert desk.head().active_agent_turn_id == following

    def test_an_expired_lease_of_a_report_is_released(self, ask: Asked, desk: Desk) -> None:
        """Claimed, and its worker died before it was applied."""
        turn = ask().agent_turn_id or ""
        desk.waiting("a")
        report = desk.report(turn, "a").inbox_id
        claim(desk.runtime, target=None, owner="w1")
        desk.later(61)
        assert reap(desk.runtime).released == [report]
        assert desk.standing() == ("suspended", 1)
        assert desk.take().fence.turn_epoch == 2

    def test_an_expired_lease_of_a_resumed_turn_is_released(self, ask: Asked, desk: Desk) -> None:
        turn = ask().agent_turn_id or ""
        desk.waiting("a")
        report = desk.report(turn, "a").inbox_id
        desk.take()
        desk.later(61)
        assert reap(desk.runtime).released == [report]
        assert desk.standing() == ("dispatched", 3)
        again = desk.take()
        assert (again.kind, again.fence.turn_epoch) == ("run", 3)
        assert desk.output(turn) == ["tool.result"]

    def test_an_expired_lease_of_a_consumed_row_is_deleted(self, ask: Asked, desk: Desk) -> None:
        turn = ask().agent_turn_id or ""
        desk.enter()
        with unwatched(desk.runtime.database.connection) as connection:
            connection.execute("UPDATE state.agent_inbox SET status = 'consumed'")
        assert reap(desk.runtime) == ReapOutcome()
        assert desk.runtime.inbox.lease(turn) is None


class TestDeadlines:
    def test_each_open_call_times_out_once(self, ask: Asked, desk: Desk) -> None:
        turn = ask().agent_turn_id or ""
        desk.waiting("a", "b")
        desk.report(turn, "a")
        desk.later(301)
        assert reap(desk.runtime).timed_out == ["b"]
        assert reap(desk.runtime).total - len(reap(desk.runtime).notified) == 0
        assert [desk.take().kind for _ in "ab"] == ["done", "run"]
        [_, card] = desk.runtime.boxes.view(desk.head().output_box_id or "").cards
        content: Any = card.content
        assert (content.status, content.error["code"]) == ("timeout", "tool_timeout")
        assert card.author_id == "worker.watchdog"

    def test_unapplied_reports_extend_the_deadline(self, ask: Asked, desk: Desk) -> None:
        turn = ask().agent_turn_id or ""
        desk.waiting("a")
        for timed_out in (["a"], [], []):
            desk.later(301)
            assert reap(desk.runtime).timed_out == timed_out
            assert desk.standing() == ("suspended", 1)
        assert desk.take().kind == "run"
        assert desk.end_of(turn) is None


class TestQueues:
    def test_a_queued_turn_of_an_idle_agent_is_promoted(
        self, ask: Asked, desk: Desk, database: Database
    ) -> None:
        turn = ask().agent_turn_id or ""
        with unwatched(database.connection) as connection:
            connection.execute(
                "UPDATE state.agent_state_head SET status = 'idle', active_agent_turn_id = NULL"
            )
            connection.execute("UPDATE state.agent_inbox SET status = 'queued', turn_epoch = 0")
        assert reap(desk.runtime).promoted == [turn]
        assert desk.standing() == ("dispatched", 2)

    def test_workers_are_notified_again_of_an_unclaimed_turn(
        self, ask: Asked, desk: Desk, heard: Heard
    ) -> None:
        turn = ask().agent_turn_id
        ask("scribe")
        heard.wakeups.clear()
        desk.later(29)
        assert reap(desk.runtime).notified == []
        desk.later(2)
        assert reap(desk.runtime).notified == [turn]
        assert [(wakeup.worker_target, wakeup.reason) for wakeup in heard.wakeups] == [
            ("worker_generic", "unclaimed")
        ]


class TestAtTheSameTime:
    def test_two_reapers_do_everything_once(self, ask: Asked, desk: Desk, second: Desk, runtime: Any) -> None:
        released, waits = ask().agent_turn_id or "", ask("scribe").agent_turn_id or ""
        desk.enter()
        desk.waiting("a")
        for each in (desk, second):
            each.later(301)
        with ThreadPoolExecutor(2) as pool:
            passes = list(pool.map(lambda each: reap(each.runtime), (desk, second)))
        assert [inbox_id for each in passes for inbox_id in each.released] == [released]
        assert [call for each in passes for call in each.timed_out] == ["a"]
        assert desk.audited(released) == ["lease-expired"]
        assert desk.standing("clerk") == ("dispatched", 2)
        assert desk.waits(waits) == {"a": "received"}

    def test_a_locked_agent_is_skipped(self, ask: Asked, desk: Desk, second: Desk) -> None:
        ask()
        desk.enter()
        second.later(61)
        with desk.runtime.transaction():
            desk.runtime.heads.lock("clerk")
            desk.runtime.inbox.lock_lease(desk.head().active_agent_turn_id or "")
            assert reap(second.runtime) == ReapOutcome()

    def test_an_error_for_one_agent_does_not_block_the_others(
        self, ask: Asked, desk: Desk, second: Desk, database: Database
    ) -> None:
        held, free = ask(), ask("scribe")
        with unwatched(database.connection) as connection:
            connection.execute(
                "UPDATE state.agent_state_head SET status = 'idle', active_agent_turn_id = NULL"
            )
            connection.execute("UPDATE state.agent_inbox SET status = 'queued', turn_epoch = 0")
            connection.execute("SET lock_timeout = '50ms'")
        with second.runtime.transaction():
            second.runtime.turns.lock_box(held.output_box_id or "")
            reaped = reap(desk.runtime)
        assert reaped.promoted == [free.agent_turn_id]
        assert reaped.troubles == [
            "the queue of agent 'clerk': conflict with another transaction: "
            "canceling statement due to lock timeout"
        ]
        assert reap(desk.runtime).promoted == [held.agent_turn_id]

    def test_a_turn_that_lost_its_row_does_not_block_the_others(
        self, ask: Asked, desk: Desk, database: Database
    ) -> None:
        broken = ask().agent_turn_id or ""
        desk.waiting("a")
        with unwatched(database.connection) as connection:
            connection.execute("DELETE FROM state.agent_inbox")
        other = ask("scribe").agent_turn_id or ""
        desk.enter()
        desk.later(301)
        reaped = reap(desk.runtime)
        assert reaped.released == [other]
        assert reaped.failed == [broken]


def test_an_agent_is_freed_if_its_turn_had_already_ended(ask: Asked, desk: Desk) -> None:
    """A poison for every pass, if ending it once more were an error."""
    turn = ask().agent_turn_id or ""
    task = desk.enter()
    for _ in range(4):
        desk.later(61)
        reap(desk.runtime)
        task = desk.take()
    with unwatched(desk.runtime.database.connection) as connection:
        connection.execute("UPDATE cbx.turns SET end_status = 'success'")
    desk.later(61)
    assert reap(desk.runtime).dead == [task.row.inbox_id]
    assert (desk.standing()[0], desk.end_of(turn)) == ("idle", "success")
