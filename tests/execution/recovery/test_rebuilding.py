"""A head that is lost is made anew from what is left of its agent's work, whatever that was."""

import pytest

from cardbox_cli.execution.queue.claims import claim
from cardbox_cli.execution.recovery.reaping import reap
from cardbox_cli.execution.recovery.rebuilding import RebuildOutcome, rebuild
from cardbox_cli.execution.runtime import Runtime
from tests.execution.desk import Desk
from tests.execution.fixtures import Asked


@pytest.fixture
def desk(runtime: Runtime) -> Desk:
    """A worker's desk whose changes of states are not watched: to rebuild a head is no move of a turn."""
    return Desk(runtime)


def resumed(ask: Asked, desk: Desk, *calls: str) -> str:
    """A turn whose last result was applied: the claimed report carries it on."""
    turn = ask().agent_turn_id or ""
    desk.waiting(*calls)
    for call in calls:
        desk.report(turn, call)
        desk.take()
    assert desk.standing() == ("running", 2)
    return turn


def rebuilt(desk: Desk) -> RebuildOutcome:
    desk.runtime.database.connection.execute("DELETE FROM state.agent_state_head WHERE agent_id = 'clerk'")
    return rebuild(desk.runtime, "clerk", actor="ann", reason=None)


def test_a_rebuilt_head_dispatches_a_resumed_turn_through_its_report(ask: Asked, desk: Desk) -> None:
    turn = resumed(ask, desk, "a", "b")
    made = rebuilt(desk)
    assert (made.status, made.active_agent_turn_id, made.turn_epoch) == ("dispatched", turn, 3)
    assert made.certain[1] == f"the report of call b, now applied, of turn {turn} was processing"
    again = desk.take()
    assert (again.kind, again.row.message_type, again.fence.turn_epoch) == ("run", "tool_result", 3)
    assert desk.output(turn) == ["tool.result", "tool.result"]


def test_a_resumed_turn_with_a_lost_lease_is_rebuilt(ask: Asked, desk: Desk) -> None:
    turn = resumed(ask, desk, "a")
    desk.later(61)
    assert len(reap(desk.runtime).released) == 1
    made = rebuilt(desk)
    assert (made.status, made.active_agent_turn_id) == ("dispatched", turn)


@pytest.mark.parametrize("claimed", [False, True])
def test_a_report_that_was_not_applied_leaves_its_turn_suspended(
    ask: Asked, desk: Desk, claimed: bool
) -> None:
    turn = ask().agent_turn_id or ""
    desk.waiting("a")
    desk.report(turn, "a")
    if claimed:
        claim(desk.runtime, target=None, owner="w1")
    made = rebuilt(desk)
    assert (made.status, made.active_agent_turn_id) == ("suspended", turn)


def test_an_open_report_of_an_earlier_turn_is_ignored(ask: Asked, desk: Desk) -> None:
    """Another program left a report of an earlier turn open; the agent waits for the calls of a later one."""
    first = resumed(ask, desk, "a")
    connection = desk.runtime.database.connection
    connection.execute(
        "UPDATE state.agent_state_head SET status = 'idle', active_agent_turn_id = NULL WHERE agent_id = 'clerk'"
    )
    connection.execute("DELETE FROM cbx.leases")
    later = ask().agent_turn_id or ""
    assert later != first
    desk.waiting("b")
    made = rebuilt(desk)
    assert (made.status, made.active_agent_turn_id) == ("suspended", later)


def test_a_head_is_rebuilt_as_idle_without_inbox_rows(ask: Asked, desk: Desk) -> None:
    ask()
    desk.enter()
    desk.runtime.database.connection.execute("DELETE FROM state.agent_inbox")
    made = rebuilt(desk)
    assert (made.status, made.active_agent_turn_id) == ("idle", None)
