"""Commands that did not succeed: the error code, the words, and what people need to see of them."""

from signal import Signals
from typing import Any

from cardbox_cli.execution.tool_calls import ToolCall
from cardbox_cli.execution.worker.commands.command import MAX_OUTPUT, Ran
from cardbox_cli.execution.worker.redaction import LONGEST, redacted
from cardbox_cli.model import exact_json
from cardbox_cli.model.execution.logs import last_lines

FAILED, TIMED_OUT, TOO_LONG = "command_failed", "command_timeout", "output_too_long"

# Characters of stderr that a deliverable or a result holds, and of an output that is no answer.
TAIL = 4000
_SHOWN = 1000


def why_failed(ran: Ran, call: ToolCall | None, timeout: float) -> tuple[str, str]:
    """The code and the words for a command that did not succeed: that of a call, or the model's."""
    what = "the command" if call is None else f"the tool {call.tool_name!r}"
    if ran.timed_out:
        return TIMED_OUT, f"{what} took longer than {timeout:g} seconds"
    if ran.too_long:
        return TOO_LONG, f"{what} printed more than {MAX_OUTPUT} bytes"
    if ran.exit_code < 0:
        return FAILED, f"{what} was killed by {_signal_name(-ran.exit_code)}"
    return FAILED, f"{what} ended with exit code {ran.exit_code}"


def _signal_name(number: int) -> str:
    """How a signal is called; those between the first and the last real-time one have numbers only."""
    try:
        return Signals(number).name
    except ValueError:
        return f"signal {number}"


def diagnostics(ran: Ran) -> dict[str, Any]:
    """What people need to see why a command failed."""
    head = ran.stdout[: _SHOWN + LONGEST].decode(errors="replace")
    return {
        "exit_code": ran.exit_code,
        "seconds": round(ran.duration, 3),
        "stderr_tail": ran.stderr[-TAIL:],
        "stdout_head": exact_json.storable_text(redacted(head)[:_SHOWN]),
    }


def told_failure(what: str, ran: Ran) -> str:
    """A line of a worker's log for a command that failed, and the last lines of its stderr below it."""
    lines = last_lines(ran.stderr[-TAIL:])
    return "\n    ".join([what + ("; its stderr ends:" if lines else ""), *lines])
