"""The turn that this process works for: a worker tells its command by the environment."""

from cardbox_cli.errors import CardConflict, UsageError
from cardbox_cli.model.execution.turns import Fence
from cardbox_cli.model.ids import as_box_id
from cardbox_cli.settings import AGENT, CONTEXT_BOX, OUTPUT_BOX, STEP, TURN_EPOCH, TURN_ID


def own_output(box_id: str) -> Fence | None:
    """The fence of the turn that this process works for, if `box_id` is its output box. Raises UsageError."""
    if as_box_id(OUTPUT_BOX.text()) != box_id:
        return None
    agent_id, turn_id, epoch = AGENT.text(), TURN_ID.text(), TURN_EPOCH.text()
    if not agent_id or not turn_id or not epoch.isdecimal():
        raise UsageError(
            "CBX_OUTPUT_BOX is set, but CBX_AGENT, CBX_TURN_ID and CBX_TURN_EPOCH do not name a turn",
            hint="a worker sets all four; unset CBX_OUTPUT_BOX elsewhere",
        )
    return Fence(agent_id, turn_id, int(epoch))


def own_turn() -> dict[str, str]:
    """What the cards that this process writes say of the turn that it works for; nothing where there is none.

    Its author is the turn's agent, whoever the command line names.
    """
    if not TURN_ID.text():
        return {}
    named = {"agent_turn_id": TURN_ID.text(), "step_id": STEP.text(), "author_id": AGENT.text()}
    return {name: value for name, value in named.items() if value}


def refuse_inside_turn(what: str) -> None:
    """Raise CardConflict where this process works for a turn, which may not do `what` to stored cards."""
    turn_id = TURN_ID.text()
    if turn_id:
        raise CardConflict(
            f"the command of a turn (CBX_TURN_ID={turn_id}) may not {what}",
            hint="write a new card, and append it to the turn's output box",
            details={"agent_turn_id": turn_id},
        )


def own_context() -> str | None:
    """The context box of the turn that this process works for, if there is one."""
    return as_box_id(CONTEXT_BOX.text())
