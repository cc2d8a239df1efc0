"""How long a turn waits for calls, as a function of values."""

from typing import Any

import pytest

from cardbox_cli.execution.tool_calls import ToolCall
from cardbox_cli.execution.worker.turn_ledger import Suspension, plan_suspension
from cardbox_cli.model.identity import Tool


def tool(name: str, **options: Any) -> Tool:
    return Tool(
        tool_name=name,
        description=None,
        parameters={},
        target_subject=None,
        after_execution=None,
        options=options,
    )


def call(name: str) -> ToolCall:
    return ToolCall(tool_call_id=f"call of {name}", tool_name=name, arguments="{}")


TOOLS = [tool("look"), tool("ask", timeout_seconds=900), tool("peek", timeout_seconds=5)]


@pytest.mark.parametrize(
    ("names", "at_least", "seconds"),
    [
        (["look"], 0, 300),
        (["unknown"], 0, 300),
        (["peek"], 0, 5),
        (["ask"], 0, 900),
        (["peek", "look", "ask"], 0, 900),
        (["peek", "look"], 0, 300),
        (["peek"], 60, 60),
        (["ask"], 60, 900),
    ],
)
def test_the_slowest_tool_determines_the_wait(names: list[str], at_least: float, seconds: float) -> None:
    found = plan_suspension(TOOLS, [call(name) for name in names], tool_wait=300, at_least=at_least)
    assert found == Suspension(calls={f"call of {name}": name for name in names}, seconds=seconds)
