"""Ids, names and texts of other programs: whatever they hold, no line of them passes for one of cbx."""

import json
import re

import pytest
from psycopg import sql

from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.store.connection.database import Database
from cardbox_cli.text.escaping import UNSEEN
from tests.conftest import Cbx
from tests.execution.desk import Desk
from tests.execution.fixtures import Asked

# Each way in which a line can end, and then what must not stand at the margin.
TAIL = "\nFORGED: yes\r\nFORGED\x85FORGED\u2028FORGED\vFORGED\x1b[31mFORGED\u202e"
TEXTS = """
SELECT concat(table_schema, '.', table_name), column_name FROM information_schema.columns
WHERE table_schema IN ('public', 'resource', 'state', 'cbx') AND data_type = 'text'
    AND table_name <> 'schema_version' AND column_name NOT IN ('project_id', 'tenant_id', 'status', 'wait_status',
        'end_status', 'message_type', 'primitive', 'edge_phase', 'knowledge_scope', 'worker_target')
"""


@pytest.fixture
def forged(runtime: Runtime, ask: Asked, database: Database, cbx: Cbx) -> list[str]:
    """Turns that wait, run and failed, each text of all their rows with that tail; the turns' ids."""
    cbx("tool", "add", "look", "--description", "looks")
    ask()
    Desk(runtime).waiting("call_1")
    ask("scribe")
    cbx("worker", "run", "--drain", "--exec", "cat >/dev/null; echo oops >&2; exit 4")
    ask("scribe")
    connection = database.connection
    connection.execute("SET session_replication_role = replica")
    for table, column in connection.execute(TEXTS.encode()).fetchall():
        name = sql.Identifier(column)
        changed = sql.SQL("UPDATE {0} SET {1} = {1} || %s").format(sql.Identifier(*table.split(".")), name)
        connection.execute(changed, [TAIL])
    found = connection.execute("SELECT DISTINCT agent_turn_id FROM state.agent_inbox").fetchall()
    return [turn for (turn,) in found]


def test_stored_text_cannot_forge_output_lines(cbx: Cbx, forged: list[str]) -> None:
    verbs = ["show", "logs", "trace", "wait --timeout 0", "retry", "nudge", "stop --reason x", "report"]
    lines = [
        *(["turn", *verb.split()[:1], turn, *verb.split()[1:]] for turn in forged for verb in verbs),
        *(["render", "--turn", turn, "--verify"] for turn in forged),
        *(["why", turn] for turn in forged),
        *(["inbox", "show", turn] for turn in forged),
        *(
            ["why", "--all"],
            ["turn", "list"],
            ["agent", "list"],
            ["tool", "list"],
            ["worker", "list", "--all"],
        ),
        *(
            ["audit"],
            ["reap"],
            ["worker", "run", "--drain", "--exec", "cat >/dev/null; echo oops >&2; exit 4"],
            ["audit"],
        ),
    ]
    seen = 0
    for words in lines:
        answer = cbx(*words)
        assert answer.code != 1, answer.err
        for printed in (answer.out, answer.err):
            assert not re.search("^FORGED", printed, re.MULTILINE), (words[:2], printed)
            assert not UNSEEN.search(printed), (words[:2], printed)
            seen += "FORGED" in printed
    assert seen > len(lines) // 2


def test_only_the_first_line_of_an_error_is_not_indented(cbx: Cbx, forged: list[str]) -> None:
    answer = cbx("turn", "wait", forged[0], "--timeout", "0", "-o", "id")
    told = cbx("turn", "wait", forged[0], "--timeout", "0", "-o", "json")
    assert [line[:6] for line in answer.err.splitlines() if not line.startswith(" ")] in (
        ["error:"],
        ["error:", "hint: "],
    )
    assert TAIL in json.loads(told.err.splitlines()[-1])["error"]["message"]
