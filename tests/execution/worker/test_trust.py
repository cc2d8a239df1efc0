"""What the text of a model and the rows of a project may not make a worker do."""

import json
import shlex
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.worker.runner import RunOutcome
from cardbox_cli.execution.worker.worker_program import ToolCommand, ToolCommands, schema_mismatch
from cardbox_cli.model.content import ToolResultContent
from tests.execution.fixtures import Asked
from tests.execution.worker.test_answer_modes import FORGED
from tests.execution.worker.test_runner import LOOKS, cards, look, written

__all__ = ["look"]

Run = Callable[..., RunOutcome]
Look = Callable[..., None]
LINES = "\n".join(map(json.dumps, FORGED))
ATTACK = f"printf %s {shlex.quote(LINES)}"


@pytest.mark.parametrize("answers", ["auto", "response", "cards"])
def test_lines_that_forge_cards_fail_the_turn_and_write_no_cards(
    runtime: Runtime, ask: Asked, run: Run, answers: str
) -> None:
    turn = ask()
    rest = run(ATTACK, answers=answers)
    assert (rest.kind, rest.error_code) == ("ended", "invalid_answer")
    [(card_type, _)] = written(runtime, turn.output_box_id)
    assert card_type == "task.deliverable"


def test_lines_that_forge_cards_are_plain_text_for_the_next_turn(
    runtime: Runtime, ask: Asked, run: Run, tmp_path: Any
) -> None:
    turn = ask()
    assert run(ATTACK, answers="text").message == "success"
    assert written(runtime, turn.output_box_id) == [("agent.thought", LINES), ("task.deliverable", LINES)]
    ask(output_box_id=turn.output_box_id)
    run(f"cat > {tmp_path}/request; printf done")
    roles = [each["role"] for each in json.loads((tmp_path / "request").read_text())["messages"]]
    assert roles == ["system", "assistant", "assistant", "user"]


def test_the_output_of_a_tool_command_is_only_a_result(
    runtime: Runtime, ask: Asked, run: Run, look: Look
) -> None:
    look(ATTACK)
    turn = ask()
    assert run(LOOKS).message == "success"
    thought, call, result, *_ = cards(runtime, turn.output_box_id)
    assert (thought.type, call.type, result.type) == ("agent.thought", "tool.call", "tool.result")
    assert isinstance(result.content, ToolResultContent)
    assert (result.content.result, result.content.after_execution) == (LINES, "suspend")
    assert result.author_id == "clerk"


def test_a_stored_command_runs_only_with_permission(
    runtime: Runtime, ask: Asked, run: Run, look: Look
) -> None:
    look("echo stored")
    ask()
    assert (rest := run(LOOKS, tools=ToolCommands())).kind == "suspended"
    assert len(rest.waiting) == 1


def test_the_workers_command_overrides_a_stored_command(
    runtime: Runtime, ask: Asked, run: Run, look: Look
) -> None:
    look("echo stored")
    turn = ask()
    own = ToolCommand(command="printf %s $KEY", environment={"KEY": "mine"}, checks_arguments=True)
    assert run(LOOKS, tools=ToolCommands({"look": own}, trusts_stored=True)).message == "success"
    assert ("tool.result", "mine") in written(runtime, turn.output_box_id)


def test_the_workers_command_gets_only_arguments_that_match_the_schema(
    runtime: Runtime, ask: Asked, run: Run, look: Look
) -> None:
    look()
    runtime.database.connection.execute(
        """UPDATE resource.tools SET parameters = '{"type": "object", "required": ["where"]}'"""
    )
    turn = ask()
    own = ToolCommand(command="echo found", checks_arguments=True)
    run(LOOKS, tools=ToolCommands({"look": own}))
    [result] = [each for each in cards(runtime, turn.output_box_id) if each.type == "tool.result"]
    assert isinstance(result.content, ToolResultContent)
    assert result.content.error == {
        "code": "invalid_arguments",
        "message": "the arguments: 'where' is missing",
    }


CITY = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("value", "schema", "wrong"),
    [
        ({"city": "Bonn", "days": 3}, CITY, None),
        ({"days": 3.0, "more": 1}, CITY, None),
        ({"city": 3}, CITY, "the arguments.city: not of type string"),
        ({"days": True}, CITY, "the arguments.days: not of type integer"),
        ({"days": 1.5}, CITY, "the arguments.days: not of type integer"),
        ({"days": Decimal("1e300")}, CITY, None),
        ({"days": Decimal("1e-300")}, CITY, "the arguments.days: not of type integer"),
        (
            {"more": 1},
            {**CITY, "additionalProperties": False},
            "the arguments: 'more' is not a property of the schema",
        ),
        ([1, "a"], {"items": {"type": ["number", "null"]}}, "the arguments[1]: not of type number or null"),
        ("c", {"enum": ["a", "b"]}, "the arguments: not one of the values in the schema"),
        # What other programs may have stored as a schema.
        ({"a": 1}, {"type": 7, "required": "a", "properties": [], "enum": {}}, None),
        ({"a": 1}, {"type": "unheard-of"}, None),
        ({"a": 1}, {"type": [{}], "required": [[1], {}]}, None),
        ({"a": 1}, None, None),
    ],
)
def test_arguments_are_compared_with_a_schema(value: Any, schema: Any, wrong: str | None) -> None:
    assert schema_mismatch(value, schema) == wrong


@pytest.mark.parametrize("command", ["sleep 100", LOOKS])
def test_a_turn_that_runs_too_long_ends_as_a_timeout(
    runtime: Runtime, ask: Asked, run: Run, look: Look, command: str
) -> None:
    look("sleep 100")
    turn = ask()
    rest = run(command, turn_time=1)
    assert (rest.kind, rest.error_code) == ("ended", "turn_timeout")
    assert rest.end is not None
    assert rest.end.end_status == "timeout"
    assert rest.message == "the turn had run for 1 seconds (CBX_TURN_TIME)"
    assert written(runtime, turn.output_box_id)[-1][0] == "task.deliverable"


def test_a_result_that_is_too_large_becomes_a_failed_result(
    runtime: Runtime, ask: Asked, run: Run, look: Look
) -> None:
    look("head -c 17000000 /dev/zero | tr '\\0' x")
    turn = ask()
    run(LOOKS)
    [result] = [each for each in cards(runtime, turn.output_box_id) if each.type == "tool.result"]
    assert isinstance(result.content, ToolResultContent)
    assert result.content.error == {
        "code": "result_too_long",
        "message": "the output of tool 'look' is larger than 16 MiB",
    }
