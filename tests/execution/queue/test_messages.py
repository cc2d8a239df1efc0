"""Messages: what the writer writes for each type, and that the table of types is what the database does."""

import re

import pytest

from cardbox_cli.execution.queue.claims import claim
from cardbox_cli.execution.queue.messages import (
    CONTROL_KEYS,
    STOP,
    TIMEOUT,
    TOOL_RESULT,
    TURN,
    TYPES,
    InboxMessage,
    MessageType,
    Sender,
    edge_of,
    write_row,
)
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.execution.headers import parse_lineage
from cardbox_cli.model.execution.turns import Fence, InboxRow
from cardbox_cli.store.connection.queries import query
from tests.execution.desk import Desk, unwatched
from tests.execution.fixtures import Asked

pytestmark = pytest.mark.usefixtures("watched")

OURS = (TURN, TOOL_RESULT, TIMEOUT, STOP)


def sent(runtime: Runtime, kind: MessageType, fence: Fence, correlation_id: str) -> InboxRow | None:
    """A message of this type for a turn, from the operator."""
    asked = runtime.inbox.turn_row(fence.agent_turn_id)
    assert asked is not None
    message = InboxMessage(
        type=kind,
        fence=fence,
        channel_id=asked.channel_id,
        lineage=asked.lineage,
        correlation_id=correlation_id,
        payload=dict.fromkeys(kind.payload, "so"),
    )
    with runtime.transaction():
        row = write_row(runtime, message)
        if row is not None:
            runtime.turns.insert_edge(edge_of(message, row, Sender("sys.ann"), {"note": "n"}))
    return row


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.name)
def test_a_message_is_written_as_a_row_and_an_edge(kind: MessageType, ask: Asked, runtime: Runtime) -> None:
    turn = ask().agent_turn_id or ""
    row = sent(runtime, kind, Fence("clerk", turn, 1), "c")
    assert row is not None
    assert (row.message_type, row.status, row.enqueue_mode) == (kind.name, kind.begins, kind.enqueue_mode)
    assert (row.agent_turn_id, row.turn_epoch, row.correlation_id) == (turn, 1, "c")
    asked = runtime.inbox.get(turn)
    assert parse_lineage(row.context_headers) == asked.lineage
    edge = next(edge for edge in runtime.turns.edges(turn) if edge.correlation_id == "c")
    assert (edge.primitive, edge.edge_phase, edge.source_agent_id) == (
        kind.primitive,
        kind.edge_phase,
        "sys.ann",
    )
    assert (edge.target_agent_id, edge.target_agent_turn_id) == ("clerk", turn)
    assert (edge.metadata["inbox_id"], edge.metadata["note"]) == (row.inbox_id, "n")
    assert edge.metadata["cg_ctx"]["trace_id"] == edge.trace_id == asked.lineage.trace_id


def test_a_message_with_a_used_correlation_id_is_not_written_again(ask: Asked, runtime: Runtime) -> None:
    fence = Fence("clerk", ask().agent_turn_id or "", 1)
    assert sent(runtime, STOP, fence, "c") is not None
    edges = runtime.turns.edges(fence.agent_turn_id)
    assert sent(runtime, STOP, fence, "c") is None
    assert runtime.turns.edges(fence.agent_turn_id) == edges


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.name)
def test_only_messages_that_run_a_turn_wait_for_the_running_turn(
    kind: MessageType, ask: Asked, desk: Desk, runtime: Runtime
) -> None:
    fence = Fence("clerk", ask().agent_turn_id or "", 1)
    desk.enter()
    row = sent(runtime, kind, fence, "c")
    assert row is not None
    with unwatched(runtime.database.connection) as connection:
        connection.execute(
            "UPDATE state.agent_inbox SET status = 'pending' WHERE inbox_id = %s", [row.inbox_id]
        )
    claimed = claim(runtime, target=None, owner="w2")
    assert [each.row.inbox_id for each in claimed] == ([] if kind.claim == "run" else [row.inbox_id])


def test_a_stop_that_was_sent_stops_its_turn(ask: Asked, desk: Desk, runtime: Runtime) -> None:
    turn = ask().agent_turn_id or ""
    desk.enter()
    assert sent(runtime, STOP, Fence("clerk", turn, 1), "c") is not None
    assert desk.take().outcome == "stopped its turn"
    assert desk.end_of(turn) == "canceled"


def test_no_payload_contains_control_keys() -> None:
    assert all(not CONTROL_KEYS.intersection(kind.payload) for kind in TYPES.values())


def test_the_sql_queries_list_the_same_message_types() -> None:
    reports = {name for name, kind in TYPES.items() if kind.claim == "apply"}
    known = {name for name, kind in TYPES.items() if kind.claim is not None}
    for name, expected in (("why_dead", known), ("lost_reports", reports)):
        listed = re.findall(r"message_type IN \((.*?)\)", query(name))
        assert [set(re.findall(r"'(\w+)'", each)) for each in listed] == [expected], name
