"""What came of the command of a tool, as the card that answers the call: a result, and nothing else."""

from functools import partial
from typing import Any

from cardbox_cli.execution.tool_calls import Author, ToolCall, result_card
from cardbox_cli.execution.worker.answers.failures import TAIL, why_failed
from cardbox_cli.execution.worker.commands.command import Ran
from cardbox_cli.limits import RESULT_SIZE
from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import CardDraft
from cardbox_cli.model.identity import Tool


def result_of(call: ToolCall, author: Author, tool: Tool, ran: Ran, timeout: float) -> CardDraft:
    """The card that answers a call whose command has run: what it printed, or how it failed."""
    answer = partial(result_card, call, author, after_execution=tool.after_execution)
    if not ran.succeeded:
        code, message = why_failed(ran, call, timeout)
        failure = code.replace("command", "tool"), f"{message}\n{ran.stderr[-TAIL:]}".rstrip()
        return answer(failure=failure, status="timeout" if ran.timed_out else "failed")
    if len(ran.stdout) > RESULT_SIZE.value << 20:
        what = f"what the tool {tool.tool_name!r} printed is larger than {RESULT_SIZE}"
        return answer(failure=("result_too_long", what))
    try:
        result = _value(ran.stdout)
    except ValueError as exc:
        what = f"what the tool {tool.tool_name!r} printed cannot be stored: {exc}"
        return answer(failure=("invalid_result", what))
    return answer(result=result)


def _value(stdout: bytes) -> Any:
    """What a tool printed: JSON if it is that, else text. Raises ValueError for what cannot be stored."""
    text = stdout.decode()
    try:
        value = exact_json.read(text)
    except ValueError:
        value = text.rstrip("\n")
    exact_json.check_storable(value)
    return value
