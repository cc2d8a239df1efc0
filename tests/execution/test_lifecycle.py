"""The state machines: the database makes no move from a state outside its sources, and the page shows them all."""

import re
from datetime import timedelta
from pathlib import Path

import pytest

from cardbox_cli.errors import StaleEpoch
from cardbox_cli.execution.claims import ack, claim, defer, fail, hand_back
from cardbox_cli.execution.recovery import rebox, reclaim, requeue, stop
from cardbox_cli.execution.retrying import retry
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model import turns as t
from cardbox_cli.model.lifecycle import HEAD_MOVES, INBOX_MOVES, Move
from cardbox_cli.model.turns import Fence
from cardbox_cli.store.inbox import NewRow
from tests.execution.conftest import Asked
from tests.execution.desk import HEAD_CHANGES, INBOX_CHANGES, Desk, unwatched

HEAD_STATES = (t.IDLE, *t.ACTIVE)
INBOX_STATES = (*t.OPEN, t.CONSUMED, t.ERROR, t.SKIPPED)
PAGE = Path(__file__).parents[2] / "docs" / "inbox-lifecycle.md"


class TestHeadMoves:
    @pytest.fixture
    def fence(self, ask: Asked) -> Fence:
        return Fence("clerk", ask().agent_turn_id or "", 1)

    @pytest.mark.parametrize("state", HEAD_STATES)
    @pytest.mark.parametrize("name", HEAD_MOVES)
    def test_only_from_its_sources(self, name: str, state: str, fence: Fence, runtime: Runtime) -> None:
        move = HEAD_MOVES[name]
        put_head(runtime, state)
        before = runtime.heads.get("clerk")
        epoch = self.make(runtime, move, fence)
        after = runtime.heads.get("clerk")
        assert after is not None
        if state in move.sources:
            assert epoch == after.turn_epoch == 1 + move.epoch
            assert after.status == move.target
        else:
            assert (epoch, after) == (None, before)

    @pytest.mark.parametrize("name", [name for name in HEAD_MOVES if name != "lease"])
    @pytest.mark.parametrize(("turn", "epoch"), [("turn_other", 1), (None, 0), (None, 2)])
    def test_nor_of_another_turn_or_epoch(
        self, name: str, turn: str | None, epoch: int, fence: Fence, runtime: Runtime
    ) -> None:
        move = HEAD_MOVES[name]
        put_head(runtime, move.sources[0])
        before = runtime.heads.get("clerk")
        other = Fence("clerk", turn or fence.agent_turn_id, epoch)
        assert self.make(runtime, move, other) is None
        assert runtime.heads.get("clerk") == before

    def make(self, runtime: Runtime, move: Move, fence: Fence) -> int | None:
        """The epoch after the move, or None where it was refused."""
        if move.name == "lease":
            row = runtime.inbox.get(fence.agent_turn_id)
            return runtime.heads.lease(row, depth=0, trace_id=None, parent_step_id=None)
        try:
            if move.target == t.IDLE:
                return runtime.heads.free(fence, move.name)
            return runtime.heads.move(fence, move.name)
        except StaleEpoch:
            return None


def put_head(runtime: Runtime, state: str) -> None:
    with unwatched(runtime.database.connection) as connection:
        connection.execute("UPDATE state.agent_state_head SET status = %s", [state])


class TestInboxMoves:
    @pytest.mark.parametrize("state", INBOX_STATES)
    @pytest.mark.parametrize("name", INBOX_MOVES)
    def test_only_from_its_sources(self, name: str, state: str, runtime: Runtime) -> None:
        move, row_id = INBOX_MOVES[name], self.put(runtime, state)
        before = runtime.inbox.get(row_id)
        moved = runtime.inbox.move([row_id], name, turn_epoch=7, attempts=1, error="so")
        after = runtime.inbox.get(row_id)
        if state in move.sources:
            assert moved == [after]
            assert (after.status, after.turn_epoch, after.retry_count) == (move.target, 7, 1)
            assert (after.archived_at is not None) == (move.target in (t.CONSUMED, t.ERROR, t.SKIPPED))
        else:
            assert (moved, after) == ([], before)

    @pytest.mark.parametrize("state", INBOX_STATES)
    def test_a_claim_takes_only_what_is_due(self, state: str, runtime: Runtime) -> None:
        row_id = self.put(runtime, state)
        claimed = claim(runtime, target=None, owner="w", limit=9)
        assert [each.row.inbox_id for each in claimed] == ([row_id] if state in t.DUE else [])

    @pytest.mark.parametrize("state", INBOX_STATES)
    def test_an_owner_consumes_only_what_is_claimed(self, state: str, runtime: Runtime) -> None:
        row_id = self.put(runtime, t.PENDING)
        claim(runtime, target=None, owner="w")
        with unwatched(runtime.database.connection) as connection:
            connection.execute("UPDATE state.agent_inbox SET status = %s", [state])
        assert runtime.inbox.consume([row_id], owner="w") == ([row_id] if state == t.PROCESSING else [])

    @pytest.mark.parametrize("state", INBOX_STATES)
    def test_the_end_of_a_turn_closes_only_what_is_open(self, state: str, runtime: Runtime) -> None:
        row_id = self.put(runtime, state)
        runtime.inbox.close("turn_x")
        closed = state in INBOX_MOVES["consume"].sources
        assert runtime.inbox.get(row_id).status == ("consumed" if closed else state)

    def put(self, runtime: Runtime, state: str) -> str:
        row = NewRow(
            inbox_id="inbox_x",
            agent_id="clerk",
            message_type=t.TOOL_RESULT,
            status=state,
            payload={},
            context_headers={},
            agent_turn_id="turn_x",
        )
        assert runtime.inbox.insert(row) is not None
        return row.inbox_id


def test_a_story_in_which_every_move_is_made(ask: Asked, desk: Desk, context_box: str) -> None:
    """What the database saw of it is the tables, no change more and no change less."""
    runtime, who = desk.runtime, {"actor": "ann", "reason": "to see it"}

    def fixed(fix: object, **given: object) -> None:
        head = desk.head()
        fix(runtime, head.active_agent_turn_id, expect_epoch=head.turn_epoch, **given, **who)  # type: ignore[operator]

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
    inbox.move([turn], "promote")
    claim(desk.runtime, target=None, owner="w1")
    inbox.move([turn], "defer")
    inbox.move([turn], "kill")


class TestThePage:
    """docs/inbox-lifecycle.md shows what the code does."""

    def test_its_tables(self) -> None:
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
        assert rows == heads + inbox

    def test_its_diagrams(self) -> None:
        diagrams = re.findall(r"```mermaid\nstateDiagram-v2\n(.*?)```", PAGE.read_text(), re.DOTALL)
        drawn = [re.findall(r"    (\w+) --> (\w+): ([\w-]+)\n", diagram) for diagram in diagrams]
        wanted = [
            [(source, move.target, move.name) for move in moves.values() for source in move.sources]
            for moves in (HEAD_MOVES, INBOX_MOVES)
        ]
        assert drawn == wanted
