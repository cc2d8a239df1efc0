"""Reports: a result comes to the call that waits for it once, whenever it comes; the end of a turn to its parent."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from cardbox_cli.errors import Conflict, NotFound
from cardbox_cli.execution.dispatch_requests import Parent
from cardbox_cli.execution.queue.claims import ack, begin, claim, fail
from cardbox_cli.execution.queue.messages import TOOL_RESULT
from cardbox_cli.execution.recovery.fixes import requeue, stop
from cardbox_cli.execution.recovery.reaping import reap, report_lost
from cardbox_cli.execution.recovery.retrying import retry
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.cards import draft_card
from cardbox_cli.model.content import ToolResultContent
from cardbox_cli.model.execution.turns import PENDING, new_id
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.execution.inbox_store import NewRow
from cardbox_cli.store.in_use import ForcedBy
from tests.execution.desk import Desk, unwatched
from tests.execution.fixtures import Asked, Heard
from tests.execution.their_tables import OnTheirTables
from tests.foreign.writer import Deployment

AtOnce = Callable[[Callable[[], Any]], Future[Any]]
Counts = Callable[[], dict[str, int]]

pytestmark = pytest.mark.usefixtures("watched")


@pytest.fixture
def turn(ask: Asked, desk: Desk) -> str:
    """A turn that waits for the calls `a` and `b`."""
    turn_id = ask().agent_turn_id or ""
    desk.waiting("a", "b")
    return turn_id


class TestReporting:
    def test_a_report_writes_a_row_a_card_and_an_edge(
        self, turn: str, desk: Desk, heard: Heard, runtime: Runtime
    ) -> None:
        heard.wakeups.clear()
        reported = desk.report(turn, "a", {"found": 1})
        row, card = desk.row(reported.inbox_id or ""), runtime.cards.get(reported.tool_result_card_id)
        assert (row.message_type, row.status, row.enqueue_mode, row.correlation_id) == (
            *("tool_result", "pending", None),
            "a",
        )
        assert row.payload == {
            "after_execution": "suspend",
            "status": "success",
            "tool_result_card_id": card.card_id,
        }
        assert row.context_headers["CG-Tool-Call-Id"] == "a"
        assert (card.type, card.tool_call_id, card.metadata["function_name"]) == ("tool.result", "a", "look")
        edges = [(edge.primitive, edge.edge_phase, edge.correlation_id) for edge in runtime.turns.edges(turn)]
        assert ("report", "response", "a") in edges
        assert desk.waits(turn) == {"a": "received", "b": "waiting"}
        assert [wakeup.reason for wakeup in heard.wakeups] == ["report"]

    def test_a_repeated_report_changes_nothing(self, turn: str, desk: Desk, row_counts: Counts) -> None:
        first = desk.report(turn, "a")
        before = row_counts()
        again = desk.report(turn, "a")
        assert (again.created, again.tool_result_card_id) == (False, first.tool_result_card_id)
        assert row_counts() == before
        desk.take()
        assert desk.report(turn, "a").created is False

    def test_a_different_result_for_the_same_call_is_refused(
        self, turn: str, desk: Desk, row_counts: Counts
    ) -> None:
        card_id = desk.report(turn, "a").tool_result_card_id
        before = row_counts()
        with pytest.raises(Conflict) as failure:
            desk.report(turn, "a", "something else")
        assert failure.value.message == (
            f"the call 'a' of turn {turn} already has a different result: card {card_id}"
        )
        assert row_counts() == before

    def test_a_result_after_its_timeout_is_refused(self, turn: str, desk: Desk) -> None:
        desk.later(301)
        assert reap(desk.runtime).timed_out == ["a", "b"]
        with pytest.raises(Conflict, match=r"the call 'a' of turn \w+ already has a different result"):
            desk.report(turn, "a")

    def test_a_result_after_the_end_of_the_turn_is_refused(
        self, turn: str, desk: Desk, row_counts: Counts
    ) -> None:
        stop(desk.runtime, turn, actor="ann", reason=None)
        before = row_counts()
        with pytest.raises(Conflict, match="no longer waits for the call 'a'"):
            desk.report(turn, "a")
        assert row_counts() == before

    def test_a_result_of_an_unknown_call_is_refused(self, turn: str, desk: Desk) -> None:
        with pytest.raises(NotFound) as failure:
            desk.report(turn, "c")
        assert failure.value.message == f"turn {turn} does not wait for a call 'c'"
        assert failure.value.hint == "the turn waits for a, b"

    def test_the_second_of_two_concurrent_reports_is_a_replay(
        self, turn: str, desk: Desk, second: Desk, at_once: AtOnce
    ) -> None:
        with desk.runtime.transaction():
            desk.report(turn, "a")
            waiting = at_once(lambda: second.report(turn, "a"))
        assert waiting.result().created is False

    def test_a_report_to_a_turn_that_lost_its_row_is_refused(
        self, turn: str, desk: Desk, database: Database
    ) -> None:
        database.connection.execute("DELETE FROM state.agent_inbox")
        with pytest.raises(Conflict, match="has lost its inbox row"):
            desk.report(turn, "a")
        assert desk.waits(turn) == {"a": "waiting", "b": "waiting"}


class TestApplying:
    def test_the_last_result_resumes_the_turn(self, turn: str, desk: Desk) -> None:
        desk.report(turn, "b"), desk.report(turn, "a")
        first = desk.take()
        assert (first.kind, first.outcome) == ("done", "waiting: 1 more result to come")
        assert (desk.standing(), desk.head().waiting_tool_count) == (("suspended", 1), 1)
        last = desk.take()
        assert (last.kind, last.outcome, last.fence.turn_epoch) == ("run", "resumed its turn", 2)
        assert (desk.standing(), desk.head().waiting_tool_count) == (("running", 2), 0)
        assert last.row.turn_epoch == 2
        assert desk.waits(turn) == {"a": "applied", "b": "applied"}
        assert desk.output(turn) == ["tool.result", "tool.result"]

    def test_two_workers_can_apply_two_results(self, turn: str, desk: Desk, second: Desk) -> None:
        desk.report(turn, "a"), desk.report(turn, "b")
        [one] = claim(desk.runtime, target=None, owner="w1")
        [other] = claim(second.runtime, target=None, owner="w2")
        assert begin(second.runtime, other.row, owner="w2").kind == "done"
        assert begin(desk.runtime, one.row, owner="w1").kind == "run"
        assert desk.output(turn) == ["tool.result"] * 2

    def test_the_second_of_two_concurrent_results_resumes_the_turn(
        self, turn: str, desk: Desk, second: Desk, at_once: AtOnce
    ) -> None:
        """Whoever waits for the head sees what was applied meanwhile: his result is the last one."""
        desk.report(turn, "a"), desk.report(turn, "b")
        [one] = claim(desk.runtime, target=None, owner="w1")
        [other] = claim(second.runtime, target=None, owner="w2")
        with desk.runtime.transaction():
            assert begin(desk.runtime, one.row, owner="w1").outcome == "waiting: 1 more result to come"
            waiting = at_once(lambda: begin(second.runtime, other.row, owner="w2"))
        assert waiting.result().outcome == "resumed its turn"
        assert (desk.standing(), desk.head().waiting_tool_count) == (("running", 2), 0)
        assert desk.output(turn) == ["tool.result"] * 2

    def test_a_result_sees_calls_that_were_added_while_it_waited(
        self, turn: str, desk: Desk, second: Desk, at_once: AtOnce
    ) -> None:
        """Calls that came while the head was waited for are seen: the report of one is not stale."""
        desk.report(turn, "b"), desk.report(turn, "a")
        desk.take()
        [claimed] = claim(second.runtime, target=None, owner="w2")
        fence = desk.head().fence
        with desk.runtime.transaction():
            desk.runtime.heads.hold(fence)
            desk.runtime.database.connection.execute(
                "UPDATE state.turn_waiting_tools SET tool_call_id = 'aa' WHERE tool_call_id = 'a'"
            )
            beginning = at_once(lambda: begin(second.runtime, claimed.row, owner="w2"))
            desk.runtime.database.connection.execute(
                "INSERT INTO state.turn_waiting_tools (project_id, agent_id, agent_turn_id, turn_epoch, tool_call_id,"
                " step_id, tool_name, wait_status) SELECT project_id, agent_id, agent_turn_id, turn_epoch, 'a', step_id,"
                " tool_name, 'received' FROM state.turn_waiting_tools WHERE tool_call_id = 'aa'"
            )
            desk.runtime.database.connection.execute("UPDATE state.agent_state_head SET updated_at = now()")
        assert beginning.result().outcome == "waiting: 1 more result to come"

    def test_a_result_is_added_to_the_box_once(self, turn: str, desk: Desk, runtime: Runtime) -> None:
        """Other programs append results themselves."""
        card_id = desk.report(turn, "a").tool_result_card_id
        head = desk.head()
        with runtime.transaction():
            runtime.boxes.append(head.output_box_id or "", [card_id], fence=head.fence)
        desk.take()
        assert desk.output(turn) == ["tool.result"]

    @pytest.mark.parametrize(
        ("results", "end_status"),
        [
            ([("success", "terminate"), ("success", "suspend")], "success"),
            ([("success", "suspend"), ("failed", "terminate")], "failed"),
            ([("success", "terminate"), ("partial", "suspend")], "partial"),
            ([("odd", "terminate"), ("success", "suspend")], "failed"),
        ],
    )
    def test_a_result_can_end_the_turn(
        self, results: list[tuple[str, str]], end_status: str, turn: str, desk: Desk
    ) -> None:
        for call, (status, after) in zip("ab", results, strict=True):
            desk.report(turn, call, status=status, after_execution=after)
            task = desk.take()
        assert (task.kind, task.outcome) == ("done", f"ended its turn: {end_status}")
        assert (desk.end_of(turn), desk.standing()) == (end_status, ("idle", 1))
        assert desk.output(turn) == ["tool.result", "tool.result", "task.deliverable"]
        assert desk.runtime.inbox.open_rows("clerk") == []

    def test_a_resumed_turn_can_wait_again(self, turn: str, desk: Desk) -> None:
        desk.report(turn, "a"), desk.report(turn, "b")
        desk.take()
        desk.suspend(desk.take(), "c")
        desk.report(turn, "c")
        assert desk.take().fence.turn_epoch == 3
        assert desk.waits(turn) == {"a": "applied", "b": "applied", "c": "applied"}

    def test_a_report_is_stale_after_the_end_of_its_turn(self, turn: str, desk: Desk) -> None:
        """Its row is done with the turn; one that came a moment later is consumed when it is claimed."""
        first = desk.report(turn, "a").inbox_id or ""
        stop(desk.runtime, turn, actor="ann", reason=None)
        assert desk.row(first).status == "consumed"
        late = put_report(desk.runtime, turn, "b", "x", epoch=1)
        assert desk.take().outcome == "stale: its turn is no longer active"
        assert desk.row(late).status == "consumed"


def put_report(runtime: Runtime, turn_id: str, call: str, card_id: str, *, epoch: int) -> str:
    """The report of another program: a row, and nothing noted beside the call."""
    row = NewRow(
        inbox_id=new_id("inbox"),
        agent_id="clerk",
        message_type=TOOL_RESULT.name,
        status=PENDING,
        payload={"after_execution": "suspend", "status": "success", "tool_result_card_id": card_id},
        context_headers={},
        correlation_id=call,
        agent_turn_id=turn_id,
        turn_epoch=epoch,
    )
    assert runtime.inbox.insert(row) is not None
    return row.inbox_id


def put_card(runtime: Runtime, turn: str, call: str) -> str:
    """The result card of another program."""
    content = ToolResultContent(status="success", after_execution="suspend", result=1)
    named = {"agent_turn_id": turn}
    card = draft_card("tool.result", content, author_id="tool.look", tool_call_id=call, metadata=named)
    runtime.cards.add(card)
    return card.card_id


class TestTooEarly:
    """Another program's result comes before its turn waits, or its card cannot be seen yet."""

    def test_an_early_report_is_deferred_without_counting_an_attempt(
        self, ask: Asked, desk: Desk, runtime: Runtime
    ) -> None:
        turn = ask().agent_turn_id or ""
        task = desk.enter()
        report = put_report(runtime, turn, "a", put_card(runtime, turn, "a"), epoch=1)
        for _ in range(7):
            assert Desk(runtime, "w2").take().outcome == "deferred: its turn is running"
            assert (desk.row(report).status, desk.row(report).retry_count) == ("deferred", 0)
            desk.later(2)
        assert desk.standing() == ("running", 1)
        desk.suspend(task, "a")
        assert desk.take().fence.turn_epoch == 2
        assert desk.output(turn) == ["tool.result"]

    def test_an_early_report_is_deferred_at_a_later_epoch_too(
        self, turn: str, desk: Desk, runtime: Runtime
    ) -> None:
        desk.report(turn, "a"), desk.report(turn, "b")
        desk.take()
        desk.take()
        for epoch in (1, 2):
            put_report(runtime, turn, f"early {epoch}", "x", epoch=epoch)
            assert Desk(runtime, "w2").take().outcome == "deferred: its turn is running"
        assert desk.standing() == ("running", 2)

    def test_a_missing_card_fails_the_report_and_after_the_deadline_the_turn(
        self, ask: Asked, desk: Desk, runtime: Runtime
    ) -> None:
        turn = ask().agent_turn_id or ""
        desk.waiting("a")
        reported = desk.report(turn, "a")
        runtime.cards.delete([reported.tool_result_card_id], force=ForcedBy(actor="me"))
        for _ in range(5):
            said = desk.take().outcome
            desk.later(2)
        assert (
            said
            == f"dead: gave up: its card {reported.tool_result_card_id!r} is not visible, or is not a result of the call"
        )
        assert desk.standing() == ("suspended", 1)
        desk.later(300)
        assert reap(runtime).failed == [turn]
        record = runtime.turns.record(turn)
        assert record is not None
        assert (record.end_status, record.error_code) == ("failed", "result_lost")

    def test_a_dead_report_can_be_retried_before_the_deadline(
        self, ask: Asked, desk: Desk, runtime: Runtime, database: Database
    ) -> None:
        turn = ask().agent_turn_id or ""
        desk.waiting("a")
        reported = desk.report(turn, "a")
        runtime.cards.delete([reported.tool_result_card_id], force=ForcedBy(actor="me"))
        for _ in range(5):
            desk.take()
            desk.later(2)
        database.connection.execute("UPDATE cards SET deleted_at = NULL")
        assert retry(runtime, reported.inbox_id or "", source_agent_id="sys.ann").row.retry_count == 0
        assert desk.take().kind == "run"

    @pytest.mark.parametrize("tries", [1, 5], ids=["deferred", "dead"])
    @pytest.mark.parametrize("card", [None, "task.instruction"], ids=["no card", "another card"])
    def test_a_valid_result_replaces_an_invalid_one(
        self, ask: Asked, desk: Desk, runtime: Runtime, card: str | None, tries: int
    ) -> None:
        turn = ask().agent_turn_id or ""
        if card is not None:
            runtime.cards.add(draft_card(card, "bad", card_id="wrong"))
        report = put_report(runtime, turn, "a", "wrong", epoch=1)
        desk.waiting("a")
        for _ in range(tries):
            assert "'wrong' is not visible, or is not a result of the call" in desk.take().outcome
            desk.later(0 if tries == 1 else 2)
        reported = desk.report(turn, "a")
        assert (reported.inbox_id, desk.waits(turn)) == (report, {"a": "received"})
        assert desk.row(report).payload["tool_result_card_id"] == reported.tool_result_card_id
        assert desk.take().kind == "run"
        assert desk.output(turn) == ["tool.result"]


class TestOfRequeuedTurns:
    def test_a_requeued_turn_keeps_results_that_have_arrived(self, turn: str, desk: Desk) -> None:
        desk.report(turn, "a")
        requeue(desk.runtime, turn, expect_epoch=1, actor="ann", reason="again")
        assert desk.output(turn) == ["tool.result"]
        assert desk.waits(turn) == {"a": "dropped", "b": "dropped"}
        task = desk.enter()
        desk.suspend(task, "b")
        desk.report(turn, "b")
        assert desk.take().kind == "run"
        assert desk.output(turn) == ["tool.result", "tool.result"]

    def test_a_report_from_before_the_requeue_is_stale(self, turn: str, desk: Desk, runtime: Runtime) -> None:
        requeue(runtime, turn, expect_epoch=1, actor="ann", reason="again")
        desk.enter()
        put_report(runtime, turn, "a", put_card(runtime, turn, "a"), epoch=1)
        assert Desk(runtime, "w2").take().outcome == "stale: its result was already dropped"


@pytest.fixture
def parent(ask: Asked, desk: Desk) -> Any:
    """A running turn of `clerk`, about to wait for the call `help`."""
    ask()
    return desk.enter()


@pytest.fixture
def child(parent: Any, ask: Asked) -> str:
    """A turn of `scribe` whose end the call `help` of the parent waits for."""
    asked = ask("scribe", parent=Parent(agent_turn_id=parent.row.turn_id, tool_call_id="help"))
    return asked.agent_turn_id or ""


class TestParents:
    """The end of a turn comes to the call that waits for it, whenever it ends."""

    def finish(self, desk: Desk) -> None:
        ack(desk.runtime, Desk(desk.runtime, "w3").take().row.inbox_id, owner="w3")

    def said_to(self, desk: Desk, parent: Any) -> dict[str, Any]:
        """The result that the parent was resumed with."""
        task = desk.take()
        assert (task.kind, task.row.turn_id) == ("run", parent.row.turn_id)
        [card] = desk.runtime.boxes.view(desk.head().output_box_id or "").cards
        content: Any = card.content
        assert card.tool_call_id == "help"
        return {"status": content.status, "result": content.result, "error": content.error}

    def test_a_child_that_ends_after_its_parent_suspends_is_reported(
        self, parent: Any, child: str, desk: Desk
    ) -> None:
        desk.suspend(parent, "help")
        self.finish(desk)
        said = self.said_to(desk, parent)
        record = desk.runtime.turns.record(child)
        assert record is not None
        assert (said["status"], said["error"]) == ("success", None)
        assert said["result"]["agent_turn_id"] == child
        assert said["result"]["deliverable_card_id"] == record.deliverable_card_id

    def test_a_child_that_ends_before_its_parent_suspends_is_reported(
        self, parent: Any, child: str, desk: Desk
    ) -> None:
        self.finish(desk)
        assert desk.audited(child) == []
        with desk.runtime.transaction():
            desk.suspend(parent, "help")
            assert report_lost(desk.runtime, parent.row.turn_id) == ["help"]
        assert self.said_to(desk, parent)["status"] == "success"

    def test_reaping_reports_a_child_that_ended_before_its_parent_suspended(
        self, parent: Any, child: str, desk: Desk
    ) -> None:
        self.finish(desk)
        desk.suspend(parent, "help")
        assert reap(desk.runtime).reported == ["help"]
        assert self.said_to(desk, parent)["status"] == "success"
        assert reap(desk.runtime).reported == []

    def test_reaping_reports_a_child_that_ended_while_its_parent_suspended(
        self, parent: Any, child: str, desk: Desk, second: Desk
    ) -> None:
        """Neither waits for the other, and reaping finds what neither saw."""
        task = Desk(desk.runtime, "w3").take()
        with desk.runtime.transaction():
            desk.suspend(parent, "help")
            assert report_lost(desk.runtime, parent.row.turn_id) == []
            ack(second.runtime, task.row.inbox_id, owner="w3")
        assert reap(desk.runtime).reported == ["help"]
        assert self.said_to(desk, parent)["status"] == "success"

    def test_a_child_that_ends_after_its_parent_is_not_reported(
        self, parent: Any, child: str, desk: Desk
    ) -> None:
        desk.suspend(parent, "help")
        stop(desk.runtime, parent.row.turn_id, actor="ann", reason=None)
        self.finish(desk)
        assert (desk.end_of(child), desk.audited(child)) == ("success", ["report-dropped"])

    def test_a_child_that_ends_after_its_call_timed_out_is_not_reported(
        self, parent: Any, child: str, desk: Desk
    ) -> None:
        desk.suspend(parent, "help")
        desk.later(301)
        reap(desk.runtime)
        asked = Desk(desk.runtime, "w3").take()
        assert desk.take().row.message_type == "timeout"
        ack(desk.runtime, asked.row.inbox_id, owner="w3")
        assert (desk.end_of(child), desk.audited(child)) == ("success", ["report-dropped"])

    def test_the_parent_receives_the_error_of_a_failed_child(
        self, parent: Any, child: str, desk: Desk
    ) -> None:
        desk.suspend(parent, "help")
        fail(desk.runtime, Desk(desk.runtime, "w3").take().row.inbox_id, owner="w3", error="no such file")
        said = self.said_to(desk, parent)
        assert (said["status"], said["error"]) == (
            "failed",
            {"code": "turn_failed", "message": "no such file"},
        )

    def test_the_parent_receives_the_end_of_a_child_that_never_began(
        self, parent: Any, ask: Asked, desk: Desk
    ) -> None:
        ask("scribe")
        queued = ask("scribe", parent=Parent(agent_turn_id=parent.row.turn_id, tool_call_id="help"))
        desk.suspend(parent, "help")
        stop(desk.runtime, queued.agent_turn_id or "", actor="ann", reason="not needed")
        Desk(desk.runtime, "w3").take()
        said = self.said_to(desk, parent)
        assert (said["status"], said["error"]["message"]) == ("canceled", "not needed")

    def test_the_parent_waits_for_the_retry_of_a_dead_child(
        self, parent: Any, ask: Asked, desk: Desk
    ) -> None:
        """Another program killed its row, and it was retried: the parent waits for the new turn."""
        ask("scribe")
        dead = ask("scribe", parent=Parent(agent_turn_id=parent.row.turn_id, tool_call_id="help"))
        with unwatched(desk.runtime.database.connection) as connection:
            connection.execute(
                "UPDATE state.agent_inbox SET status = 'error' WHERE inbox_id = %s", [dead.inbox_id]
            )
        again = retry(desk.runtime, dead.inbox_id or "", source_agent_id="sys.ann").dispatched
        assert again is not None
        desk.suspend(parent, "help")
        assert desk.end_of(dead.agent_turn_id or "") == "failed"
        assert reap(desk.runtime).reported == []
        stop(desk.runtime, again.result.agent_turn_id or "", actor="ann", reason="not needed")
        Desk(desk.runtime, "w3").take()
        assert self.said_to(desk, parent)["status"] == "canceled"

    def test_a_child_without_a_record_is_reported_through_its_edge(
        self, parent: Any, child: str, desk: Desk
    ) -> None:
        """Only the edge tells of the call."""
        with unwatched(desk.runtime.database.connection) as connection:
            connection.execute("UPDATE cbx.turns SET report_to = NULL WHERE agent_turn_id = %s", [child])
        self.finish(desk)
        desk.suspend(parent, "help")
        assert reap(desk.runtime).reported == ["help"]
        assert self.said_to(desk, parent)["status"] == "success"

    def test_two_turns_that_report_to_each_other_do_not_deadlock(
        self, parent: Any, child: str, ask: Asked, desk: Desk, second: Desk
    ) -> None:
        """Each end holds its own agent's head, and reports to the agent that the other one holds."""
        desk.suspend(parent, "help")
        with unwatched(desk.runtime.database.connection) as connection:
            connection.execute(
                "UPDATE cbx.turns SET report_to = jsonb_build_object('agent_id', 'scribe', 'agent_turn_id',"
                " %s::text, 'tool_call_id', 'x') WHERE agent_turn_id = %s",
                [child, parent.row.turn_id],
            )
        with desk.runtime.transaction():
            desk.runtime.heads.lock("clerk")
            stop(second.runtime, child, actor="ann", reason="both")
            stop(desk.runtime, parent.row.turn_id, actor="ann", reason="both")
        assert (desk.end_of(child), desk.end_of(parent.row.turn_id)) == ("canceled", "canceled")


class TestOnTablesOfAnotherProgram(OnTheirTables):
    """One tool result a call, and reports that their tools write; cbx's own tables are there too."""

    def test_a_result_of_another_program_resumes_our_turn(
        self, turn: str, desk: Desk, runtime: Runtime
    ) -> None:
        for call in "ab":
            put_report(runtime, turn, call, put_card(runtime, turn, call), epoch=1)
            task = desk.take()
        assert (task.kind, task.fence.turn_epoch) == ("run", 2)

    def test_a_result_with_a_lost_report_counts_at_the_deadline(
        self, turn: str, desk: Desk, runtime: Runtime
    ) -> None:
        """At the deadline it counts, and the other call has timed out."""
        put_card(runtime, turn, "a")
        desk.later(301)
        reaped = reap(runtime)
        assert (reaped.reported, reaped.timed_out) == (["a"], ["b"])
        assert [desk.take().kind for _ in "ab"] == ["done", "run"]

    def test_a_turn_of_another_program_runs_here(
        self, desk: Desk, runtime: Runtime, deployment: Deployment
    ) -> None:
        context = deployment.context("Refund order 118")
        turn = deployment.dispatch("clerk", context)
        task = desk.take()
        record = runtime.turns.record(turn.agent_turn_id)
        assert record is not None
        assert record.output_start == 0
        ack(runtime, task.row.inbox_id, owner="w1")
        assert desk.end_of(turn.agent_turn_id) == "success"
