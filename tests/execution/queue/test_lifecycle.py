"""The state machines: the database makes no move from a state outside its sources, and the page shows them all."""

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from cardbox_cli.errors import StaleEpoch
from cardbox_cli.execution.queue.claims import ack, claim, defer, fail, hand_back
from cardbox_cli.execution.queue.messages import TOOL_RESULT, TYPES
from cardbox_cli.execution.recovery.fixes import rebox, reclaim, requeue, stop
from cardbox_cli.execution.recovery.retrying import retry
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.execution import turns as t
from cardbox_cli.model.execution.turns import HEAD_MOVES, INBOX_MOVES, Fence, Head, InboxRow, Move
from cardbox_cli.store.execution.inbox_store import NewRow
from tests.execution.desk import HEAD_CHANGES, INBOX_CHANGES, Desk, unwatched
from tests.execution.fixtures import Asked

HEAD_STATES = (t.IDLE, *t.ACTIVE)
INBOX_STATES = (*t.OPEN, t.CONSUMED, t.ERROR, t.SKIPPED)
PAGE = Path(__file__).parents[3] / "docs" / "concepts" / "turns.md"


class TestHeadMoves:
    @pytest.fixture
    def fence(self, ask: Asked) -> Fence:
        return Fence("clerk", ask().agent_turn_id or "", 1)

    @pytest.mark.parametrize("name", HEAD_MOVES)
    def test_a_move_is_made_only_from_its_source_states(
        self, name: str, fence: Fence, runtime: Runtime
    ) -> None:
        move = HEAD_MOVES[name]
        for state in HEAD_STATES:
            before = put_head(runtime, state, fence)
            epoch = make(runtime, move, fence)
            after = runtime.heads.get("clerk")
            assert after is not None
            if state in move.sources:
                assert epoch == after.turn_epoch == 1 + move.epoch, state
                assert after.status == move.target, state
            else:
                assert (epoch, after) == (None, before), state

    @pytest.mark.parametrize("name", [name for name in HEAD_MOVES if name != "assign"])
    def test_a_move_at_another_turn_or_epoch_changes_nothing(
        self, name: str, fence: Fence, runtime: Runtime
    ) -> None:
        before = put_head(runtime, HEAD_MOVES[name].sources[0], fence)
        turn_id = fence.agent_turn_id
        for other in (Fence("clerk", "turn_x", 1), Fence("clerk", turn_id, 0), Fence("clerk", turn_id, 2)):
            assert make(runtime, HEAD_MOVES[name], other) is None, other
        assert runtime.heads.get("clerk") == before


def make(runtime: Runtime, move: Move, fence: Fence) -> int | None:
    """The epoch after the move, or None where it was refused."""
    if move.name == "assign":
        row = runtime.inbox.get(fence.agent_turn_id)
        return runtime.heads.assign(row)
    try:
        if move.target == t.IDLE:
            return runtime.heads.free(fence, move.name)
        return runtime.heads.move(fence, move.name)
    except StaleEpoch:
        return None


def put_head(runtime: Runtime, state: str, fence: Fence) -> Head | None:
    """The head of `clerk` at this turn and epoch, in this state."""
    with unwatched(runtime.database.connection) as connection:
        connection.execute(
            "UPDATE state.agent_state_head SET status = %s, active_agent_turn_id = %s, turn_epoch = %s",
            [state, fence.agent_turn_id, fence.turn_epoch],
        )
    return runtime.heads.get("clerk")


class TestInboxMoves:
    @pytest.mark.parametrize("name", INBOX_MOVES)
    def test_a_move_is_made_only_from_its_source_states(self, name: str, runtime: Runtime) -> None:
        move = INBOX_MOVES[name]
        for state in INBOX_STATES:
            before = put_row(runtime, state)
            moved = runtime.inbox.move([before.inbox_id], name, turn_epoch=7, attempts=1, error="so")
            after = runtime.inbox.get(before.inbox_id)
            if state in move.sources:
                assert moved == [after], state
                assert (after.status, after.turn_epoch, after.retry_count) == (move.target, 7, 1), state
                assert (after.archived_at is None) == (move.target in t.OPEN), state
            else:
                assert (moved, after) == ([], before), state

    def test_a_claim_takes_only_due_rows(self, runtime: Runtime) -> None:
        due = [put_row(runtime, state).inbox_id for state in t.DUE]
        others = [put_row(runtime, state) for state in INBOX_STATES if state not in t.DUE]
        claimed = [claim(runtime, target=None, owner="w", limit=9)[0].row.inbox_id for _ in due]
        assert claimed == due
        assert claim(runtime, target=None, owner="w", limit=9) == []
        assert [runtime.inbox.get(row.inbox_id) for row in others] == others

    def test_an_owner_consumes_only_claimed_rows(self, runtime: Runtime) -> None:
        for state in INBOX_STATES:
            row_id = put_row(runtime, t.PENDING).inbox_id
            assert claim(runtime, target=None, owner="w")[0].row.inbox_id == row_id
            with unwatched(runtime.database.connection) as connection:
                connection.execute(
                    "UPDATE state.agent_inbox SET status = %s WHERE inbox_id = %s", [state, row_id]
                )
            consumed = runtime.inbox.consume([row_id], owner="w")
            assert consumed == ([row_id] if state == t.PROCESSING else []), state
            runtime.database.connection.execute("DELETE FROM state.agent_inbox")

    def test_the_end_of_a_turn_closes_only_open_rows(self, runtime: Runtime) -> None:
        rows = [put_row(runtime, state) for state in INBOX_STATES]
        runtime.inbox.close("turn_x")
        for row in rows:
            closed = row.status in INBOX_MOVES["consume"].sources
            assert runtime.inbox.get(row.inbox_id).status == ("consumed" if closed else row.status)


def put_row(runtime: Runtime, state: str) -> InboxRow:
    """A report of `turn_x` in this state."""
    row = NewRow(
        inbox_id=t.new_id("inbox"),
        agent_id="clerk",
        message_type=TOOL_RESULT.name,
        status=state,
        payload={},
        context_headers={},
        agent_turn_id="turn_x",
    )
    written = runtime.inbox.insert(row)
    assert written is not None
    return written


def test_the_database_sees_every_documented_change_and_no_other(
    ask: Asked, desk: Desk, context_box: str
) -> None:
    """What the database saw of it is the tables, no change more and no change less."""
    runtime, who = desk.runtime, {"actor": "ann", "reason": "to see it"}

    def fixed(fix: Callable[..., object], **given: object) -> None:
        head = desk.head()
        fix(runtime, head.active_agent_turn_id, expect_epoch=head.turn_epoch, **given, **who)

    def new() -> str:
        turn = ask().agent_turn_id or ""
        assert desk.head().active_agent_turn_id == turn
        return turn

    def stopped(turn: str) -> None:
        stop(runtime, turn, **who)

    # Dispatched, and what may become of it: reboxed, reclaimed, queued anew, deferred, handed back.
    turn = new()
    fixed(rebox, context_box_id=context_box)
    fixed(reclaim)
    fixed(requeue)
    defer(runtime, desk.take().row, owner="w1", reason="later", delay=timedelta(0))
    fixed(requeue)
    hand_back(runtime, desk.take().row, owner="w1", reason="stops")
    # Claimed, running, and taken away from a worker; then put back while claimed, and done.
    defer(runtime, desk.enter().row, owner="w1", reason="later", delay=timedelta(0))
    desk.take()
    fixed(requeue)
    stopped(ask().agent_turn_id or "")
    ack(runtime, desk.enter().row.inbox_id, owner="w1")
    assert desk.end_of(turn) == "success"
    # Ended in every state.
    ack(runtime, desk.take().row.inbox_id, owner="w1") if new() else None
    stopped(new())
    defer_and_stop = new()
    defer(runtime, desk.take().row, owner="w1", reason="later", delay=timedelta(seconds=9))
    stopped(defer_and_stop)
    running = new()
    desk.enter()
    stopped(running)
    # Suspended: reboxed, resumed, ended by a result, stopped, put back.
    turn = new()
    desk.waiting("a")
    fixed(rebox, context_box_id=context_box)
    desk.report(turn, "a")
    ack(runtime, desk.take().row.inbox_id, owner="w1")
    turn = new()
    desk.waiting("b")
    desk.report(turn, "b", after_execution="terminate")
    desk.take()
    turn = new()
    desk.waiting("c")
    fixed(requeue)
    stopped(turn)
    # Dead in every state, and tried again.
    turn = new()
    desk.waiting("d")
    report = desk.report(turn, "d").inbox_id or ""
    claim(runtime, target=None, owner="w1")
    fail(runtime, report, owner="w1", error="so")
    retry(runtime, report, source_agent_id="sys.ann")
    # A script took the report and did nothing with it.
    claim(runtime, target=None, owner="w1")
    ack(runtime, report, owner="w1")
    retry(runtime, report, source_agent_id="sys.ann")
    desk.take()
    stopped(turn)
    self_made_changes(desk, new())
    seen = runtime.database.connection.execute("SELECT DISTINCT kind, before, after, epochs FROM watch.seen")
    rows = seen.fetchall()
    assert {row[1:] for row in rows if row[0] == "head"} == set(HEAD_CHANGES)
    assert {row[1:3] for row in rows if row[0] == "inbox"} == set(INBOX_CHANGES)


def self_made_changes(desk: Desk, turn: str) -> None:
    """Moves that only odd rows make: of rows that are killed unclaimed, and of a turn whose row had died."""
    inbox = desk.runtime.inbox
    inbox.move([turn], "kill")
    inbox.move([turn], "requeue")
    inbox.move([turn], "kill")
    inbox.move([turn], "requeue")
    inbox.move([turn], "skip")
    inbox.move([turn], "requeue")
    inbox.move([turn], "promote")
    claim(desk.runtime, target=None, owner="w1")
    inbox.move([turn], "defer")
    inbox.move([turn], "kill")


class TestThePage:
    """docs/concepts/turns.md shows what the code does."""

    def test_the_tables_list_all_moves_and_message_types(self) -> None:
        rows = [
            [cell.strip() for cell in line.strip("|").split("|")]
            for line in PAGE.read_text().splitlines()
            if line.startswith("| `")
        ]
        heads = [
            [f"`{m.name}`", ", ".join(m.sources), m.target, f"+{m.epoch}", m.when]
            for m in HEAD_MOVES.values()
        ]
        inbox = [[f"`{m.name}`", ", ".join(m.sources), m.target, m.when] for m in INBOX_MOVES.values()]
        types = [
            [
                *(f"`{kind.name}`", kind.claim, f"{kind.primitive}/{kind.edge_phase}"),
                *(kind.begins, ", ".join(kind.payload), kind.retry),
            ]
            for kind in TYPES.values()
            if kind.claim is not None
        ]
        assert rows == heads + inbox + types

    def test_the_diagrams_show_all_moves(self) -> None:
        diagrams = re.findall(r"```mermaid\nstateDiagram-v2\n(.*?)```", PAGE.read_text(), re.DOTALL)
        drawn = [re.findall(r"    (\w+) --> (\w+): ([\w-]+)\n", diagram) for diagram in diagrams]
        wanted = [
            [(source, move.target, move.name) for move in moves.values() for source in move.sources]
            for moves in (HEAD_MOVES, INBOX_MOVES)
        ]
        assert drawn == wanted
