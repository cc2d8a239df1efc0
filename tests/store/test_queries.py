"""Queries are assembled from parts of `store/sql`: fragments, and the fields of the structs that rows become."""

import re
import subprocess
import sys
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from pglast import ast, parse_sql
from pglast.visitors import Visitor

from cardbox_cli import store
from cardbox_cli.model.chats import Archive, Chat, ChatRun, SearchCandidate
from cardbox_cli.model.execution.batches import Batch, BatchTask
from cardbox_cli.model.execution.turns import (
    AuditEntry,
    CommandLog,
    Edge,
    Head,
    InboxRow,
    Lease,
    LogTail,
    Step,
    TurnRecord,
    WaitingTool,
    WorkerEntry,
)
from cardbox_cli.model.identity import Agent, ApiToken, Project, Tool
from cardbox_cli.store.connection import queries
from tests.store.sql_rules import numbered

SQL = "\n".join(
    file.read_text(encoding="utf-8")
    for file in sorted((Path(str(store.__file__)).parent / "sql").glob("*.sql"))
)
# A query for each struct whose fields a part lists, and which selects that struct alone.
ROWS: dict[str, type[msgspec.Struct]] = {
    "agent_by_id": Agent,
    "api_tokens": ApiToken,
    "audit_of_turn": AuditEntry,
    "batch": Batch,
    "chat": Chat,
    "chat_context": Archive,
    "chat_run": ChatRun,
    "edges_of_turn": Edge,
    "findable_chat_contexts": SearchCandidate,
    "head": Head,
    "inbox_row": InboxRow,
    "lease": Lease,
    "log_tails": LogTail,
    "logs_of_turn": CommandLog,
    "project_by_id": Project,
    "steps_of_chat_run": Step,
    "steps_of_turn": Step,
    "tasks_of_batch": BatchTask,
    "tool_by_name": Tool,
    "turn_record": TurnRecord,
    "waiting_tools": WaitingTool,
    "workers": WorkerEntry,
}


def test_every_part_has_a_unique_name() -> None:
    parts = Counter(re.findall(r"^-- (name|fragment): (\w+)$", SQL, re.MULTILINE))
    assert len(parts) > 500
    assert {part for part, count in parts.items() if count > 1} == set()


def test_every_struct_in_the_sql_parts_has_a_test_query() -> None:
    listed = set(re.findall(r"\{fields:(\w+) \w+\}", SQL))
    assert listed == {struct.__name__ for struct in ROWS.values()}


@pytest.mark.parametrize(("name", "struct"), ROWS.items(), ids=list(ROWS))
def test_a_row_has_each_field_of_its_struct_once(name: str, struct: type[msgspec.Struct]) -> None:
    keys = _keys(queries.query(name))
    assert Counter(keys) == Counter(field.name for field in msgspec.structs.fields(struct))


@pytest.mark.parametrize(("name", "struct"), ROWS.items(), ids=list(ROWS))
def test_timestamps_of_a_row_are_in_utc(name: str, struct: type[msgspec.Struct]) -> None:
    text = queries.query(name)
    for field in msgspec.structs.fields(struct):
        is_instant = datetime in (field.type, *get_args(field.type))
        assert is_instant == bool(re.search(rf"'{field.name}', to_char\(", text)), field.name


def _keys(text: str) -> list[str]:
    """Return the keys of the one JSON object that a query makes."""
    found: list[str] = []

    class Objects(Visitor):
        def visit_FuncCall(self, _: object, node: ast.FuncCall) -> None:
            if (node.funcname or ())[-1].sval == "json_build_object":
                found.extend(key.val.sval for key in (node.args or ())[::2])

    Objects()(parse_sql(numbered(text)[0]))
    return found


def test_only_a_query_that_is_used_imports_its_struct() -> None:
    code = (
        "import sys; from cardbox_cli.store.connection.queries import query; home = 'cardbox_cli.model.execution.turns';"
        " query('clock'); print(home in sys.modules); query('head'); print(home in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
