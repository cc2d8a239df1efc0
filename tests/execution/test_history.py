"""The history by which fleets are judged shows what may not be, whoever does it."""

from collections.abc import Iterator

import pytest

from cardbox_cli.execution.queue.claims import ack
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.execution.turns import Fence
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from tests.execution import by_hand, history
from tests.execution.fixtures import Asked


@pytest.fixture
def database(target: Target) -> Iterator[Database]:
    """A database that writes down what happens from the first row on."""
    with Database.open_target(target) as opened:
        history.begin(opened)
        yield opened


@pytest.fixture
def running(runtime: Runtime, ask: Asked) -> Fence:
    """A turn of `clerk` that runs; another is queued behind it."""
    ask()
    ask()
    fence = by_hand.take(runtime).fence
    by_hand.enter(runtime, fence)
    return fence


def violations(runtime: Runtime) -> str:
    return "\n".join(history.violations(history.read(runtime.database)))


def test_successful_turns_cause_no_violations(runtime: Runtime, running: Fence) -> None:
    by_hand.write(runtime, running, "done", "task.deliverable")
    ack(runtime, running.agent_turn_id, owner=by_hand.OWNER)
    ack(runtime, by_hand.take(runtime).row.inbox_id, owner=by_hand.OWNER)
    events = history.read(runtime.database)
    assert history.violations(events) == []
    asked, ended = history.asked_and_ended(events)
    assert asked == ended
    assert [len(turns) for turns in asked.values()] == [2]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE state.agent_state_head SET turn_epoch = turn_epoch - 1", "the epoch shrank from 1 to 0"),
        ("UPDATE state.agent_state_head SET status = 'suspended', turn_epoch = 9", "no move of a head leads"),
        (
            "UPDATE state.agent_state_head SET status = 'idle', active_agent_turn_id = NULL",
            "the agent is idle, and ['turn_",
        ),
        (
            "UPDATE state.agent_inbox SET status = 'pending' WHERE status = 'queued'",
            "are due or claimed, and",
        ),
        ("UPDATE state.agent_inbox SET status = 'skipped'", "no move of an inbox row leads from"),
        ("UPDATE cbx.leases SET owner = 'another'", "a lease was taken over"),
        ("DELETE FROM cbx.leases", "runs without a lease"),
        (
            "INSERT INTO cbx.leases SELECT project_id, 'more', agent_id, agent_turn_id, turn_epoch, owner,"
            " claimed_at, heartbeat_at, expires_at FROM cbx.leases",
            "2 leases carry a turn at once",
        ),
        (
            "UPDATE cbx.turns SET end_status = 'success', deliverable_card_id = 'c'",
            "has ended and is active",
        ),
        ("UPDATE cbx.turns SET end_status = 'success'", "a turn ended without end or deliverable"),
    ],
)
def test_an_invalid_change_of_a_row_is_a_violation(
    runtime: Runtime, running: Fence, change: str, said: str
) -> None:
    runtime.database.connection.execute(change.encode())
    assert said in violations(runtime)


def test_a_second_end_of_a_turn_is_a_violation(runtime: Runtime, running: Fence) -> None:
    ack(runtime, running.agent_turn_id, owner=by_hand.OWNER)
    runtime.database.connection.execute("UPDATE cbx.turns SET end_epoch = 7 WHERE end_status IS NOT NULL")
    assert "the end of a turn was written twice" in violations(runtime)


def test_a_write_without_a_lease_is_a_violation(runtime: Runtime, running: Fence) -> None:
    runtime.database.connection.execute("SET history.writer = 'a ghost'")
    ack(runtime, running.agent_turn_id, owner=by_hand.OWNER)
    said = violations(runtime)
    assert (
        f"a ghost wrote to the output box of turn {running.agent_turn_id}, whose leases [None] have" in said
    )
    assert f"a ghost took the head from running to idle of turn {running.agent_turn_id}" in said


def test_a_write_to_the_output_box_of_an_ended_turn_is_a_violation(runtime: Runtime, ask: Asked) -> None:
    turn = ask()
    ack(runtime, by_hand.take(runtime).row.inbox_id, owner=by_hand.OWNER)
    box_id = turn.output_box_id or ""
    runtime.boxes.append(box_id, runtime.boxes.ensure(box_id).card_ids)
    assert f"the output box {box_id} was written to, and no turn of it is active" in violations(runtime)


def test_concurrent_transactions_on_one_agent_are_a_violation(
    runtime: Runtime, running: Fence, target: Target
) -> None:
    """Seen even where each for itself did what it may: their events of one agent are mingled."""
    with Database.open_target(target) as other:
        beat = b"UPDATE state.agent_inbox SET turn_epoch = turn_epoch + 1 WHERE status = "
        with runtime.database.transaction():
            runtime.database.connection.execute(beat + b"'queued'")
            other.connection.execute(beat + b"'processing'")
            runtime.database.connection.execute(beat + b"'queued'")
    assert "two transactions changed the agent at the same time" in violations(runtime)


def test_a_report_during_a_transaction_is_allowed(runtime: Runtime, running: Fence, target: Target) -> None:
    with Database.open_target(target) as other:
        beat = b"UPDATE state.agent_inbox SET turn_epoch = turn_epoch WHERE status = 'processing'"
        change = b"UPDATE state.agent_inbox SET agent_turn_id = agent_turn_id || 'x' WHERE status = 'queued'"
        with runtime.database.transaction():
            runtime.database.connection.execute(change)
            other.connection.execute(
                "INSERT INTO state.agent_inbox (project_id, inbox_id, agent_id, message_type, agent_turn_id)"
                " VALUES (%s, 'inbox_1', %s, 'tool_result', %s)",
                [runtime.project_id, running.agent_id, running.agent_turn_id],
            )
            runtime.database.connection.execute(change)
            runtime.database.connection.execute(beat)
    assert "at the same time" not in str(violations(runtime))
