"""Fixes by hand: each in every state of a turn, fenced by the epoch that was seen, and written down."""

from collections.abc import Callable
from typing import Any

import pytest

from cardbox_cli.errors import BoxConflict, Conflict, InvalidInput, NotFound, StaleEpoch
from cardbox_cli.execution.dispatch_requests import Parent
from cardbox_cli.execution.queue.claims import ack, claim
from cardbox_cli.execution.recovery.fixes import FixOutcome, fail, nudge, rebox, reclaim, requeue, stop
from cardbox_cli.execution.recovery.retrying import retry
from cardbox_cli.execution.worker.ledger import read_turn
from cardbox_cli.model.cards import draft_card
from cardbox_cli.model.ids import new_box_id
from cardbox_cli.store.connection.database import Database
from tests.execution.by_hand import write
from tests.execution.desk import Desk, unwatched
from tests.execution.fixtures import Asked, Heard

Counts = Callable[[], dict[str, int]]

pytestmark = pytest.mark.usefixtures("watched")

WHO: Any = {"actor": "ann", "reason": "it hangs"}


def begin_dispatched(ask: Asked, desk: Desk) -> None:
    ask()


def begin_claimed(ask: Asked, desk: Desk) -> None:
    ask()
    claim(desk.runtime, target=None, owner="w1")


def begin_running(ask: Asked, desk: Desk) -> None:
    ask()
    desk.enter()


def begin_suspended(ask: Asked, desk: Desk) -> None:
    ask()
    desk.waiting("a", "b")


def begin_reported(ask: Asked, desk: Desk) -> None:
    begin_suspended(ask, desk)
    desk.report(desk.head().active_agent_turn_id or "", "a")


def begin_reported_and_claimed(ask: Asked, desk: Desk) -> None:
    begin_reported(ask, desk)
    claim(desk.runtime, target=None, owner="w1")


def begin_resumed(ask: Asked, desk: Desk) -> None:
    """Its turn goes on by a report's row."""
    ask()
    turn = desk.waiting("a").row.turn_id
    desk.report(turn, "a")
    desk.take()


def begin_resumed_and_lost(ask: Asked, desk: Desk) -> None:
    begin_resumed(ask, desk)
    head = desk.head()
    reclaim(desk.runtime, head.active_agent_turn_id or "", expect_epoch=head.turn_epoch, **WHO)


def begin_deferred(ask: Asked, desk: Desk) -> None:
    from cardbox_cli.execution.queue.claims import defer

    ask()
    defer(desk.runtime, desk.enter().row, owner="w1", reason="busy")


ACTIVE: dict[str, Callable[[Asked, Desk], None]] = {
    "dispatched": begin_dispatched,
    "claimed": begin_claimed,
    "running": begin_running,
    "suspended": begin_suspended,
    "reported": begin_reported,
    "reported and claimed": begin_reported_and_claimed,
    "resumed": begin_resumed,
    "resumed and lost": begin_resumed_and_lost,
    "deferred": begin_deferred,
}
WAITING = ("suspended", "reported", "reported and claimed")


@pytest.fixture(params=ACTIVE)
def state(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def turn(state: str, ask: Asked, desk: Desk) -> str:
    """A turn of `clerk` in this state, and another queued behind it."""
    ACTIVE[state](ask, desk)
    self_id = desk.head().active_agent_turn_id or ""
    ask()
    return self_id


def works(desk: Desk, turn: str) -> None:
    """The turn can be claimed, and done."""
    desk.later(100)
    task = desk.take()
    assert (task.kind, task.row.turn_id) == ("run", turn)
    ack(desk.runtime, task.row.inbox_id, owner="w1", epoch=task.fence.turn_epoch)
    assert desk.end_of(turn) == "success"


def is_over(desk: Desk, turn: str) -> None:
    """Nothing of the turn is open, and the next one is up."""
    open_rows = desk.runtime.inbox.open_rows("clerk")
    assert turn not in {row.turn_id for row in open_rows}
    assert not {"waiting", "received"} & set(desk.waits(turn).values())
    assert desk.head().active_agent_turn_id == open_rows[0].turn_id
    leases = desk.runtime.database.connection.execute("SELECT count(*) FROM cbx.leases").fetchone()
    assert leases == (0,)


class TestInEveryState:
    def test_stop_cancels_a_turn_in_every_state(self, turn: str, desk: Desk) -> None:
        before = desk.head().turn_epoch
        fixed = stop(desk.runtime, turn, actor="ann", reason="not needed")
        assert (fixed.status, fixed.turn_epoch) == ("ended", before + 1)
        assert desk.standing() == ("dispatched", before + 2)
        assert (desk.end_of(turn), desk.audited(turn)[-1]) == ("canceled", "stop")
        is_over(desk, turn)

    def test_fail_ends_a_turn_in_every_state(self, turn: str, desk: Desk) -> None:
        before = desk.head().turn_epoch
        fixed = fail(desk.runtime, turn, expect_epoch=before, **WHO)
        record = desk.runtime.turns.record(turn)
        assert record is not None
        assert (record.end_status, record.error_code) == ("failed", "failed_by_operator")
        assert fixed.turn_epoch == record.end_epoch == before + 1
        is_over(desk, turn)

    def test_reclaim_dispatches_a_turn_again_unless_it_is_suspended(
        self, state: str, turn: str, desk: Desk
    ) -> None:
        before = desk.head().turn_epoch
        if state in WAITING:
            with pytest.raises(Conflict, match="it is suspended, so no worker holds it"):
                reclaim(desk.runtime, turn, expect_epoch=before, **WHO)
            return
        fixed = reclaim(desk.runtime, turn, expect_epoch=before, **WHO)
        assert (fixed.status, fixed.turn_epoch) == ("dispatched", before + 1)
        assert desk.standing() == ("dispatched", before + 1)
        works(desk, turn)

    def test_requeue_dispatches_a_turn_again_in_every_state(self, state: str, turn: str, desk: Desk) -> None:
        before = desk.head().turn_epoch
        fixed = requeue(desk.runtime, turn, expect_epoch=before, **WHO)
        assert (fixed.status, fixed.turn_epoch, fixed.promoted_turn_id) == ("dispatched", before + 2, turn)
        assert desk.row(turn).retry_count == 0
        assert desk.output(turn) == ["tool.result"] * ("re" in state and state != "deferred")
        works(desk, turn)

    def test_rebox_changes_the_boxes_of_a_turn_that_is_not_running(
        self, state: str, turn: str, desk: Desk
    ) -> None:
        before, new = desk.head().turn_epoch, desk.runtime.boxes.create([]).box_id
        if state in ("claimed", "running", "resumed"):
            with pytest.raises(Conflict, match="is running, so its boxes cannot change"):
                rebox(desk.runtime, turn, expect_epoch=before, context_box_id=new, **WHO)
            return
        fixed = rebox(desk.runtime, turn, expect_epoch=before, context_box_id=new, **WHO)
        assert fixed.turn_epoch == before + 1
        assert desk.head().context_box_id == desk.row(turn).pointer("context_box_id") == new
        if state in WAITING:
            assert (desk.head().waiting_tool_count, desk.head().resume_deadline is None) == (2, False)
            desk.later(100)
            if state == "reported and claimed":
                from cardbox_cli.execution.recovery.reaping import reap

                reap(desk.runtime)
            for call in "ab":
                desk.report(turn, call)
            assert [desk.take().kind for _ in "ab"] == ["done", "run"]
        else:
            works(desk, turn)

    def test_nudge_notifies_workers_of_a_due_turn_and_changes_nothing(
        self, state: str, turn: str, desk: Desk, heard: Heard
    ) -> None:
        before = desk.head()
        heard.wakeups.clear()
        fixed = nudge(desk.runtime, turn)
        assert desk.head() == before
        assert (fixed.status, fixed.turn_epoch) == (before.status, before.turn_epoch)
        due = state in ("dispatched", "reported", "resumed and lost", "deferred")
        assert [wakeup.agent_turn_id for wakeup in heard.wakeups] == [turn] * due

    @pytest.mark.parametrize("fix", [fail, reclaim, requeue, rebox])
    def test_a_fix_at_an_outdated_epoch_writes_nothing(
        self, fix: Callable[..., FixOutcome], turn: str, desk: Desk, row_counts: Counts
    ) -> None:
        head, before = desk.head(), row_counts()
        boxes = {"context_box_id": new_box_id()} if fix is rebox else {}
        with pytest.raises(StaleEpoch, match=f"is no longer at epoch {head.turn_epoch - 1}"):
            fix(desk.runtime, turn, expect_epoch=head.turn_epoch - 1, **boxes, **WHO)
        assert (desk.head(), row_counts()) == (head, before)

    def test_the_old_worker_is_fenced(self, state: str, turn: str, desk: Desk) -> None:
        fence = desk.head().fence
        fixes = [fail, requeue] if state in WAITING else [reclaim]
        fixes[0](desk.runtime, turn, expect_epoch=fence.turn_epoch, **WHO)
        with pytest.raises(StaleEpoch, match=f"{fixes[0].__name__} by ann: it hangs"):
            write(desk.runtime, fence, "Too late")


class TestOfATurnThatIsNotActive:
    @pytest.fixture
    def queued(self, ask: Asked) -> str:
        ask()
        return ask().agent_turn_id or ""

    @pytest.fixture
    def ended(self, ask: Asked, desk: Desk) -> str:
        turn = ask().agent_turn_id or ""
        ack(desk.runtime, desk.take().row.inbox_id, owner="w1")
        return turn

    FIXES = pytest.mark.parametrize("fix", [fail, reclaim, requeue])

    @FIXES
    def test_a_fix_of_a_queued_turn_is_refused(
        self, fix: Callable[..., FixOutcome], queued: str, desk: Desk
    ) -> None:
        with pytest.raises(Conflict) as failure:
            fix(desk.runtime, queued, expect_epoch=0, **WHO)
        assert failure.value.message == f"turn {queued} is not active: its row is queued"

    @FIXES
    def test_a_fix_of_an_ended_turn_is_refused(
        self, fix: Callable[..., FixOutcome], ended: str, desk: Desk
    ) -> None:
        with pytest.raises(Conflict) as failure:
            fix(desk.runtime, ended, expect_epoch=1, **WHO)
        assert failure.value.message == f"turn {ended} has ended: success"

    @FIXES
    def test_a_fix_of_an_unknown_turn_is_refused(self, fix: Callable[..., FixOutcome], desk: Desk) -> None:
        with pytest.raises(NotFound, match="no turn 'turn_x' in project 'p'"):
            fix(desk.runtime, "turn_x", expect_epoch=1, **WHO)

    def test_stop_cancels_a_queued_turn(self, queued: str, desk: Desk) -> None:
        fixed = stop(desk.runtime, queued, actor="ann", reason=None)
        assert (fixed.status, fixed.turn_epoch) == ("ended", None)
        assert (desk.row(queued).status, desk.end_of(queued)) == ("skipped", "canceled")
        assert desk.standing() == ("dispatched", 1)

    def test_stop_of_an_ended_turn_is_refused(self, ended: str, desk: Desk) -> None:
        with pytest.raises(Conflict, match="has ended: success"):
            stop(desk.runtime, ended, actor="ann", reason=None)

    def test_nudge_promotes_a_queued_turn_of_an_idle_agent(
        self, queued: str, desk: Desk, database: Database
    ) -> None:
        with unwatched(database.connection) as connection:
            connection.execute(
                "UPDATE state.agent_state_head SET status = 'idle', active_agent_turn_id = NULL"
            )
            connection.execute("DELETE FROM state.agent_inbox WHERE status = 'pending'")
        fixed = nudge(desk.runtime, queued)
        assert (fixed.status, fixed.turn_epoch, fixed.promoted_turn_id) == ("dispatched", 2, queued)


class TestOddRows:
    """What other programs, or a lost table, leave behind."""

    def test_reclaim_works_if_the_row_is_at_another_epoch(
        self, ask: Asked, desk: Desk, database: Database
    ) -> None:
        turn = ask().agent_turn_id or ""
        desk.enter()
        with unwatched(database.connection) as connection:
            connection.execute("UPDATE state.agent_inbox SET turn_epoch = 0")
        reclaim(desk.runtime, turn, expect_epoch=1, **WHO)
        assert desk.standing() == ("dispatched", 2)
        works(desk, turn)

    def test_reclaim_without_an_open_row_is_refused(self, ask: Asked, desk: Desk, database: Database) -> None:
        turn = ask().agent_turn_id or ""
        with unwatched(database.connection) as connection:
            connection.execute("UPDATE state.agent_inbox SET status = 'consumed'")
        with pytest.raises(Conflict, match="it has no inbox row to claim"):
            reclaim(desk.runtime, turn, expect_epoch=1, **WHO)

    def test_requeue_recreates_a_lost_row(self, ask: Asked, desk: Desk, database: Database) -> None:
        asked = ask(parent=Parent(agent_turn_id=ask("scribe").agent_turn_id or ""))
        turn = asked.agent_turn_id or ""
        with unwatched(database.connection) as connection:
            connection.execute("DELETE FROM state.agent_inbox WHERE inbox_id = %s", [turn])
        requeue(desk.runtime, turn, expect_epoch=1, **WHO)
        row, head = desk.row(turn), desk.head()
        assert row.pointer("output_box_id") == asked.output_box_id
        assert (head.status, head.turn_epoch, head.active_recursion_depth) == ("dispatched", 3, 1)
        assert head.trace_id == asked.trace_id

    def test_requeue_is_refused_if_another_row_has_the_id(
        self, ask: Asked, desk: Desk, database: Database
    ) -> None:
        turn = ask().agent_turn_id or ""
        with unwatched(database.connection) as connection:
            connection.execute("UPDATE state.agent_inbox SET agent_turn_id = 'other'")
        with pytest.raises(Conflict, match="has lost its inbox row, and another row has taken its id"):
            requeue(desk.runtime, turn, expect_epoch=1, **WHO)
        assert desk.standing() == ("dispatched", 1)


class TestRebox:
    def test_rebox_requires_a_box(self, ask: Asked, desk: Desk) -> None:
        with pytest.raises(InvalidInput, match="a box is required"):
            rebox(desk.runtime, ask().agent_turn_id or "", expect_epoch=1, **WHO)

    def test_rebox_to_an_unknown_box_is_refused(self, ask: Asked, desk: Desk) -> None:
        turn = ask().agent_turn_id or ""
        with pytest.raises(NotFound):
            rebox(desk.runtime, turn, expect_epoch=1, context_box_id=new_box_id(), **WHO)
        assert desk.standing() == ("dispatched", 1)

    def test_rebox_to_the_output_box_of_another_agent_is_refused(self, ask: Asked, desk: Desk) -> None:
        theirs = ask("scribe")
        with pytest.raises(BoxConflict) as failure:
            rebox(
                desk.runtime,
                ask().agent_turn_id or "",
                expect_epoch=1,
                output_box_id=theirs.output_box_id,
                **WHO,
            )
        assert failure.value.message == (
            f"box {theirs.output_box_id} is the output box of turn {theirs.agent_turn_id} of agent 'scribe'"
        )

    def test_own_cards_start_after_the_existing_cards_of_a_new_output_box(
        self, ask: Asked, desk: Desk, context_box: str
    ) -> None:
        turn = ask().agent_turn_id or ""
        new = desk.runtime.boxes.fork(context_box).box_id
        rebox(desk.runtime, turn, expect_epoch=1, output_box_id=new, **WHO)
        record = desk.runtime.turns.record(turn)
        assert record is not None
        assert (record.output_start, desk.head().output_box_id) == (1, new)

    def test_own_cards_are_found_in_a_copy_of_the_output_box(
        self, ask: Asked, desk: Desk, context_box: str
    ) -> None:
        """A copy of its box, with something before its own cards: these are found, the call stays behind."""
        runtime = desk.runtime
        before = runtime.boxes.create([runtime.cards.add(draft_card("chat.message", "Before.")).card.card_id])
        asked = ask(output_box_id=before.box_id)
        turn, old = asked.agent_turn_id or "", asked.output_box_id or ""
        task = desk.enter()
        call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        thought = draft_card(
            "agent.thought", "", tool_calls=[call, {**call, "id": "c2"}], metadata={"agent_turn_id": turn}
        )
        answer = draft_card("tool.result", "seen", tool_call_id="c2", metadata={"agent_turn_id": turn})
        for draft in (thought, answer):
            runtime.cards.add(draft)
        runtime.boxes.append(old, [thought.card_id, answer.card_id], fence=task.fence)
        desk.suspend(task, "c1")
        [first, *own] = runtime.boxes.get(old).card_ids

        def tried(*card_ids: str) -> str:
            box_id = runtime.boxes.create(card_ids).box_id
            try:
                rebox(runtime, turn, expect_epoch=desk.head().turn_epoch, output_box_id=box_id, **WHO)
            except Conflict as exc:
                return exc.message
            record = runtime.turns.record(turn)
            assert record is not None
            return f"start {record.output_start}"

        assert "does not hold the open call 'c1'" in tried()
        assert "does not hold the open call 'c1'" in tried(first, own[1])
        assert "lacks the result of the call 'c2'" in tried(first, own[0])
        assert desk.head().output_box_id == old
        another = runtime.cards.add(draft_card("chat.message", "Another.")).card.card_id
        assert tried(first, another, *own) == "start 2"
        assert tried(*own) == "start 0"
        fork = runtime.boxes.fork(old).box_id
        rebox(runtime, turn, expect_epoch=desk.head().turn_epoch, output_box_id=fork, **WHO)
        desk.report(turn, "c1")
        sees = read_turn(runtime, desk.take().fence).boxes.history
        cards = [entry.slot.card for entry in sees if entry.slot.card is not None]
        assert [card.type for card in cards] == [
            "chat.message",
            "task.instruction",
            "agent.thought",
            "tool.result",
            "tool.result",
        ]


def test_reclaim_lists_what_may_start_twice(ask: Asked, desk: Desk) -> None:
    turn = ask().agent_turn_id or ""
    desk.enter()
    [step] = desk.runtime.turns.steps(turn)
    fixed = reclaim(desk.runtime, turn, expect_epoch=1, **WHO)
    assert fixed.may_start_twice == ["the command of worker w1", f"step {step.step_id}"]


class TestRetry:
    def test_retry_of_a_dead_turn_makes_a_new_turn_with_the_same_boxes(self, ask: Asked, desk: Desk) -> None:
        dead = ask(display_name="night")
        fail(desk.runtime, dead.agent_turn_id or "", expect_epoch=1, **WHO)
        retried = retry(desk.runtime, dead.inbox_id or "", source_agent_id="sys.ann").dispatched
        assert retried is not None
        row = desk.row(retried.result.inbox_id or "")
        assert row.pointer("context_box_id") == dead.context_box_id
        assert (row.pointer("display_name"), row.payload["metadata"]) == (
            "night",
            {"retry_of": dead.agent_turn_id},
        )

    def test_retry_of_a_dead_child_reports_to_the_same_call(self, ask: Asked, desk: Desk) -> None:
        ask()
        parent = desk.waiting("help").row.turn_id
        for policy in ("descend", "root"):
            to = Parent(agent_turn_id=parent, tool_call_id="help")
            child = ask("scribe", parent=to, depth_policy=policy)
            stop(desk.runtime, child.agent_turn_id or "", actor="ann", reason=None)
            again = retry(desk.runtime, child.inbox_id or "", source_agent_id="sys.ann").dispatched
            assert again is not None
            record = desk.runtime.turns.record(again.result.agent_turn_id or "")
            assert record is not None
            assert record.report_to == {
                "agent_id": "clerk",
                "agent_turn_id": parent,
                "tool_call_id": "help",
            }
            assert again.result.recursion_depth == child.recursion_depth
            stop(desk.runtime, again.result.agent_turn_id or "", actor="ann", reason=None)

    def test_retry_of_a_row_that_is_not_dead_is_refused(self, ask: Asked, desk: Desk) -> None:
        turn = ask()
        with pytest.raises(Conflict) as failure:
            retry(desk.runtime, turn.inbox_id or "", source_agent_id="sys.ann")
        assert failure.value.message == f"inbox row {turn.inbox_id} is pending, not dead"
