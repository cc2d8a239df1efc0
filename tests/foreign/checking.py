"""What an existing deployment accepts and leaves: sections 2 to 5 of the interop facts as assertions on rows.

`assert_valid_dispatch` is what its workers demand of a turn before it runs, `assert_valid_end` what they leave of one.
"""

import re
from typing import Any

from psycopg.rows import dict_row

from tests.foreign.tables import Connection

TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
# What names the turn stays out of the payload: a row that has one of these is refused.
FORBIDDEN = {
    "project_id", "channel_id", "channel", "agent_id", "agent_turn_id", "turn_epoch", "step_id", "tool_call_id",
    "trace_id", "traceparent", "tracestate", "parent_agent_id", "parent_agent_turn_id", "parent_step_id",
    "parent_traceparent", "recursion_depth",
}  # fmt: skip
POINTERS = ("profile_box_id", "context_box_id", "output_box_id")
CONTEXT = {
    "project_id", "channel_id", "agent_id", "agent_turn_id", "turn_epoch", "step_id", "tool_call_id", "trace_id",
    "recursion_depth", "parent_agent_id", "parent_agent_turn_id", "parent_step_id",
}  # fmt: skip
# One card of another class makes its readers refuse a whole list.
READABLE = {
    "TextContent", "JsonContent", "FieldsSchemaContent", "ToolContent", "ToolCallContent", "ToolResultContent",
}  # fmt: skip
CLEARED = (
    "active_agent_turn_id", "active_channel_id", "parent_step_id", "trace_id", "context_box_id", "output_box_id",
    "expecting_correlation_id", "resume_deadline",
)  # fmt: skip

Row = dict[str, Any]


def assert_valid_dispatch(connection: Connection, project_id: str, agent_turn_id: str) -> Row:
    """Assert that a turn which nobody has claimed is as that system dispatches it; its inbox row."""
    found = _Turn(connection, project_id, agent_turn_id)
    [row] = found.inbox("turn")
    [edge] = found.edges("enqueue", "request")
    depth = _check_row(row)
    _check_edge(edge, row, depth)
    found.check_actors(row, edge)
    found.check_boxes(row)
    if row["status"] == "queued":
        found.check_queued(row)
    else:
        found.check_promoted(row, edge, depth)
    return row


def assert_valid_report(connection: Connection, project_id: str, agent_turn_id: str, call_id: str) -> Row:
    """Assert that the report of a result is as that system sends it, to be applied by its worker; its row."""
    found = _Turn(connection, project_id, agent_turn_id)
    [asked] = found.inbox("turn")
    rows = found.inbox("tool_result", "timeout")
    [row] = [each for each in rows if each["correlation_id"] == call_id]
    assert re.fullmatch(r"inbox_[0-9a-f]{32}", row["inbox_id"])
    assert (row["status"], row["enqueue_mode"], row["due"]) == ("pending", None, True)
    head = found.head(row["agent_id"])
    assert (head["status"], head["active_agent_turn_id"]) == ("suspended", agent_turn_id)
    assert row["turn_epoch"] == head["turn_epoch"]
    headers, payload = row["context_headers"], row["payload"]
    assert TRACEPARENT.fullmatch(headers["traceparent"])
    assert headers["CG-Recursion-Depth"] == asked["context_headers"]["CG-Recursion-Depth"]
    assert (headers["CG-Turn-Id"], headers["CG-Tool-Call-Id"]) == (agent_turn_id, call_id)
    assert payload.keys() == {"after_execution", "status", "tool_result_card_id"}
    [edge] = [each for each in found.edges("report", "response") if each["correlation_id"] == call_id]
    assert (edge["recursion_depth"], edge["enqueue_mode"]) == (int(headers["CG-Recursion-Depth"]), None)
    assert edge["metadata"]["cg_ctx"].keys() == CONTEXT
    found.check_result(payload, call_id, edge["source_agent_id"])
    return row


def assert_valid_end(
    connection: Connection, project_id: str, agent_turn_id: str, *, steps: bool = True
) -> Row:
    """Assert that a turn has ended, and left what that system leaves; its turn row.

    Without `steps` it may have ended before its first one.
    """
    found = _Turn(connection, project_id, agent_turn_id)
    rows = found.inbox("turn", "tool_result", "timeout", "stop")
    assert {row["status"] for row in rows} == {"consumed"}
    assert all(row["processed_at"] and row["archived_at"] for row in rows), rows
    [row] = found.inbox("turn")
    head = found.head(row["agent_id"])
    if head["active_agent_turn_id"] is None:
        _check_idle(head, row)
    assert head["active_agent_turn_id"] != agent_turn_id
    found.check_steps(some=steps)
    found.check_waiting()
    found.check_output(row)
    return row


def _check_row(row: Row) -> int:
    assert row["inbox_id"] in (row["correlation_id"], row["agent_turn_id"])
    assert re.fullmatch(r"turn_[0-9a-f]{32}", row["agent_turn_id"])
    assert (row["enqueue_mode"], row["retry_count"], bool(row["channel_id"])) == ("call", 0, True)
    assert (row["processed_at"], row["archived_at"], row["due"]) == (None, None, True)
    headers, payload = row["context_headers"], row["payload"]
    assert all(isinstance(value, str) for value in headers.values()), headers
    named = {"CG-Project-Id": "project_id", "CG-Agent-Id": "agent_id", "CG-Channel-Id": "channel_id"}
    for header, column in {**named, "CG-Turn-Id": "agent_turn_id"}.items():
        assert headers[header] == row[column], header
    assert headers["CG-Turn-Epoch"] == "0"
    traced = TRACEPARENT.fullmatch(headers["traceparent"])
    assert traced, headers["traceparent"]
    assert set(traced[1]) != {"0"}
    assert not FORBIDDEN & payload.keys()
    assert payload.keys() - {"display_name", "metadata"} == {*POINTERS, "runtime_config"}
    depth = int(headers["CG-Recursion-Depth"])
    assert 0 <= depth < 20
    return depth


def _check_edge(edge: Row, row: Row, depth: int) -> None:
    assert re.fullmatch(r"edge_[0-9a-f]{32}", edge["edge_id"])
    assert (edge["target_agent_id"], edge["target_agent_turn_id"]) == (row["agent_id"], row["agent_turn_id"])
    assert (edge["correlation_id"], edge["enqueue_mode"]) == (row["correlation_id"], "call")
    assert (edge["channel_id"], edge["recursion_depth"]) == (row["channel_id"], depth)
    headers, metadata = row["context_headers"], edge["metadata"]
    assert edge["trace_id"] == headers["traceparent"].split("-")[1]
    assert (metadata["message_type"], metadata["enqueue_mode"]) == ("turn", "call")
    assert (metadata["inbox_id"], metadata["recursion_depth"]) == (row["inbox_id"], depth)
    context = metadata["cg_ctx"]
    assert context.keys() == CONTEXT
    assert (context["agent_id"], context["agent_turn_id"]) == (row["agent_id"], row["agent_turn_id"])
    assert (context["turn_epoch"], context["recursion_depth"]) == (0, depth)
    assert (context["step_id"], context["tool_call_id"]) == (None, None)
    assert context["trace_id"] == edge["trace_id"]
    lineage = {"Agent": "parent_agent_id", "Turn": "parent_agent_turn_id", "Step": "parent_step_id"}
    for header, key in lineage.items():
        assert headers.get(f"CG-Parent-{header}-Id") == context[key], header
    assert edge["parent_step_id"] == context["parent_step_id"]


def _check_idle(head: Row, row: Row) -> None:
    assert (head["status"], head["active_recursion_depth"], head["waiting_tool_count"]) == ("idle", 0, 0)
    assert [head[column] for column in CLEARED] == [None] * len(CLEARED)
    assert head["turn_epoch"] >= row["turn_epoch"] >= 1
    assert head["profile_box_id"] is not None


class _Turn:
    """The rows of a turn."""

    def __init__(self, connection: Connection, project_id: str, agent_turn_id: str) -> None:
        self.connection = connection
        self.keys = {"project": project_id, "turn": agent_turn_id}

    def rows(self, query: str, **parameters: Any) -> list[Row]:
        with self.connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(query.encode(), {**self.keys, **parameters}).fetchall()

    def inbox(self, *types: str) -> list[Row]:
        return self.rows(
            "SELECT *, next_retry_at <= now() AS due FROM state.agent_inbox WHERE project_id = %(project)s"
            " AND agent_turn_id = %(turn)s AND message_type = ANY(%(types)s) ORDER BY created_at",
            types=list(types),
        )

    def edges(self, primitive: str, phase: str) -> list[Row]:
        return self.rows(
            "SELECT * FROM state.execution_edges WHERE project_id = %(project)s AND target_agent_turn_id = %(turn)s"
            " AND primitive = %(primitive)s AND edge_phase = %(phase)s",
            primitive=primitive,
            phase=phase,
        )

    def head(self, agent_id: str) -> Row:
        [head] = self.rows(
            "SELECT * FROM state.agent_state_head WHERE project_id = %(project)s AND agent_id = %(agent)s",
            agent=agent_id,
        )
        return head

    def check_actors(self, row: Row, edge: Row) -> None:
        roster = {
            found["agent_id"]: found["worker_target"]
            for found in self.rows("SELECT * FROM resource.project_agents WHERE project_id = %(project)s")
        }
        assert roster[row["agent_id"]].strip()
        source = edge["source_agent_id"]
        assert source.startswith(("sys.", "tool.")) or source in roster

    def check_boxes(self, row: Row) -> None:
        there = self.rows(
            "SELECT box_id::text FROM card_boxes WHERE tenant_id = %(project)s AND box_id::text = ANY(%(boxes)s)",
            boxes=[row["payload"][name] for name in POINTERS],
        )
        assert {found["box_id"] for found in there} == {row["payload"][name] for name in POINTERS}

    def check_queued(self, row: Row) -> None:
        assert row["turn_epoch"] == 0
        assert self.head(row["agent_id"])["status"] in ("dispatched", "running", "suspended")

    def check_promoted(self, row: Row, edge: Row, depth: int) -> None:
        head = self.head(row["agent_id"])
        assert (row["status"], head["status"]) == ("pending", "dispatched")
        assert (head["active_agent_turn_id"], head["turn_epoch"]) == (row["agent_turn_id"], row["turn_epoch"])
        assert head["turn_epoch"] >= 1
        assert (head["active_channel_id"], head["active_recursion_depth"]) == (row["channel_id"], depth)
        assert (head["trace_id"], head["parent_step_id"]) == (edge["trace_id"], edge["parent_step_id"])
        assert [str(head[name]) for name in POINTERS] == [row["payload"][name] for name in POINTERS]
        waiting = (head["waiting_tool_count"], head["resume_deadline"], head["expecting_correlation_id"])
        assert waiting == (0, None, None)

    def check_steps(self, *, some: bool) -> None:
        steps = self.rows(
            "SELECT * FROM state.agent_steps WHERE project_id = %(project)s AND agent_turn_id = %(turn)s"
        )
        assert steps or not some
        for step in steps:
            assert step["step_id"].startswith("step_")
            # A suspended step stays so, and is never called ended.
            assert step["status"] in ("completed", "failed", "suspended"), step
            assert (step["ended_at"] is None) == (step["status"] == "suspended"), step

    def check_waiting(self) -> None:
        assert not self.rows(
            "SELECT * FROM state.turn_waiting_tools WHERE project_id = %(project)s AND agent_turn_id = %(turn)s"
            " AND wait_status IN ('waiting', 'received')"
        )

    def check_result(self, payload: Row, call_id: str, source_agent_id: str) -> None:
        [card] = self.rows(
            "SELECT * FROM cards WHERE card_id = %(card)s", card=payload["tool_result_card_id"]
        )
        [waiting] = self.rows(
            "SELECT * FROM state.turn_waiting_tools WHERE agent_turn_id = %(turn)s AND tool_call_id = %(call)s",
            call=call_id,
        )
        metadata, content = card["metadata"], card["content"]
        assert (card["tool_call_id"], metadata["type"]) == (call_id, "tool.result")
        assert (metadata["author_id"], metadata["step_id"]) == (source_agent_id, waiting["step_id"])
        assert (metadata["function_name"], metadata["tool_call_id"]) == (waiting["tool_name"], call_id)
        assert content["__type__"] == "ToolResultContent"
        assert (content["status"], content["after_execution"]) == (
            payload["status"],
            payload["after_execution"],
        )

    def check_output(self, row: Row) -> None:
        output = row["payload"]["output_box_id"]
        [pointers] = self.rows(
            "SELECT * FROM state.agent_state_pointers WHERE project_id = %(project)s AND agent_id = %(agent)s",
            agent=row["agent_id"],
        )
        assert str(pointers["last_output_box_id"]) == output
        cards = self.rows(
            "SELECT c.* FROM card_boxes AS b, jsonb_array_elements_text(b.card_ids) AS listed (card_id)"
            " JOIN cards AS c USING (card_id) WHERE b.box_id::text = %(box)s AND c.tenant_id = %(project)s"
            " AND c.metadata ->> 'agent_turn_id' = %(turn)s",
            box=output,
        )
        for card in cards:
            metadata = card["metadata"]
            assert card["content"]["__type__"] in READABLE
            assert {"type", "author_id", "created_at", "agent_turn_id"} <= metadata.keys(), metadata
            assert "step_id" in metadata or "terminal_reason" in metadata, metadata
            assert metadata["project_id"] == row["project_id"]
            if metadata["type"] == "tool.result":
                assert {"function_name", "tool_call_id"} <= metadata.keys(), metadata
                assert card["tool_call_id"] == metadata["tool_call_id"]
        assert [card["metadata"]["type"] for card in cards].count("task.deliverable") == 1
