"""Whatever number or depth Postgres holds, in every JSON column: each turn can be looked at, and freed."""

import re
from decimal import Decimal
from pathlib import Path

import pytest

from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model import exact_json
from cardbox_cli.model.execution.headers import parse_lineage
from cardbox_cli.store.connection.database import Database
from tests.conftest import Cbx
from tests.execution.desk import Desk
from tests.execution.fixtures import Asked

JSON_COLUMNS = (
    "SELECT format('%I.%I', table_schema, table_name), quote_ident(column_name) FROM information_schema.columns"
    " WHERE data_type = 'jsonb' AND table_schema IN ('public', 'resource', 'state', 'cbx')"
)
# Nobody's own values are lost: objects and lists get one more.
POISONED = (
    "CASE jsonb_typeof({0}) WHEN 'object' THEN {0} || jsonb_build_object('odd', {1}::jsonb)"
    " WHEN 'array' THEN {0} || jsonb_build_array({1}::jsonb) ELSE {1}::jsonb END"
)
ODD = {
    "large": "1e5000",
    "largest": "1e131071",
    "fine": "1e-16383",
    "deep": "[" * 3000 + "]" * 3000,
}


def poison(database: Database, value: str) -> None:
    """Put a value into every JSON value of every row, as another program could."""
    connection = database.connection
    connection.execute("ALTER TABLE cbx.audit DISABLE TRIGGER USER")
    for table, column in connection.execute(JSON_COLUMNS.encode()).fetchall():
        made = POISONED.format(column, f"'{value}'")
        connection.execute(f"UPDATE {table} SET {column} = {made} WHERE {column} IS NOT NULL".encode())  # noqa: S608  # our own tables


@pytest.mark.parametrize("value", ODD.values(), ids=ODD)
def test_a_turn_with_an_extreme_number_can_be_shown_and_fixed(
    database: Database, runtime: Runtime, ask: Asked, cbx: Cbx, value: str
) -> None:
    ask()
    turn = Desk(runtime).waiting("c1").fence.agent_turn_id
    poison(database, value)
    reading = [
        *(["why", "--all"], ["why", turn], ["turn", "show", turn], ["turn", "list"], ["turn", "trace", turn]),
        *(["inbox", "list"], ["inbox", "show", turn], ["agent", "list"], ["agent", "show", "clerk"]),
        *(["card", "list"], ["box", "list"], ["render", "--turn", turn], ["profile", "list"]),
        *(["profile", "show", "clerk"], ["project", "show"], ["turn", "logs", turn], ["reap"]),
    ]
    answers = {tuple(words): cbx(*words, "-o", "json") for words in reading}
    assert not {words: answer.err for words, answer in answers.items() if answer.code not in (0, 8)}
    if "e" in value:
        shown = cbx("inbox", "show", turn, "-o", "json").out.partition('"odd": ')[2]
        assert Decimal(re.split("[^0-9.Ee-]", shown)[0]) == Decimal(value)
    seen = exact_json.decode(cbx("turn", "show", turn, "-o", "json").out)["turn_epoch"]
    fixing = [
        ["turn", "nudge", turn],
        ["turn", "requeue", turn, "--expect-epoch", str(seen), "--reason", "r"],
        ["turn", "stop", turn],
    ]
    assert [cbx(*words).code for words in fixing] == [0, 0, 0]


def test_a_number_with_too_many_digits_is_refused(cbx: Cbx) -> None:
    """Refused is what has more digits than the bound, however it is written; the place is told."""
    add = ("card", "add", "--type", "task.instruction", "--json")
    for number in ("1e5000", "-1e1000", "1e-1000", "9" * 1001, "1." + "1" * 1000):
        refused = cbx(*add, f'{{"a": [1, {number}]}}')
        assert refused.code == 4
        assert "content.data.a[1]: is a number of more than 1000 digits, written out" in refused.err
    for number in ("1e999", "1e-999", "9" * 1000, "-1.5e-300"):
        added = cbx(*add, f'{{"a": {number}}}', "-o", "json")
        assert added.code == 0, added.err


def test_numbers_with_too_many_digits_in_total_are_refused(cbx: Cbx, tmp_path: Path) -> None:
    """A few characters stand for a thousand digits: a value of 2 MB was one of 300 MB when it was stored."""
    many, file = f"[{','.join(['1e999'] * 1100)}]", tmp_path / "chat.json"
    file.write_text(f'{{"messages": [{{"role": "user", "content": "hi", "seen": {many}}}]}}')
    schema = f'{{"type": "object", "properties": {{"a": {{"enum": {many}}}}}}}'
    commands = {
        ("card", "add", "--type", "task.instruction", "--json", f'{{"a": {many}}}'): "content.data.a[1006]: ",
        ("card", "import", str(file)): "seen[1006]: ",
        ("tool", "add", "t", "--schema", schema): "parameters.properties.a.enum[1006]: ",
    }
    for words, place in commands.items():
        refused = cbx(*words)
        assert refused.code in (2, 4), (words[:3], refused)
        assert f"{place}makes the numbers of the value grow by more than 1000000 digits" in refused.err


@pytest.mark.parametrize("depth", ["9" * 5000, "٣", "-1", "1e3"])
def test_an_invalid_depth_counts_as_zero(
    database: Database, runtime: Runtime, ask: Asked, cbx: Cbx, depth: str
) -> None:
    """Headers are texts, and other programs write them."""
    turn = ask().agent_turn_id or ""
    database.connection.execute(
        "UPDATE state.agent_inbox SET context_headers = context_headers || jsonb_build_object(%s::text, %s::text)",
        ("CG-Recursion-Depth", depth),
    )
    for words in (["turn", "show", turn], ["why", turn], ["turn", "trace", turn], ["why", "--all"]):
        answer = cbx(*words)
        assert answer.code in (0, 8), answer.err
    assert parse_lineage({"CG-Recursion-Depth": depth}).depth == 0
