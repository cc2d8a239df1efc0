"""Claims: who gets what and when, giving back done, dead or deferred, and the fence against a lost lease."""

from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import pytest

from cardbox_cli.errors import LeaseLost, StaleEpoch
from cardbox_cli.execution.dispatch import dispatch
from cardbox_cli.execution.dispatch_requests import DispatchRequest
from cardbox_cli.execution.queue.claims import (
    ack,
    begin,
    claim,
    defer,
    fail,
    hand_back,
    heartbeat,
)
from cardbox_cli.execution.queue.messages import STOP, TOOL_RESULT
from cardbox_cli.execution.queue.turn_ends import end_turn
from cardbox_cli.execution.recovery.fixes import reclaim, stop
from cardbox_cli.execution.recovery.reaping import reap
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.execution.turns import PENDING, new_id
from cardbox_cli.settings import Settings
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.execution.inbox_store import NewRow
from tests.execution.by_hand import write
from tests.execution.desk import Desk, unwatched
from tests.execution.fixtures import Asked, Heard

AtOnce = Callable[[Callable[[], Any]], Future[Any]]

pytestmark = pytest.mark.usefixtures("watched")


def take_all(desk: Desk, *, target: str | None = None, limit: int = 9) -> list[str]:
    """Claim what there is; the agents whose rows those are."""
    claimed = claim(desk.runtime, target=target, owner=desk.owner, limit=limit)
    return [each.row.agent_id for each in claimed]


class TestClaim:
    def test_a_claim_returns_one_row_per_agent_oldest_first(self, ask: Asked, desk: Desk) -> None:
        ask("scribe"), ask("clerk"), ask("clerk")
        assert take_all(desk) == ["scribe", "clerk"]
        assert take_all(desk) == []

    def test_a_claim_respects_its_limit(self, ask: Asked, desk: Desk) -> None:
        ask("scribe"), ask("clerk")
        assert take_all(desk, limit=1) == ["scribe"]

    def test_a_claim_returns_only_agents_of_the_target(
        self, ask: Asked, desk: Desk, database: Database
    ) -> None:
        ask()
        assert take_all(desk, target="other") == []
        assert take_all(desk, target="worker_generic") == ["clerk"]

    def test_the_lease_has_an_owner_and_an_expiry_time(self, ask: Asked, desk: Desk) -> None:
        ask()
        [claimed] = claim(desk.runtime, target=None, owner="w1")
        lease, row = claimed.lease, claimed.row
        assert (lease.owner, lease.inbox_id, lease.turn_epoch) == ("w1", row.inbox_id, row.turn_epoch)
        assert lease.expires_at - lease.claimed_at == timedelta(seconds=60)
        assert (row.status, row.processed_at) == ("processing", lease.claimed_at)

    def test_a_deferred_row_is_not_claimed_before_its_time(self, ask: Asked, desk: Desk) -> None:
        ask()
        task = desk.take()
        defer(desk.runtime, task.row, owner="w1", reason="later", delay=timedelta(seconds=10))
        assert take_all(desk) == []
        desk.later(11)
        assert take_all(desk) == ["clerk"]

    def test_two_workers_never_claim_the_same_row(self, ask: Asked, desk: Desk, second: Desk) -> None:
        ask("clerk"), ask("scribe")
        with desk.runtime.transaction():
            assert take_all(desk, limit=1) == ["clerk"]
            assert take_all(second) == ["scribe"]

    def test_a_locked_agent_is_skipped(self, ask: Asked, desk: Desk, second: Desk) -> None:
        ask("clerk"), ask("scribe")
        with desk.runtime.transaction():
            desk.runtime.heads.lock("clerk")
            assert take_all(second) == ["scribe"]
        assert take_all(second) == ["clerk"]

    def test_a_running_agent_gets_reports_but_no_second_turn(self, ask: Asked, desk: Desk) -> None:
        turn = ask()
        task = desk.enter()
        put(desk.runtime, task.row.turn_id, "turn", "again", epoch=task.fence.turn_epoch)
        assert take_all(desk) == []
        put(desk.runtime, task.row.turn_id, STOP.name, "stop", epoch=task.fence.turn_epoch)
        [claimed] = claim(desk.runtime, target=None, owner="w2")
        assert (claimed.row.message_type, claimed.row.turn_id) == (STOP.name, turn.agent_turn_id)

    def test_unclaimable_rows_do_not_hide_a_claimable_row(self, ask: Asked, desk: Desk) -> None:
        ask("clerk")
        task = desk.enter()
        for number in range(30):
            put(desk.runtime, task.row.turn_id, "turn", f"again {number}", epoch=9)
        ask("scribe")
        assert take_all(desk, limit=1) == ["scribe"]

    def test_a_row_of_an_unknown_type_is_dead(self, ask: Asked, desk: Desk) -> None:
        turn = ask()
        desk.enter()
        row_id = put(desk.runtime, turn.agent_turn_id or "", "ui_action", "x", epoch=1)
        task = desk.take()
        assert (task.kind, task.outcome) == ("done", "dead: unknown message type 'ui_action'")
        assert desk.row(row_id).status == "error"
        assert desk.standing() == ("running", 1)

    def test_a_row_at_an_outdated_epoch_is_dropped(self, ask: Asked, desk: Desk) -> None:
        turn = ask()
        [claimed] = claim(desk.runtime, target=None, owner="w1")
        with unwatched(desk.runtime.database.connection) as connection:
            connection.execute("UPDATE state.agent_state_head SET turn_epoch = 7")
        task = begin(desk.runtime, claimed.row, owner="w1")
        assert (task.kind, desk.row(turn.inbox_id or "").status) == ("done", "consumed")
        assert desk.runtime.inbox.lease(turn.inbox_id or "") is None


def put(
    runtime: Runtime, turn_id: str, message_type: str, correlation_id: str, *, epoch: int, **payload: Any
) -> str:
    """A due row of another program, for the turn of `clerk`."""
    row = NewRow(
        inbox_id=new_id("inbox"),
        agent_id="clerk",
        message_type=message_type,
        status=PENDING,
        payload=payload,
        context_headers={},
        correlation_id=correlation_id,
        agent_turn_id=turn_id,
        turn_epoch=epoch,
    )
    assert runtime.inbox.insert(row) is not None
    return row.inbox_id


class TestGivingBack:
    def test_an_acknowledged_row_ends_its_turn(self, ask: Asked, desk: Desk) -> None:
        turn = ask()
        ack(desk.runtime, desk.take().row.inbox_id, owner="w1")
        assert desk.standing() == ("idle", 1)
        assert desk.row(turn.inbox_id or "").status == "consumed"
        assert desk.end_of(turn.agent_turn_id or "") == "success"
        assert desk.runtime.inbox.lease(turn.inbox_id or "") is None

    def test_a_failed_row_fails_its_turn_and_promotes_the_next(self, ask: Asked, desk: Desk) -> None:
        first, second = ask(), ask()
        fail(desk.runtime, desk.enter().row.inbox_id, owner="w1", error="no such file")
        row, record = desk.row(first.inbox_id or ""), desk.runtime.turns.record(first.agent_turn_id or "")
        assert (row.status, row.last_error, row.retry_count) == ("error", "no such file", 1)
        assert record is not None
        assert (record.end_status, record.error_code, record.error) == ("failed", "failed", "no such file")
        assert desk.standing() == ("dispatched", 3)
        assert desk.head().active_agent_turn_id == second.agent_turn_id

    def test_a_deferred_row_is_claimed_again_at_a_new_epoch(self, ask: Asked, desk: Desk) -> None:
        turn = ask()
        task = desk.enter()
        assert defer(desk.runtime, task.row, owner="w1", reason="busy")
        row = desk.row(turn.inbox_id or "")
        assert (row.status, row.retry_count, row.defer_reason, row.turn_epoch) == ("deferred", 1, "busy", 2)
        assert desk.standing() == ("dispatched", 2)
        desk.later(2)
        assert desk.take().fence.turn_epoch == 2

    def test_the_backoff_grows_up_to_a_cap(self) -> None:
        settings = Settings(backoff=1, backoff_cap=60)
        assert [settings.delay(tries, 1).total_seconds() for tries in (0, 1, 2, 5, 6, 99)] == [
            *(1, 2, 4, 32),
            *(60, 60),
        ]
        assert settings.delay(0, 0) == timedelta(seconds=0.75)

    def test_a_row_is_dead_and_its_turn_fails_after_too_many_attempts(self, ask: Asked, desk: Desk) -> None:
        turn = ask()
        again = []
        for _ in range(5):
            again.append(defer(desk.runtime, desk.take().row, owner="w1", reason="busy"))
            desk.later(100)
        assert again == [True] * 4 + [False]
        row = desk.row(turn.inbox_id or "")
        assert (row.status, row.retry_count, row.last_error) == ("error", 5, "gave up: busy")
        assert desk.end_of(turn.agent_turn_id or "") == "failed"
        assert desk.standing() == ("idle", 6)

    def test_a_row_that_is_handed_back_counts_no_attempt_and_notifies(
        self, ask: Asked, desk: Desk, heard: Heard
    ) -> None:
        turn = ask()
        heard.wakeups.clear()
        hand_back(desk.runtime, desk.enter().row, owner="w1", reason="stops")
        row = desk.row(turn.inbox_id or "")
        assert (row.status, row.retry_count, row.turn_epoch) == ("pending", 0, 2)
        assert [(wakeup.inbox_id, wakeup.reason) for wakeup in heard.wakeups] == [(row.inbox_id, "released")]
        assert desk.take().fence.turn_epoch == 2

    def test_a_row_that_carries_no_turn_does_not_end_one(self, ask: Asked, desk: Desk) -> None:
        """Even one of the running turn's epoch, as other programs write them."""
        task = start(ask, desk)
        rows = {
            kind.name: put(desk.runtime, task.row.turn_id, kind.name, kind.name, epoch=1)
            for kind in (TOOL_RESULT, STOP)
        }
        for _ in rows:
            [claimed] = claim(desk.runtime, target=None, owner="w1")
            ack(desk.runtime, claimed.row.inbox_id, owner="w1")
            assert desk.row(rows[claimed.row.message_type]).status == "consumed"
        assert desk.standing() == ("running", 1)

    def test_a_lost_lease_of_a_report_does_not_disturb_the_turn(self, ask: Asked, desk: Desk) -> None:
        task = start(ask, desk)
        orphan = put(desk.runtime, task.row.turn_id, TOOL_RESULT.name, "c", epoch=1)
        claim(desk.runtime, target=None, owner="w2")
        desk.later(50)
        assert heartbeat(desk.runtime, [task.row.inbox_id], owner="w1") == {task.row.inbox_id: 1}
        desk.later(20)
        assert reap(desk.runtime).released == [orphan]
        assert desk.standing() == ("running", 1)

    def test_many_rows_are_consumed_at_once(self, ask: Asked, desk: Desk) -> None:
        task = start(ask, desk)
        rows = []
        for number in range(3):
            rows.append(put(desk.runtime, task.row.turn_id, TOOL_RESULT.name, str(number), epoch=0))
            claim(desk.runtime, target=None, owner="w1")
        assert sorted(desk.runtime.inbox.consume(rows, owner="w1")) == sorted(rows)
        assert desk.runtime.inbox.consume(rows, owner="w1") == []


def start(ask: Asked, desk: Desk) -> Any:
    """A running turn of `clerk`."""
    ask()
    return desk.enter()


class TestFence:
    """A worker that was paused past its lease writes nothing any more, and is told why."""

    @pytest.fixture
    def paused(self, ask: Asked, desk: Desk) -> Any:
        """A running turn whose lease was lost."""
        task = start(ask, desk)
        desk.later(61)
        assert reap(desk.runtime).released == [task.row.inbox_id]
        return task

    WHY = "lease-expired by sys.cbx: the lease of w1 expired"

    def test_a_stale_worker_cannot_write_output(self, paused: Any, desk: Desk) -> None:
        with pytest.raises(StaleEpoch) as failure:
            write(desk.runtime, paused.fence, "Too late")
        assert failure.value.message == (
            f"turn {paused.fence.agent_turn_id} is no longer at epoch 1: agent 'clerk' is at "
            f"turn {paused.fence.agent_turn_id}, dispatched, epoch 2; {self.WHY}"
        )
        assert desk.output(paused.fence.agent_turn_id) == []

    def test_a_stale_worker_cannot_end_its_turn(self, paused: Any, desk: Desk) -> None:
        with pytest.raises(StaleEpoch):
            end_turn(desk.runtime, paused.fence, "success")
        assert desk.end_of(paused.fence.agent_turn_id) is None
        assert desk.output(paused.fence.agent_turn_id) == []

    def test_a_stale_worker_cannot_suspend_its_turn(self, paused: Any, desk: Desk) -> None:
        with pytest.raises(StaleEpoch):
            desk.runtime.heads.move(paused.fence, "suspend")

    @pytest.mark.parametrize("call", ["ack", "fail", "defer", "hand_back", "begin"])
    def test_a_stale_worker_cannot_change_its_row(self, call: str, paused: Any, desk: Desk) -> None:
        calls: dict[str, Callable[[], object]] = {
            "ack": lambda: ack(desk.runtime, paused.row.inbox_id, owner="w1"),
            "fail": lambda: fail(desk.runtime, paused.row.inbox_id, owner="w1", error="x"),
            "defer": lambda: defer(desk.runtime, paused.row, owner="w1", reason="x"),
            "hand_back": lambda: hand_back(desk.runtime, paused.row, owner="w1", reason="x"),
            "begin": lambda: begin(desk.runtime, paused.row, owner="w1"),
        }
        with pytest.raises(LeaseLost) as failure:
            calls[call]()
        assert failure.value.exit_code == 5
        assert failure.value.message == (
            f"inbox row {paused.row.inbox_id} is not leased to 'w1': it is pending; {self.WHY}"
        )
        assert desk.standing() == ("dispatched", 2)

    def test_a_stale_worker_cannot_extend_its_lease(self, paused: Any, desk: Desk) -> None:
        assert heartbeat(desk.runtime, [paused.row.inbox_id], owner="w1") == {}

    @pytest.mark.parametrize("call", ["ack", "fail", "defer", "hand_back", "begin"])
    def test_an_old_lease_is_lost_when_the_same_worker_claims_the_row_again(
        self, call: str, paused: Any, desk: Desk
    ) -> None:
        again = desk.take()
        calls: dict[str, Callable[[], object]] = {
            "ack": lambda: ack(desk.runtime, paused.row.inbox_id, owner="w1", epoch=1),
            "fail": lambda: fail(desk.runtime, paused.row.inbox_id, owner="w1", error="x", epoch=1),
            "defer": lambda: defer(desk.runtime, paused.row, owner="w1", reason="x"),
            "hand_back": lambda: hand_back(desk.runtime, paused.row, owner="w1", reason="x"),
            "begin": lambda: begin(desk.runtime, paused.row, owner="w1"),
        }
        with pytest.raises(LeaseLost, match="it was claimed again at epoch 2"):
            calls[call]()
        ack(desk.runtime, again.row.inbox_id, owner="w1", epoch=2)
        assert desk.end_of(paused.fence.agent_turn_id) == "success"

    def test_the_error_names_the_worker_that_holds_the_row(
        self, paused: Any, desk: Desk, second: Desk
    ) -> None:
        Desk(desk.runtime, "w2").take()
        with pytest.raises(LeaseLost, match="it is claimed by 'w2'"):
            ack(desk.runtime, paused.row.inbox_id, owner="w1")

    def test_the_error_explains_that_the_turn_was_stopped(self, ask: Asked, desk: Desk) -> None:
        task = start(ask, desk)
        stop(desk.runtime, task.row.turn_id, actor="ann", reason="not needed")
        with pytest.raises(StaleEpoch) as failure:
            write(desk.runtime, task.fence, "Too late")
        assert failure.value.message.endswith(
            "is at no turn, idle, epoch 2; it ended (canceled), stop by ann: not needed"
        )

    def test_a_turn_that_another_program_took_is_fenced(self, ask: Asked, desk: Desk) -> None:
        task = start(ask, desk)
        with unwatched(desk.runtime.database.connection) as connection:
            connection.execute(
                "UPDATE state.agent_state_head SET status = 'idle', active_agent_turn_id = NULL, turn_epoch = 2"
                " WHERE agent_id = 'clerk'"
            )
        with pytest.raises(StaleEpoch):
            ack(desk.runtime, task.row.inbox_id, owner="w1")
        desk.later(61)
        assert reap(desk.runtime).released == [task.row.inbox_id]
        assert desk.take().outcome == "dropped: its turn is not dispatched at its epoch"

    def test_a_claimed_row_that_becomes_due_again_fences_its_worker(self, ask: Asked, desk: Desk) -> None:
        task = start(ask, desk)
        with unwatched(desk.runtime.database.connection) as connection:
            connection.execute("UPDATE state.agent_inbox SET status = 'pending', processed_at = NULL")
        over = Desk(desk.runtime, "w2").take()
        assert (over.kind, over.outcome, over.fence.turn_epoch) == ("run", "taken over", 2)
        with pytest.raises(StaleEpoch):
            write(desk.runtime, task.fence, "Too late")
        write(desk.runtime, over.fence, "In time")

    def test_a_report_to_a_turn_of_another_program_records_where_its_output_begins(
        self, ask: Asked, desk: Desk
    ) -> None:
        earlier = ask()
        first = desk.enter()
        write(desk.runtime, first.fence, "Earlier")
        ack(desk.runtime, first.row.inbox_id, owner="w1")
        turn = ask(output_box_id=earlier.output_box_id).agent_turn_id or ""
        task = desk.enter()
        write(desk.runtime, task.fence, "Of this turn")
        desk.suspend(task, "call", seconds=300)
        desk.runtime.database.connection.execute("DELETE FROM cbx.turns WHERE agent_turn_id = %s", [turn])
        desk.report(turn, "call")
        assert desk.take().outcome == "resumed its turn"
        record = desk.runtime.turns.record(turn)
        assert record is not None
        assert record.output_start == desk.runtime.turns.output_start(earlier.output_box_id or "", turn)
        assert record.output_start not in (0, None)

    def test_a_resumed_turn_that_becomes_due_again_fences_its_worker(self, ask: Asked, desk: Desk) -> None:
        turn = ask().agent_turn_id or ""
        desk.waiting("call")
        desk.report(turn, "call")
        resumed = desk.take()
        with unwatched(desk.runtime.database.connection) as connection:
            connection.execute(
                "UPDATE state.agent_inbox SET status = 'pending' WHERE inbox_id = %s", [resumed.row.inbox_id]
            )
        over = Desk(desk.runtime, "w2").take()
        assert (over.kind, over.fence.turn_epoch) == ("run", resumed.fence.turn_epoch + 1)
        assert desk.standing() == ("dispatched", 3)


class TestHeartbeat:
    def test_a_heartbeat_extends_the_lease_and_updates_the_row_and_head(self, ask: Asked, desk: Desk) -> None:
        task = start(ask, desk)
        desk.later(50)
        assert heartbeat(desk.runtime, [task.row.inbox_id], owner="w1") == {task.row.inbox_id: 1}
        desk.later(50)
        assert reap(desk.runtime).total == 0
        row, head = desk.row(task.row.inbox_id), desk.head()
        assert row.processed_at == head.updated_at
        assert task.row.processed_at is not None
        assert row.processed_at is not None
        assert row.processed_at - task.row.processed_at >= timedelta(seconds=50)

    def test_a_heartbeat_extends_only_leases_of_its_owner(self, ask: Asked, desk: Desk) -> None:
        task = start(ask, desk)
        assert heartbeat(desk.runtime, [task.row.inbox_id], owner="w2") == {}

    def test_a_heartbeat_extends_the_lease_even_if_the_head_is_locked(
        self, ask: Asked, desk: Desk, second: Desk
    ) -> None:
        task = start(ask, desk)
        desk.later(50)
        with second.runtime.transaction():
            second.runtime.heads.lock("clerk")
            assert heartbeat(desk.runtime, [task.row.inbox_id], owner="w1") == {task.row.inbox_id: 1}
        desk.later(50)
        assert reap(desk.runtime).total == 0

    def test_a_heartbeat_does_not_wait_for_a_locked_lease(self, ask: Asked, desk: Desk, second: Desk) -> None:
        task = start(ask, desk)
        with second.runtime.transaction():
            ack(second.runtime, task.row.inbox_id, owner="w1")
            assert heartbeat(desk.runtime, [task.row.inbox_id], owner="w1") == {task.row.inbox_id: 1}
        assert heartbeat(desk.runtime, [task.row.inbox_id], owner="w1") == {}

    def test_a_lease_that_lapsed_while_the_server_was_down_lasts_one_more_lease(
        self, ask: Asked, desk: Desk
    ) -> None:
        task = start(ask, desk)
        database = desk.runtime.database
        database.connection.execute(
            "UPDATE cbx.leases SET heartbeat_at = s - interval '50 s', expires_at = s + interval '10 s' "
            "FROM (SELECT pg_postmaster_start_time()) AS server (s)"
        )
        desk.later((database.started_at - database.now()).total_seconds() + 30)
        assert reap(desk.runtime).released == []
        desk.later(60)
        assert reap(desk.runtime).released == [task.row.inbox_id]


class TestStop:
    """A stop in the inbox, as other programs write it."""

    def test_a_stop_message_cancels_a_running_turn(self, ask: Asked, desk: Desk) -> None:
        first, second = ask().agent_turn_id or "", ask().agent_turn_id or ""
        task = desk.enter()
        row_id = put(desk.runtime, first, STOP.name, "s", epoch=1, reason="not needed")
        assert desk.take().outcome == "stopped its turn"
        assert (desk.end_of(first), desk.row(row_id).status) == ("canceled", "consumed")
        assert desk.audited(first) == ["stop"]
        assert desk.head().active_agent_turn_id == second
        with pytest.raises(StaleEpoch, match="not needed"):
            write(desk.runtime, task.fence, "Too late")

    def test_a_stop_message_cancels_a_queued_turn(self, ask: Asked, desk: Desk) -> None:
        ask()
        queued = ask().agent_turn_id or ""
        desk.enter()
        put(desk.runtime, queued, STOP.name, "s", epoch=0)
        assert desk.take().outcome == "stopped its turn before it began"
        assert (desk.end_of(queued), desk.row(queued).status) == ("canceled", "skipped")

    def test_a_stop_message_does_not_change_an_ended_turn(self, ask: Asked, desk: Desk) -> None:
        turn = ask().agent_turn_id or ""
        ack(desk.runtime, desk.take().row.inbox_id, owner="w1")
        put(desk.runtime, turn, STOP.name, "s", epoch=1)
        assert desk.take().outcome == "its turn had already ended"
        assert desk.end_of(turn) == "success"


def test_a_dispatcher_that_died_before_it_notified_is_harmless(
    ask: Asked, desk: Desk, context_box: str
) -> None:
    silent = Runtime(desk.runtime.database, desk.runtime.project_id, settings=Settings())
    dispatch(silent, DispatchRequest(target_agent_id="clerk", context_box_id=context_box))
    assert take_all(desk) == ["clerk"]


def test_a_turn_that_was_reclaimed_manually_is_fenced_too(ask: Asked, desk: Desk) -> None:
    task = start(ask, desk)
    reclaim(desk.runtime, task.row.turn_id, expect_epoch=1, actor="ann", reason="it hangs")
    with pytest.raises(LeaseLost, match="reclaim by ann: it hangs"):
        ack(desk.runtime, task.row.inbox_id, owner="w1")
