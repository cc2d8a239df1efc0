"""Turns that have not ended although their agent is not at them: put back, or given up."""

from collections.abc import Callable

import pytest

from cardbox_cli.errors import Conflict, StaleEpoch
from cardbox_cli.execution.recovery import fixes
from cardbox_cli.execution.runtime import Runtime
from tests.execution.fixtures import Asked


@pytest.fixture
def orphan(runtime: Runtime, ask: Asked) -> str:
    """A promoted turn whose agent was set back to idle, at epoch 1."""
    turn = ask().agent_turn_id or ""
    runtime.database.connection.execute(
        "UPDATE state.agent_state_head SET status = 'idle', active_agent_turn_id = NULL WHERE agent_id = 'clerk'"
    )
    return turn


def requeue(runtime: Runtime, turn: str, epoch: int) -> fixes.FixOutcome:
    return fixes.requeue(runtime, turn, expect_epoch=epoch, actor="t", reason="r")


def fail(runtime: Runtime, turn: str, epoch: int) -> fixes.FixOutcome:
    return fixes.fail(runtime, turn, expect_epoch=epoch, actor="t", reason="r")


def test_an_orphan_is_requeued_and_promoted(runtime: Runtime, orphan: str) -> None:
    fixed = requeue(runtime, orphan, 1)
    assert (fixed.status, fixed.turn_epoch, fixed.promoted_turn_id) == ("dispatched", 2, orphan)
    row = runtime.inbox.get(orphan)
    assert (row.status, row.turn_epoch) == ("pending", 2)
    [entry] = runtime.audit.list_by_turn(orphan)
    assert (entry.action, entry.epoch_before, entry.epoch_after) == ("requeue", 1, 2)


def test_a_requeued_orphan_waits_for_the_active_turn(runtime: Runtime, ask: Asked, orphan: str) -> None:
    other = ask().agent_turn_id
    runtime.database.connection.execute(
        "UPDATE state.agent_inbox SET status = 'error' WHERE inbox_id = %s", [orphan]
    )
    fixed = requeue(runtime, orphan, 2)
    assert (fixed.status, fixed.turn_epoch, fixed.promoted_turn_id) == ("queued", None, None)
    head = runtime.heads.get("clerk")
    assert head is not None
    assert head.active_agent_turn_id == other


def test_an_orphan_can_be_failed(runtime: Runtime, orphan: str) -> None:
    fixed = fail(runtime, orphan, 1)
    record = runtime.turns.record(orphan)
    assert record is not None
    assert (fixed.status, record.end_status, record.error) == ("ended", "failed", "r")
    assert record.deliverable_card_id is not None
    assert runtime.inbox.get(orphan).status == "consumed"


@pytest.mark.parametrize("fix", [requeue, fail])
def test_a_fix_at_an_outdated_epoch_is_refused(
    runtime: Runtime, orphan: str, fix: Callable[..., object]
) -> None:
    with pytest.raises(StaleEpoch, match=f"turn {orphan} is no longer at epoch 7"):
        fix(runtime, orphan, 7)
    assert runtime.audit.list_by_turn(orphan) == []


@pytest.mark.parametrize("fix", [requeue, fail])
def test_a_fix_of_an_ended_turn_is_refused(runtime: Runtime, orphan: str, fix: Callable[..., object]) -> None:
    fail(runtime, orphan, 1)
    with pytest.raises(Conflict, match=f"turn {orphan} has ended: failed"):
        fix(runtime, orphan, 1)


@pytest.mark.parametrize("fix", [requeue, fail])
def test_a_queued_turn_is_not_an_orphan(runtime: Runtime, ask: Asked, fix: Callable[..., object]) -> None:
    ask()
    queued = ask().agent_turn_id or ""
    with pytest.raises(Conflict, match=f"turn {queued} is not active: its row is queued"):
        fix(runtime, queued, 1)
