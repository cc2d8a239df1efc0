"""Turns as they are read: what became of each, all of one, and the words for it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from cardbox_cli.errors import AmbiguousId, NotFound, SchemaMissing, WaitTimeout
from cardbox_cli.execution.dispatch_requests import Parent
from cardbox_cli.execution.queue.claims import ack, fail
from cardbox_cli.execution.queue.reports import report_result
from cardbox_cli.execution.recovery.fixes import reclaim, stop
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.turn_summary import summary, wait_for_end
from cardbox_cli.inspect.turns import build_trees, view_turn
from cardbox_cli.model.content import ToolResultContent
from cardbox_cli.model.execution.turns import TURN_STATUSES, TurnRecord, turn_state
from cardbox_cli.store.views.turn_views import TurnFilter, TurnLeftovers, TurnRow, TurnViews, WrittenCard
from tests.conftest import PROJECT
from tests.execution import by_hand
from tests.execution.fixtures import Asked


@pytest.fixture
def views(runtime: Runtime) -> TurnViews:
    return TurnViews(runtime.database, PROJECT)


def states(views: TurnViews) -> dict[str, str]:
    """The state of every turn; that the filter of each state finds the same."""
    every = {turn.agent_turn_id: turn.status for turn in views.newest()}
    found = {
        turn.agent_turn_id: turn.status
        for status in TURN_STATUSES
        for turn in views.newest(TurnFilter(status=status))
    }
    assert found == every
    return every


class TestStates:
    def test_the_state_of_a_turn_follows_it_from_the_queue_to_its_end(
        self, runtime: Runtime, ask: Asked, views: TurnViews
    ) -> None:
        turn, behind = (ask().agent_turn_id or "" for _ in range(2))
        assert states(views) == {turn: "dispatched", behind: "queued"}
        fence = by_hand.take(runtime).fence
        assert states(views)[turn] == "dispatched"
        step_id = by_hand.enter(runtime, fence)
        assert states(views)[turn] == "running"
        by_hand.suspend(runtime, fence, step_id, {"call-1": "add"})
        assert states(views)[turn] == "suspended"
        result = ToolResultContent(status="success", after_execution="suspend", result=3)
        report_result(runtime, turn, "call-1", result, source_agent_id="tool.add")
        assert states(views)[turn] == "suspended"
        resumed = by_hand.take(runtime)
        assert states(views)[turn] == "running"
        ack(runtime, resumed.row.inbox_id, owner=by_hand.OWNER)
        assert states(views) == {turn: "ended", behind: "dispatched"}

    def test_a_reclaimed_turn_is_dispatched_again(
        self, runtime: Runtime, ask: Asked, views: TurnViews
    ) -> None:
        turn = ask().agent_turn_id or ""
        fence = by_hand.take(runtime).fence
        by_hand.enter(runtime, fence)
        reclaim(runtime, turn, expect_epoch=1, actor="me", reason="it hangs")
        assert states(views) == {turn: "dispatched"}
        assert summary(views.get(turn)).turn_epoch == 2

    @pytest.mark.parametrize("row_status", ["pending", "deferred", "processing"])
    def test_a_turn_is_pending_if_its_agent_has_no_head(
        self, runtime: Runtime, ask: Asked, views: TurnViews, row_status: str
    ) -> None:
        turn = ask().agent_turn_id or ""
        runtime.database.connection.execute("DELETE FROM state.agent_state_head")
        runtime.database.connection.execute("UPDATE state.agent_inbox SET status = %s", [row_status])
        assert states(views) == {turn: "pending"}

    def test_ended_turns_have_a_status_and_a_deliverable(
        self, runtime: Runtime, ask: Asked, views: TurnViews
    ) -> None:
        good, bad, stopped = (ask().agent_turn_id or "" for _ in range(3))
        row = by_hand.take(runtime).row
        fence = row.fence
        by_hand.enter(runtime, fence)
        card = by_hand.write(runtime, fence, "It was the relay.", "task.deliverable")
        ack(runtime, row.inbox_id, owner=by_hand.OWNER)
        fail(runtime, by_hand.take(runtime).row.inbox_id, owner=by_hand.OWNER, error="no model")
        stop(runtime, stopped, actor="me", reason=None)
        ends = {turn.agent_turn_id: summary(turn) for turn in views.newest()}
        assert {turn: ends[turn].end_status for turn in (good, bad, stopped)} == {
            good: "success",
            bad: "failed",
            stopped: "canceled",
        }
        assert ends[good].deliverable_card_id == card
        assert all(end.deliverable_card_id and end.ended_at for end in ends.values())

    def test_the_end_is_derived_without_the_tables_of_cbx(
        self, runtime: Runtime, ask: Asked, views: TurnViews
    ) -> None:
        good, bad = (ask().agent_turn_id or "" for _ in range(2))
        row = by_hand.take(runtime).row
        by_hand.enter(runtime, row.fence)
        card = by_hand.write(runtime, row.fence, "It was the relay.", "task.deliverable")
        ack(runtime, row.inbox_id, owner=by_hand.OWNER)
        fail(runtime, by_hand.take(runtime).row.inbox_id, owner=by_hand.OWNER, error="no model")
        runtime.database.connection.execute("DROP SCHEMA cbx CASCADE")
        runtime.database.clear_table_cache()
        ends = {turn.agent_turn_id: summary(turn) for turn in views.newest()}
        assert (ends[good].end_status, ends[good].deliverable_card_id) == ("success", card)
        assert ends[bad].end_status == "failed"
        seen = view_turn(views.read_all(good))
        assert seen.timeline[-1].event == "ended"
        assert seen.end_status == "success"


def ended(row_status: str, remains: TurnLeftovers | None) -> TurnRow:
    """A turn that another program ran."""
    return TurnRow(
        agent_turn_id="turn_1",
        agent_id="clerk",
        status="ended",
        turn_epoch=1,
        channel_id="public",
        trace_id=None,
        recursion_depth=0,
        parent_agent_id=None,
        parent_agent_turn_id=None,
        profile_box_id=None,
        context_box_id=None,
        output_box_id=None,
        resume_deadline=None,
        row_status=row_status,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        remains=remains,
    )


def left(
    step: str | None = "completed",
    *,
    card: bool = True,
    content: Any = None,
    step_id: str = "step_1",
    **metadata: Any,
) -> TurnLeftovers:
    return TurnLeftovers(
        agent_turn_id="turn_1",
        step_id=step_id,
        step_status=step,
        step_ended_at=None,
        card_id="card-1" if card else None,
        card_metadata=metadata,
        card_content=content,
        card_created_at=None,
    )


FALLBACK = {"data": {"kind": "fallback_deliverable", "status": "timeout"}}


def partial(status: Any, **diagnostics: Any) -> dict[str, Any]:
    """A fallback deliverable of another system, whose diagnostics say more than its status."""
    return {"data": {"kind": "fallback_deliverable", "status": status, "diagnostics": diagnostics}}


REAPED, UNCLAIMED = "timeout_reaped_by_watchdog", "dispatch_timeout"


@pytest.mark.parametrize(
    ("row_status", "remains", "end"),
    [
        ("consumed", left(), "success"),
        ("consumed", left(partial=True), "partial"),
        ("consumed", left("failed"), "failed"),
        ("consumed", left("failed", terminal_reason="timeout_reaped_by_watchdog"), "failed"),
        ("pending", left("failed", terminal_reason="dispatch_timeout"), "timeout"),
        ("consumed", left(content=FALLBACK), "timeout"),
        ("consumed", left(content={"data": {"kind": "fallback_deliverable", "status": "odd"}}), "success"),
        ("consumed", left(content={"data": []}), "success"),
        ("consumed", left("failed", content=partial("partial", terminal_status="failed")), "failed"),
        ("consumed", left(content=partial("success", terminal_status="success")), "success"),
        ("consumed", left(content=partial("partial", terminal_status="odd")), "partial"),
        ("consumed", left(content={"data": {**FALLBACK["data"], "diagnostics": 3}}), "timeout"),
        ("processing", left("failed", content=partial("partial"), stop_reason=REAPED), "partial"),
        (
            "processing",
            left("failed", content=partial("partial", terminal_status="failed"), stop_reason=REAPED),
            "failed",
        ),
        ("processing", left("failed", stop_reason=REAPED), "failed"),
        (
            "pending",
            left("failed", content=partial("partial", terminal_status="failed"), stop_reason=UNCLAIMED),
            "timeout",
        ),
        ("consumed", left("failed", content=partial("partial"), step_id="step_stop_1"), "canceled"),
        (
            "consumed",
            left("failed", content=partial("partial", terminal_status="failed"), step_id="step_stop_1"),
            "failed",
        ),
        ("skipped", left(), "success"),
        ("consumed", left("failed", stop_reason="by hand"), "canceled"),
        ("consumed", left("completed", step_id="step_stop_1"), "canceled"),
        ("consumed", left(None, card=False), "failed"),
        ("consumed", None, "failed"),
        ("skipped", left(None, card=False), "canceled"),
        ("error", left(), "failed"),
    ],
)
def test_an_unrecorded_end_is_derived_from_the_remaining_rows(
    row_status: str, remains: TurnLeftovers | None, end: str
) -> None:
    assert summary(ended(row_status, remains)).end_status == end


RECORD = TurnRecord(
    agent_turn_id="turn_1",
    agent_id="clerk",
    output_start=0,
    report_to=None,
    end_status=None,
    end_epoch=None,
    deliverable_card_id=None,
    error_code=None,
    error=None,
    created_at=datetime(2026, 1, 1, tzinfo=UTC),
    ended_at=None,
)
OVER = replace(RECORD, end_status="success")


@pytest.mark.parametrize(
    ("status", "row_status", "record", "carried", "finished", "found"),
    [
        # What is open says so by itself.
        ("running", "processing", None, True, False, "running"),
        ("queued", "queued", RECORD, False, True, "queued"),
        # A recorded end holds, unless the turn runs again.
        ("ended", "consumed", OVER, False, False, "ended"),
        ("queued", "queued", OVER, False, False, "ended"),
        ("running", "consumed", OVER, False, False, "ended"),
        ("running", "processing", OVER, True, False, "running"),
        # A row that is done with is no end.
        ("ended", "consumed", None, False, True, "ended"),
        ("ended", "consumed", RECORD, False, True, "ended"),
        ("ended", "consumed", None, False, False, "pending"),
        ("ended", "consumed", RECORD, False, False, "pending"),
        ("ended", None, None, False, True, "ended"),
        ("ended", None, None, False, False, "pending"),
        ("ended", "odd", None, False, False, "pending"),
        ("ended", "skipped", None, False, False, "ended"),
        # One that is dead is, where nobody else would end its turn.
        ("ended", "error", None, False, False, "ended"),
        ("ended", "error", RECORD, False, False, "pending"),
        # Another system has yet to close the row of a turn that it has ended.
        ("ended", "processing", RECORD, False, True, "ended"),
        ("ended", "pending", None, False, True, "ended"),
        ("ended", "pending", RECORD, False, True, "pending"),
    ],
)
def test_the_rows_of_a_turn_determine_its_state(
    status: str, row_status: str | None, record: TurnRecord | None, carried: bool, finished: bool, found: str
) -> None:
    assert turn_state(status, row_status, record=record, carried=carried, finished=finished) == found


class TestLists:
    def test_turns_are_filtered_and_paged(self, runtime: Runtime, ask: Asked, views: TurnViews) -> None:
        made = [ask(agent_id).agent_turn_id for agent_id in ("clerk", "scribe", "clerk", "clerk")]
        assert [turn.agent_turn_id for turn in views.newest()] == made[::-1]
        of_clerk = TurnFilter(agent_id="clerk")
        first = list(views.newest(of_clerk, limit=1))
        assert [turn.agent_turn_id for turn in first] == [made[3]]
        assert views.further(of_clerk, first[0]).count == 2
        assert views.further(TurnFilter(status="queued"), first[0]).count == 1
        trace = views.get(made[0] or "").trace_id
        assert [t.agent_turn_id for t in views.newest(TurnFilter(trace_id=trace))] == [made[0]]
        assert not list(views.newest(TurnFilter(since=timedelta(0))))
        assert len(list(views.newest(TurnFilter(since=timedelta(hours=1))))) == 4
        assert not list(views.newest(TurnFilter(until=timedelta(hours=1))))

    def test_turns_of_another_project_are_not_found(self, runtime: Runtime, ask: Asked) -> None:
        turn = ask().agent_turn_id or ""
        theirs = TurnViews(runtime.database, "other")
        assert list(theirs.newest()) == []
        with pytest.raises(NotFound):
            theirs.resolve(turn)
        with pytest.raises(NotFound):
            theirs.read_all(turn)


class TestIds:
    def test_a_turn_is_found_by_the_start_or_the_end_of_its_id(self, ask: Asked, views: TurnViews) -> None:
        turn = ask().agent_turn_id or ""
        for typed in (turn, turn[-8:], turn[:25], turn.removeprefix("turn_")[:20]):
            assert views.resolve(typed) == turn
        other = ask("scribe").agent_turn_id or ""
        with pytest.raises(AmbiguousId) as raised:
            views.resolve("turn_")
        assert raised.value.details == {"candidates": sorted([turn, other])}
        with pytest.raises(NotFound, match="no turn 'nope' in project 'p'") as none:
            views.resolve("nope")
        assert none.value.hint == "`cbx turn list` shows the newest"
        with pytest.raises(NotFound):
            views.resolve("%%%%")

    def test_the_error_names_a_missing_table(self, runtime: Runtime, views: TurnViews) -> None:
        runtime.database.connection.execute("DROP TABLE state.agent_steps")
        runtime.database.clear_table_cache()
        with pytest.raises(SchemaMissing, match=r"has no table state\.agent_steps"):
            views.newest()


class TestStory:
    def test_the_timeline_shows_every_event_of_a_turn_with_a_tool_call(
        self, runtime: Runtime, ask: Asked, views: TurnViews
    ) -> None:
        turn = ask().agent_turn_id or ""
        fence = by_hand.take(runtime).fence
        step_id = by_hand.enter(runtime, fence)
        by_hand.write(runtime, fence, "I will add.")
        assert [
            event.text for event in view_turn(views.read_all(turn)).timeline if event.event == "claimed"
        ] == ["claimed by w"]
        by_hand.suspend(runtime, fence, step_id, {"call-1": "add"})
        result = ToolResultContent(status="success", after_execution="suspend", result=3)
        report_result(runtime, turn, "call-1", result, source_agent_id="tool.add")
        resumed = by_hand.take(runtime)
        by_hand.begin_step(runtime, resumed.fence)
        card = by_hand.write(runtime, resumed.fence, "3", "task.deliverable")
        ack(runtime, resumed.row.inbox_id, owner=by_hand.OWNER)
        stored = views.read_all(turn)
        seen = view_turn(stored)
        assert (seen.status, seen.end_status, seen.turn_epoch) == ("ended", "success", 2)
        assert seen.deliverable_card_id == card
        assert [row.message_type for row in seen.inbox] == ["turn", "tool_result"]
        assert [step.status for step in seen.steps] == ["suspended", "completed"]
        assert [tool.wait_status for tool in seen.waiting_tools] == ["applied"]
        assert [(event.event, event.text) for event in seen.timeline] == [
            ("enqueued", "given to agent 'clerk' by 'sys.operator'"),
            ("step", "step 1 began"),
            ("card", "said: I will add."),
            ("waiting", "waits for call call-1 of tool 'add'"),
            ("answered", "tool 'add' answered call call-1: success: 3"),
            ("reported", "a result of call call-1 was reported"),
            ("applied", "the result of call call-1 of tool 'add' was applied"),
            ("step", "step 2 began"),
            ("deliverable", "wrote the deliverable: 3"),
            ("step-end", "step 2 completed"),
            ("ended", "ended: success"),
        ]

    def test_the_timeline_shows_a_call_once(self, ask: Asked, views: TurnViews) -> None:
        stored = views.read_all(ask().agent_turn_id or "")
        thought = WrittenCard(
            card_id="1",
            type="agent.thought",
            tool_call_id=None,
            tool_name=None,
            status=None,
            text="",
            calls=[("call-1", "add"), ("call-2", None)],
            created_at=stored.turn.created_at,
        )
        call = replace(
            thought, card_id="2", type="tool.call", tool_call_id="call-1", tool_name="add", calls=None
        )
        other = replace(call, card_id="3", tool_call_id="call-2")

        def told(*cards: WrittenCard) -> list[str]:
            events = view_turn(replace(stored, cards=list(cards))).timeline
            return [event.text for event in events if event.event in ("card", "called")]

        assert told(thought) == ["asked for add, a tool without a name"]
        assert told(thought, call) == ["asked for a tool without a name", "called tool 'add' (call call-1)"]
        assert told(thought, call, other)[0] == "called tool 'add' (call call-1)"
        assert told(replace(thought, calls=None)) == ["wrote an empty message"]

    def test_the_timeline_shows_manual_fixes(self, runtime: Runtime, ask: Asked, views: TurnViews) -> None:
        turn = ask().agent_turn_id or ""
        reclaim(runtime, turn, expect_epoch=1, actor="me", reason="it hangs")
        stop(runtime, turn, actor="me", reason="enough")
        told = [(event.event, event.text) for event in view_turn(views.read_all(turn)).timeline]
        assert ("audit", "reclaim by me: it hangs (epoch 1 → 2)") in told
        assert told[-1] == ("ended", "ended: canceled: enough")

    def test_a_turn_names_its_parent_and_children(
        self, runtime: Runtime, ask: Asked, views: TurnViews
    ) -> None:
        top = ask().agent_turn_id or ""
        below = ask("scribe", parent=Parent(agent_turn_id=top), source_agent_id="clerk").agent_turn_id or ""
        other = ask("scribe").agent_turn_id or ""
        assert [child.agent_turn_id for child in view_turn(views.read_all(top)).children] == [below]
        assert views.get(below).parent_agent_turn_id == top
        told = [event.text for event in view_turn(views.read_all(top)).timeline]
        assert f"gave turn {below[-8:]} of agent 'scribe' its task" in told
        [branch] = build_trees([summary(turn) for turn in views.list_by_trace(views.get(top).trace_id or "")])
        assert (branch.agent_turn_id, [child.agent_turn_id for child in branch.children]) == (top, [below])
        assert build_trees([summary(views.get(other)), summary(views.get(below))])[0].children == []

    def test_a_turn_can_be_viewed_without_its_inbox_row(
        self, runtime: Runtime, ask: Asked, views: TurnViews
    ) -> None:
        turn = ask().agent_turn_id or ""
        runtime.database.connection.execute("DELETE FROM state.agent_inbox")
        assert views.resolve(turn) == turn
        seen = view_turn(views.read_all(turn))
        assert (seen.status, seen.agent_id, seen.inbox) == ("dispatched", "clerk", [])
        assert seen.context_box_id is not None


def test_turns_that_are_parents_of_each_other_are_all_in_the_tree(ask: Asked, views: TurnViews) -> None:
    one = summary(views.get(ask().agent_turn_id or ""))
    two = replace(one, agent_turn_id="turn_2", parent_agent_turn_id=one.agent_turn_id)
    [top] = build_trees([replace(one, parent_agent_turn_id="turn_2"), two])
    assert [child.agent_turn_id for child in top.children] == ["turn_2"]


class TestWaiting:
    def test_waiting_polls_until_the_turn_ends(self, runtime: Runtime, ask: Asked, views: TurnViews) -> None:
        turn = ask().agent_turn_id or ""
        pauses: list[float] = []

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            assert runtime.database.idle
            if len(pauses) == 3:
                stop(runtime, turn, actor="me", reason=None)

        assert wait_for_end(views, turn, timeout=60, pause=pause).status == "ended"
        assert len(pauses) == 3

    def test_waiting_raises_an_error_at_the_timeout(self, ask: Asked, views: TurnViews) -> None:
        turn = ask().agent_turn_id or ""
        with pytest.raises(WaitTimeout) as raised:
            wait_for_end(views, turn, timeout=0)
        assert raised.value.message == f"turn {turn} did not end within 0 s: it is dispatched"
        assert raised.value.hint == f"the turn continues; run `cbx why {turn}` to see what it waits for"
