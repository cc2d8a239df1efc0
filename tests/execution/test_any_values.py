"""Any legal value in any column, as other programs and accidents write them: no command that reads crashes.

Every table of execution is filled with rows whose ids refer to each other and whose other columns hold what
Postgres allows: `infinity`, dates before Christ, texts that no status is, JSON of any kind. Whatever a command makes
of it, exit code 1 (a bug) is none of its answers.
"""

from functools import cache
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql

from cardbox_cli.limits import EARLIEST, LATEST
from cardbox_cli.store.connection.database import Database, jsonb
from cardbox_cli.text.times import format_infinity
from tests import jsonb_values
from tests.conftest import PROJECT, TABLES, Cbx
from tests.execution.fixtures import Asked

# What refers to what: few ids, so that rows meet.
TURNS = ["turn_1", "turn_2", "turn_3"]
AGENTS = ["clerk", "scribe"]
BOXES = [f"00000000-0000-7000-8000-00000000000{number}" for number in range(3)]
CARDS = ["card_1", "card_2"]
IDS: dict[str, list[str]] = {
    "project_id": ["p"],
    "tenant_id": ["p"],
    "inbox_id": [*TURNS, "inbox_1"],
    "agent_turn_id": TURNS,
    "active_agent_turn_id": TURNS,
    "source_agent_turn_id": TURNS,
    "target_agent_turn_id": TURNS,
    "agent_id": AGENTS,
    "source_agent_id": [*AGENTS, "sys.x"],
    "target_agent_id": AGENTS,
    "chat_key": ["chat-1"],
    "correlation_id": [*TURNS, "call_1"],
    "tool_call_id": ["call_1", "call_2"],
    "worker_target": ["", "worker_generic"],
    "card_id": CARDS,
    "deliverable_card_id": CARDS,
    "message_type": ["turn", "turn", "tool_result", "timeout", "stop", "ui_action", "command_anchor"],
    "primitive": ["enqueue", "report"],
    "edge_phase": ["request", "response"],
    "status": [
        "idle",
        "dispatched",
        "running",
        "suspended",
        "queued",
        "pending",
        "processing",
        "consumed",
        "active",
    ],
    "wait_status": ["waiting", "received", "applied", "expired", "dropped"],
    "end_status": ["success", "failed"],
    "knowledge_scope": ["project", "boxes", "none"],
}
NONSENSE = ["", "busy", "-", "\x1b[2J\u202e", "'; --", "é" * 300, "infinity", "2026-01-01", "null"]
INSTANTS = [
    "infinity",
    "-infinity",
    "0044-03-15 12:00:00 BC",
    "294276-12-31",
    "0001-01-01",
    "9999-12-31",
    "now",
]
DOCUMENTS = [
    None,
    [],
    "x",
    7,
    {},
    {"context_box_id": BOXES[0], "profile_box_id": 3, "output_box_id": BOXES[1], "runtime_config": "no"},
    {
        "type": "task.deliverable",
        "agent_turn_id": TURNS[0],
        "role": [],
        "created_at": "then",
        "step_id": None,
    },
    {"type": "agent.thought", "agent_turn_id": TURNS[0]},
    {"CG-Recursion-Depth": "99999999999", "traceparent": "00-00-00", "CG-Parent-Turn-Id": TURNS[1]},
    {"agent_id": 1, "agent_turn_id": TURNS[1], "tool_call_id": {"x": []}},
    {"report_to": {"tool_call_id": ["call_1"]}, "llm_usage": "many", "request": {"hash": 1, "slots": 3}},
    {"__type__": "TextContent", "text": "hi"},
    {"__type__": "JsonContent", "data": {"kind": "fallback_deliverable", "status": [], "diagnostics": 4}},
    {"__type__": "Unknown", "tool_name": 4, "arguments": []},
    [{"id": 3, "function": {"name": {}, "arguments": 5}}, "call", None],
    CARDS,
]
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "text": st.sampled_from(NONSENSE),
    "timestamp with time zone": st.sampled_from(INSTANTS),
    "bigint": st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)]),
    "integer": st.sampled_from([0, 1, -1, 2**31 - 1, -(2**31)]),
    "boolean": st.booleans(),
    "bytea": st.binary(min_size=32, max_size=32),
    "uuid": st.sampled_from(BOXES),
    "ARRAY": st.lists(st.sampled_from(NONSENSE), max_size=3),
    "jsonb": (st.sampled_from(DOCUMENTS) | jsonb_values.values).map(jsonb),
}
COLUMNS = "SELECT column_name, data_type, is_nullable = 'YES' FROM information_schema.columns"
FILLED = [table for table in TABLES if table != "cbx.schema_version"]
READING = [
    ["why", "--all"],
    *(["why", turn] for turn in TURNS[:2]),
    ["why", "--agent", "clerk"],
    ["turn", "list"],
    ["turn", "list", "--status", "ended"],
    *(["turn", "show", turn] for turn in TURNS[:2]),
    ["turn", "trace", TURNS[0]],
    ["turn", "wait", TURNS[0], "--timeout", "0"],
    ["inbox", "list"],
    ["inbox", "show", TURNS[0]],
    ["agent", "list"],
    ["agent", "show", "clerk"],
    ["worker", "list"],
    ["db", "status"],
    ["card", "list"],
    ["card", "show", CARDS[0]],
    ["box", "list"],
    ["box", "show", BOXES[0]],
    ["render", "--turn", TURNS[0]],
    ["profile", "list"],
    ["project", "list"],
    ["project", "show"],
    ["tool", "list"],
    ["batch", "list"],
    ["chat", "list"],
    ["chat", "show", "chat-1"],
    ["chat", "why", "chat-1"],
    ["cost", TURNS[0]],
    ["token", "list"],
]


@cache
def row_strategy(columns: tuple[tuple[str, str, bool], ...]) -> st.SearchStrategy[dict[str, Any]]:
    """Rows of a table: ids that meet others, now and then any text, everything else as it comes."""
    values = {}
    for name, kind, nullable in columns:
        value = KINDS[kind]
        if name in IDS:
            known = st.sampled_from(IDS[name])
            value = (
                known
                if kind != "text" or name in ("project_id", "tenant_id")
                else known | known | known | value
            )
        values[name] = st.none() | value if nullable else value
    return st.fixed_dictionaries(values)


def insert(connection: psycopg.Connection[Any], table: str, row: dict[str, Any]) -> None:
    """Write a row, unless a constraint forbids it."""
    statement = sql.SQL("INSERT INTO {} ({}) VALUES ({}) ON CONFLICT DO NOTHING").format(
        sql.Identifier(*table.split(".")),
        sql.SQL(", ").join(map(sql.Identifier, row)),
        sql.SQL(", ").join([sql.Placeholder()] * len(row)),
    )
    try:
        with connection.transaction():
            connection.execute(statement, list(row.values()))
    except (psycopg.errors.CheckViolation, psycopg.errors.DataError):
        pass


@given(st.data())
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_read_command_crashes(database: Database, cbx: Cbx, data: st.DataObject) -> None:
    connection = database.connection
    connection.execute("ALTER TABLE cbx.audit DISABLE TRIGGER USER")
    connection.execute(b"TRUNCATE " + ", ".join(FILLED).encode() + b" CASCADE")
    for table in FILLED:
        schema, name = table.split(".")
        columns = connection.execute(
            COLUMNS.encode() + b" WHERE table_schema = %s AND table_name = %s ORDER BY 1", [schema, name]
        ).fetchall()
        for row in data.draw(st.lists(row_strategy(tuple(columns)), min_size=1, max_size=6), label=table):
            insert(connection, table, row)
    kind = data.draw(st.sampled_from(["table", "json"]), label="output")
    answers = {tuple(words): cbx(*words, "-o", kind) for words in READING}
    assert not {words: answer.err for words, answer in answers.items() if answer.code == 1}


@pytest.mark.parametrize(
    ("stored", "read", "shown"),
    [
        ("infinity", LATEST, "infinity"),
        ("294276-12-31", LATEST, "infinity"),
        ("-infinity", EARLIEST, "-infinity"),
        ("0044-03-15 BC", EARLIEST, "-infinity"),
    ],
)
def test_a_date_out_of_range_is_shown(
    database: Database, cbx: Cbx, stored: str, read: Any, shown: str
) -> None:
    """A row with such a date is listed with the others, and the date is the one that it holds."""
    database.connection.execute(
        "INSERT INTO state.agent_inbox (project_id, inbox_id, agent_id, message_type, agent_turn_id, status,"
        " next_retry_at, created_at) VALUES ('p', 'turn_1', 'clerk', 'turn', 'turn_1', 'deferred', %s, now())",
        [stored],
    )
    database.connection.execute(
        "INSERT INTO state.agent_state_head (project_id, agent_id, status, active_agent_turn_id, updated_at)"
        " VALUES ('p', 'clerk', 'dispatched', 'turn_1', now())"
    )
    [row] = cbx("inbox", "list", "-o", "json").json()
    assert row["next_retry_at"] == f"{read:%Y-%m-%dT%H:%M:%S.%fZ}".replace(".000000Z", "Z").rjust(20, "0")
    assert format_infinity(read) == shown
    assert f" {shown}" in cbx("inbox", "show", "turn_1").out
    found = cbx("why", "turn_1", "-o", "json").json()
    if shown == "infinity":
        assert (found["rule"], shown in str(found["evidence"])) == ("retry-far-ahead", True)
    value = database.connection.execute("SELECT next_retry_at FROM state.agent_inbox").fetchone()
    assert value == (read,)


@pytest.mark.parametrize("odd", ['{"x": []}', '{"x": ["y"]}', '{"x": [[]]}', "[[]]"])
def test_a_list_instead_of_a_string_crashes_no_command(
    odd: str, ask: Asked, cbx: Cbx, database: Database
) -> None:
    turn = ask().agent_turn_id or ""
    database.connection.execute("UPDATE cbx.turns SET report_to = %s", [odd])
    database.connection.execute(
        "INSERT INTO cbx.project_settings (project_id, reproducible_layers) VALUES (%s, %s)", [PROJECT, odd]
    )
    for words in (["why", "--all"], ["why", turn], ["turn", "show", turn], ["render", "--turn", turn]):
        answer = cbx(*words)
        assert answer.code != 1, answer.err
