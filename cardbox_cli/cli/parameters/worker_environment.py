"""The turn that this process works for: a worker tells its command by the environment."""

import re

from cardbox_cli.errors import CardConflict, UsageError
from cardbox_cli.model.chats import CHAT_AGENT
from cardbox_cli.model.execution.turns import Fence
from cardbox_cli.model.ids import as_box_id
from cardbox_cli.settings import AGENT, CHAT_RUN, CONTEXT_BOX, OUTPUT_BOX, STEP, TURN_EPOCH, TURN_ID


def is_epoch(text: str) -> bool:
    """Whether a variable's text is an epoch."""
    return re.fullmatch("[0-9]{1,9}", text) is not None


def own_output(box_id: str) -> Fence | None:
    """The fence of the turn that this process works for, if `box_id` is its output box. Raises UsageError."""
    if as_box_id(OUTPUT_BOX.text()) != box_id:
        return None
    agent_id, turn_id, epoch = AGENT.text(), TURN_ID.text(), TURN_EPOCH.text()
    if not agent_id or not turn_id or not is_epoch(epoch):
        raise UsageError(
            "CBX_OUTPUT_BOX is set, but CBX_AGENT, CBX_TURN_ID and CBX_TURN_EPOCH do not name a turn",
            hint="a worker sets all four; unset CBX_OUTPUT_BOX elsewhere",
        )
    return Fence(agent_id, turn_id, int(epoch))


def own_turn() -> dict[str, str]:
    """What the cards that this process writes say of the turn, or the run of a chat, that it works for.

    Nothing where there is none. Their author is the turn's agent, or the chat's, whoever is named.
    """
    if TURN_ID.text():
        named = {"agent_turn_id": TURN_ID.text(), "step_id": STEP.text(), "author_id": AGENT.text()}
    elif CHAT_RUN.text():
        named = {"agent_turn_id": CHAT_RUN.text(), "step_id": STEP.text(), "author_id": CHAT_AGENT}
    else:
        return {}
    return {name: value for name, value in named.items() if value}


_NEW_CARD = "write a new card, and append it to the turn's output box"
ANSWER = "say it in the answer; whoever asked may write it"


def refuse_inside_turn(what: str, *, hint: str = _NEW_CARD) -> None:
    """Raise CardConflict where this process works for a turn, or a run of a chat.

    Neither may do `what`.
    """
    of = TURN_ID if TURN_ID.text() else CHAT_RUN
    turn_id = of.text()
    if turn_id:
        raise CardConflict(
            f"the command of a {'turn' if of is TURN_ID else 'run'} ({of.name}={turn_id}) may not {what}",
            hint=hint,
            details={"agent_turn_id": turn_id},
        )


def own_context() -> str | None:
    """The context box of the turn that this process works for, if there is one."""
    return as_box_id(CONTEXT_BOX.text())
