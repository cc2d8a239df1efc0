"""The turn that this process works for: a worker tells its command by the environment."""

import os

from cardbox_cli.errors import UsageError
from cardbox_cli.model.execution.turns import Fence
from cardbox_cli.model.ids import as_box_id


def own_output(box_id: str) -> Fence | None:
    """The fence of the turn that this process works for, if `box_id` is its output box. Raises UsageError."""
    if as_box_id(os.environ.get("CBX_OUTPUT_BOX", "")) != box_id:
        return None
    agent_id, turn_id, epoch = map(os.environ.get, ("CBX_AGENT", "CBX_TURN_ID", "CBX_TURN_EPOCH"))
    if not agent_id or not turn_id or not (epoch or "").isdecimal():
        raise UsageError(
            "CBX_OUTPUT_BOX is set, but CBX_AGENT, CBX_TURN_ID and CBX_TURN_EPOCH do not name a turn",
            hint="a worker sets all four; unset CBX_OUTPUT_BOX elsewhere",
        )
    return Fence(agent_id, turn_id, int(epoch or ""))


def own_context() -> str | None:
    """The context box of the turn that this process works for, if there is one."""
    return as_box_id(os.environ.get("CBX_CONTEXT_BOX", ""))
