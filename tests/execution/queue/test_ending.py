"""The end of a turn: once, with a deliverable, in one transaction with all that follows from it."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from cardbox_cli.errors import StaleEpoch
from cardbox_cli.execution.queue.claims import ack
from cardbox_cli.execution.queue.turn_ends import end_turn
from cardbox_cli.execution.recovery.fixes import stop
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.content import JsonContent
from cardbox_cli.model.execution.turns import END_STATUSES, EndStatus
from cardbox_cli.store.connection.database import Database
from tests.execution.by_hand import write
from tests.execution.desk import Desk, unwatched
from tests.execution.fixtures import Asked, Heard
from tests.execution.their_tables import OnTheirTables
from tests.foreign.writer import Deployment

AtOnce = Callable[[Callable[[], Any]], Future[Any]]

pytestmark = pytest.mark.usefixtures("watched")


class TestDeliverable:
    def test_the_last_deliverable_of_the_turn_counts(self, ask: Asked, desk: Desk) -> None:
        turn = ask().agent_turn_id or ""
        task = desk.enter()
        write(desk.runtime, task.fence, "draft", type="task.deliverable")
        last = write(desk.runtime, task.fence, "final", type="task.deliverable")
        ended = end_turn(desk.runtime, task.fence, "success")
        assert ended.deliverable_card_id == last
        assert desk.output(turn) == ["task.deliverable"] * 2

    def test_a_deliverable_of_an_earlier_turn_does_not_count(self, ask: Asked, desk: Desk) -> None:
        box_id = ask().output_box_id
        first = desk.enter()
        write(desk.runtime, first.fence, "the first answer", type="task.deliverable")
        end_turn(desk.runtime, first.fence, "success")
        turn = ask(output_box_id=box_id).agent_turn_id or ""
        ended = end_turn(desk.runtime, desk.enter().fence, "success")
        card = desk.runtime.cards.get(ended.deliverable_card_id or "")
        assert card.metadata["agent_turn_id"] == turn
        assert desk.output(turn) == ["task.deliverable"] * 2

    @pytest.mark.parametrize("status", END_STATUSES)
    def test_a_turn_without_a_deliverable_gets_a_fallback_with_the_reason(
        self, status: EndStatus, ask: Asked, desk: Desk
    ) -> None:
        turn = ask().agent_turn_id or ""
        error_code = None if status == "success" else "broken"
        ended = end_turn(
            desk.runtime,
            desk.enter().fence,
            status,
            error_code=error_code,
            message="It is so.",
            details={"stderr": "oh"},
        )
        card = desk.runtime.cards.get(ended.deliverable_card_id or "")
        assert isinstance(card.content, JsonContent)
        assert card.content.data == {
            "schema_version": 1,
            "kind": "fallback_deliverable",
            "status": status,
            "partial": status != "success",
            "message": "It is so.",
            "fields": [
                {"name": "summary", "value": "It is so."},
                {"name": "output", "value": ""},
                {"name": "reason", "value": error_code or "success"},
            ],
            "diagnostics": {"stderr": "oh"},
        }
        assert desk.end_of(turn) == status
        assert desk.output(turn) == ["task.deliverable"]

    def test_a_lost_output_box_is_recreated(self, ask: Asked, desk: Desk, database: Database) -> None:
        turn = ask()
        task = desk.enter()
        database.connection.execute("DELETE FROM card_boxes WHERE box_id = %s", [turn.output_box_id])
        end_turn(desk.runtime, task.fence, "failed", message="x")
        assert desk.output(turn.agent_turn_id or "") == ["task.deliverable"]

    def test_the_deliverable_of_a_turn_that_never_began_is_stored(self, ask: Asked, desk: Desk) -> None:
        ask()
        queued = ask().agent_turn_id or ""
        fixed = stop(desk.runtime, queued, actor="ann", reason="not needed")
        assert fixed.end is not None
        assert desk.output(queued) == []
        assert desk.runtime.cards.get(fixed.end.deliverable_card_id or "").type == "task.deliverable"


class TestWhatFollows:
    def test_the_agent_is_free_and_remembers_its_box(
        self, ask: Asked, desk: Desk, database: Database
    ) -> None:
        turn = ask()
        end_turn(desk.runtime, desk.enter().fence, "success")
        head = desk.head()
        assert (head.status, head.turn_epoch, head.active_agent_turn_id) == ("idle", 1, None)
        assert (head.context_box_id, head.output_box_id, head.trace_id) == (None, None, None)
        assert head.profile_box_id is not None
        row = database.connection.execute("SELECT last_output_box_id::text FROM state.agent_state_pointers")
        assert row.fetchone() == (turn.output_box_id,)

    def test_the_next_turn_is_promoted_and_its_worker_notified(
        self, ask: Asked, desk: Desk, heard: Heard
    ) -> None:
        ask()
        second = ask()
        task = desk.enter()
        heard.wakeups.clear()
        ended = end_turn(desk.runtime, task.fence, "success")
        assert ended.promoted_turn_id == second.agent_turn_id
        assert desk.standing() == ("dispatched", 2)
        assert [wakeup.agent_turn_id for wakeup in heard.wakeups] == [second.agent_turn_id]

    def test_an_ended_turn_leaves_no_open_rows_or_calls(self, ask: Asked, desk: Desk) -> None:
        turn = ask().agent_turn_id or ""
        desk.waiting("a", "b")
        desk.report(turn, "a")
        end_turn(desk.runtime, desk.head().fence, "timeout")
        assert desk.runtime.inbox.open_rows("clerk") == []
        assert desk.waits(turn) == {"a": "dropped", "b": "dropped"}

    @pytest.mark.parametrize(("status", "step"), [("success", "completed"), ("failed", "failed")])
    def test_open_steps_are_closed_at_the_end_of_their_turn(
        self, status: EndStatus, step: str, ask: Asked, desk: Desk
    ) -> None:
        turn = ask().agent_turn_id or ""
        end_turn(desk.runtime, desk.enter().fence, status, message="x")
        [only] = desk.runtime.turns.steps(turn)
        assert (only.status, only.ended_at is not None) == (step, True)

    def test_a_stop_increments_the_epoch_and_an_end_does_not(self, ask: Asked, desk: Desk) -> None:
        ask()
        end_turn(desk.runtime, desk.enter().fence, "success")
        assert desk.standing() == ("idle", 1)
        ask()
        end_turn(desk.runtime, desk.enter().fence, "canceled", move="stop")
        assert desk.standing() == ("idle", 3)


class TestOnce:
    def test_an_end_at_an_outdated_epoch_writes_nothing(
        self, ask: Asked, desk: Desk, row_counts: Callable[[], dict[str, int]]
    ) -> None:
        turn = ask().agent_turn_id or ""
        task = desk.enter()
        end_turn(desk.runtime, task.fence, "success")
        before = row_counts()
        with pytest.raises(StaleEpoch, match=r"it ended \(success\)"):
            end_turn(desk.runtime, task.fence, "failed")
        assert (desk.end_of(turn), row_counts()) == ("success", before)

    def test_only_one_of_two_concurrent_ends_succeeds(
        self, ask: Asked, desk: Desk, second: Desk, at_once: AtOnce
    ) -> None:
        turn = ask().agent_turn_id or ""
        task = desk.enter()
        with desk.runtime.transaction():
            end_turn(desk.runtime, task.fence, "success")
            other = at_once(lambda: stop(second.runtime, turn, actor="ann", reason=None))
        with pytest.raises(Exception, match=f"turn {turn} has ended: success"):
            other.result()
        assert (desk.end_of(turn), desk.output(turn)) == ("success", ["task.deliverable"])

    def test_an_ended_turn_that_another_program_reruns_frees_its_agent(
        self, ask: Asked, desk: Desk, runtime: Runtime
    ) -> None:
        turn = ask().agent_turn_id or ""
        ack(runtime, desk.enter().row.inbox_id, owner="w1")
        following = ask().agent_turn_id
        with unwatched(runtime.database.connection) as connection:
            connection.execute(
                "UPDATE state.agent_state_head AS h SET status = 'running', active_agent_turn_id = %s,"
                " turn_epoch = 5 WHERE agent_id = 'clerk'",
                [turn],
            )
            connection.execute("UPDATE state.agent_inbox SET status = 'queued' WHERE status = 'pending'")
        again = end_turn(runtime, desk.head().fence, "failed", message="x")
        assert (again.created, again.end_status) == (False, "success")
        assert again.promoted_turn_id == following
        assert (desk.end_of(turn), desk.output(turn)) == ("success", ["task.deliverable"])


class TestOnTablesOfAnotherProgram(OnTheirTables):
    def test_a_turn_with_an_output_box_of_another_project_can_end(
        self, desk: Desk, runtime: Runtime, deployment: Deployment
    ) -> None:
        turn = deployment.dispatch("clerk", deployment.context("Refund order 118"))
        task = desk.take()
        theirs = Runtime(runtime.database, "q").boxes.create([]).box_id
        runtime.database.connection.execute("UPDATE state.agent_state_head SET output_box_id = %s", [theirs])
        ended = end_turn(runtime, task.fence, "failed", message="x")
        assert runtime.cards.get(ended.deliverable_card_id or "").type == "task.deliverable"
        assert desk.end_of(turn.agent_turn_id) == "failed"
