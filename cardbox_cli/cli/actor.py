"""Who acts at this command line: a person, whom the audit names, or the turn that this process works for.

A person is the operating system's user in the database's role: no variable has a say. A worker names the turn
to its command by the environment.
"""

import os
import re
from typing import TYPE_CHECKING, Any

from cardbox_cli.cli.session import session
from cardbox_cli.errors import CardConflict, UsageError
from cardbox_cli.model.ids import as_box_id
from cardbox_cli.settings import AGENT, CHAT_RUN, CONTEXT_BOX, OUTPUT_BOX, STEP, TURN_EPOCH, TURN_ID

if TYPE_CHECKING:
    from cardbox_cli.model.execution.turns import Fence
    from cardbox_cli.store.connection.database import Database
    from cardbox_cli.store.in_use import Force


def audit(database: "Database", action: str, **detail: Any) -> None:
    """Write down, in the transaction of what is done, that the person here did this in the run's project."""
    audit_in(database, session().project_id, action, **detail)


def audit_in(database: "Database", project_id: str, action: str, **detail: Any) -> None:
    """`audit` in a project of that name."""
    from cardbox_cli.store.audit import AuditStore

    AuditStore(database, project_id).write(action, actor=actor(database), detail=detail)


def actor(database: "Database") -> str:
    """Who acts, for the audit: the user on this host, and the role that logged in to the database."""
    import socket

    name = user_name()
    user = f"uid {os.getuid()}" + (f" ({name})" if name else "")
    return f"{user} on {socket.gethostname()} as role {database.login_role}"


def user_name() -> str | None:
    """What this host calls the user of this process; None where it has no name for one."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return None


def forced(force: bool, database: "Database") -> "Force | None":
    """What --force says to a store that changes cards: who it is."""
    from cardbox_cli.store.in_use import Force

    return Force(actor=actor(database)) if force else None


# --- the turn that this process works for


def is_epoch(text: str) -> bool:
    """Whether a variable's text is an epoch."""
    return re.fullmatch("[0-9]{1,9}", text) is not None


def own_output(box_id: str) -> "Fence | None":
    """The fence of the turn that this process works for, if `box_id` is its output box. Raises UsageError."""
    from cardbox_cli.model.execution.turns import Fence

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
    from cardbox_cli.model.chats import CHAT_AGENT

    if TURN_ID.text():
        named = {"agent_turn_id": TURN_ID.text(), "step_id": STEP.text(), "author_id": AGENT.text()}
    elif CHAT_RUN.text():
        named = {"agent_turn_id": CHAT_RUN.text(), "step_id": STEP.text(), "author_id": CHAT_AGENT}
    else:
        return {}
    return {name: value for name, value in named.items() if value}


def own_context() -> str | None:
    """The context box of the turn that this process works for, if there is one."""
    return as_box_id(CONTEXT_BOX.text())


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
