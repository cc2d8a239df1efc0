"""Databases that other programs made: their tables, and what defines and fills tables, to be compared.

`LIBRARY` makes the tables of a card-box library, `ITS_CARDS` fills them a little; `DEPLOYMENT` makes all that an
existing deployment has.
"""

from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

Connection = psycopg.Connection[Any]

_HERE = Path(__file__).parent
LIBRARY = (_HERE / "library.sql").read_text(encoding="utf-8")
DEPLOYMENT = LIBRARY + (_HERE / "deployment.sql").read_text(encoding="utf-8")
CARD_TABLES = ["public.cards", "public.card_boxes"]

ITS_CARDS = """
INSERT INTO cards (card_id, tenant_id, content, tool_calls, tool_call_id, metadata) VALUES
('018f-task', 'p', '{"__type__": "TextContent", "text": "Refund order 118"}', NULL, NULL,
 '{"type": "task.instruction", "role": "user", "author_id": "sys.pmo", "created_at": "2026-03-01T10:00:00"}'),
('018f-call', 'p', '{"__type__": "TextContent", "text": ""}',
 '[{"id": "call_0", "type": "function", "function": {"name": "refund", "arguments": "{}"}}]', NULL,
 '{"type": "agent.thought", "role": "assistant", "author_id": "agent-1"}'),
('018f-done', 'p', '{"__type__": "ToolResultContent", "status": "success", "after_execution": "suspend",
 "result": {"refunded": 1.10}, "error": null}', NULL, 'call_0',
 '{"type": "tool.result", "role": "tool", "function_name": "refund"}'),
('018f-bare', 'p', NULL, NULL, NULL, NULL),
('018f-theirs', 'other', '{"__type__": "TextContent", "text": "Refund order 119"}', NULL, NULL,
 '{"type": "task.instruction", "role": "user"}');
INSERT INTO card_boxes (box_id, tenant_id, card_ids, parent_ids) VALUES
('018f2b64-0000-7000-8000-00000000cafe', 'p',
 '["018f-task", "018f-call", "018f-done", "018f-bare", "018f-lost"]', NULL);
"""

# Everything that defines a table, its name first. No statement changes a table and remains unseen here.
DEFINING = {
    "columns": "SELECT t.oid::regclass::text, c.* FROM information_schema.columns c JOIN our_tables t"
    " ON t.relname = c.table_name ORDER BY 1, ordinal_position",
    "indexes": "SELECT indrelid::regclass::text, pg_get_indexdef(indexrelid), indisvalid"
    " FROM pg_index JOIN our_tables t ON t.oid = indrelid ORDER BY 1, 2",
    "constraints": "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(c.oid)"
    " FROM pg_constraint c JOIN our_tables t ON t.oid = conrelid ORDER BY 1, 2",
    "attributes": "SELECT attrelid::regclass::text, attname, attstorage::text, attcollation, attoptions"
    " FROM pg_attribute JOIN our_tables t ON t.oid = attrelid ORDER BY 1, attnum",
    "tables": "SELECT oid::regclass::text, relfilenode, reloptions, relhastriggers, relowner, relacl::text"
    " FROM our_tables ORDER BY 1",
    "comments": "SELECT objoid::regclass::text, objsubid, description"
    " FROM pg_description JOIN our_tables t ON t.oid = objoid ORDER BY 1, 2",
    "triggers": "SELECT tgrelid::regclass::text, pg_get_triggerdef(g.oid)"
    " FROM pg_trigger g JOIN our_tables t ON t.oid = tgrelid ORDER BY 1, 2",
    "functions": "SELECT oid::regprocedure::text, pg_get_functiondef(oid) FROM pg_proc"
    " WHERE pronamespace::regnamespace::text IN ('public', 'resource', 'state', 'cbx') ORDER BY 1",
}
OUR_TABLES = """
CREATE TEMP VIEW our_tables AS SELECT * FROM pg_class
WHERE relkind = 'r' AND relnamespace::regnamespace::text IN ('public', 'resource', 'state', 'cbx')
"""


def definitions(connection: Connection) -> dict[str, list[Any]]:
    """Everything that defines the tables of a database, by their full names."""
    with connection.transaction(force_rollback=True):
        connection.execute("SET LOCAL search_path = pg_temp")
        connection.execute(OUR_TABLES)
        return {name: connection.execute(query.encode()).fetchall() for name, query in DEFINING.items()}


def of_the_library(found: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Those of `definitions` that are about the library's tables."""
    theirs = (*CARD_TABLES, "public.card_operation_logs")
    return {name: [row for row in rows if row[0] in theirs] for name, rows in found.items()}


def without_file_numbers(found: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """`definitions` without what differs from database to database."""
    tables = [(name, *others) for name, _, *others in found["tables"]]
    columns = [tuple(value for value in row if value != row[1]) for row in found["columns"]]
    return {**found, "tables": tables, "columns": columns}


_ROWS = sql.SQL("SELECT format('%s %s %s', t.ctid, t.xmin, t) FROM {} AS t ORDER BY t.ctid")


def rows(connection: Connection) -> dict[str, list[str]]:
    """Every row of every table that users made. A row that was written again differs, even with equal values."""
    with connection.transaction(force_rollback=True):
        connection.execute(OUR_TABLES)
        names = connection.execute(
            "SELECT relnamespace::regnamespace::text, relname FROM our_tables ORDER BY 1, 2"
        ).fetchall()
        return {
            f"{schema}.{name}": [
                row for (row,) in connection.execute(_ROWS.format(sql.Identifier(schema, name)))
            ]
            for schema, name in names
        }
