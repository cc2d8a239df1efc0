"""The actor of this command line: a person, for the audit, or the turn that this process works for.

A person is identified by the operating system's user and the database's role, which no variable can change. A
worker passes its turn to its command in environment variables.
"""

import os
import re
from typing import TYPE_CHECKING, Any

from cardbox_cli.cli.session import session
from cardbox_cli.errors import CardConflict, UsageError
from cardbox_cli.model.ids import canonical_box_id
from cardbox_cli.settings import AGENT, CHAT_RUN, CONTEXT_BOX, OUTPUT_BOX, STEP, TURN_EPOCH, TURN_ID

if TYPE_CHECKING:
    from cardbox_cli.model.execution.turns import Fence
    from cardbox_cli.store.connection.database import Database
    from cardbox_cli.store.in_use import ForcedBy


def audit(database: "Database", action: str, **detail: Any) -> None:
    """Write an audit row for the session's project. Runs in the transaction of the change."""
    audit_in(database, session().project_id, action, **detail)


def audit_in(database: "Database", project_id: str, action: str, **detail: Any) -> None:
    from cardbox_cli.store.audit import AuditStore

    AuditStore(database, project_id).write(action, actor=actor(database), detail=detail)


def actor(database: "Database") -> str:
    """Return the actor for the audit: the user on this host, and the role that logged in to the database."""
    import socket

    name = user_name()
    user = f"uid {os.getuid()}" + (f" ({name})" if name else "")
    return f"{user} on {socket.gethostname()} as role {database.login_role}"


def user_name() -> str | None:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return None


def force_argument(force: bool, database: "Database") -> "ForcedBy | None":
    """Return the actor for stores that change cards in use, or None without --force."""
    from cardbox_cli.store.in_use import ForcedBy

    return ForcedBy(actor=actor(database)) if force else None


# --- the turn that this process works for


def is_epoch(text: str) -> bool:
    return re.fullmatch("[0-9]{1,9}", text) is not None


def own_output(box_id: str) -> "Fence | None":
    """Return the fence of this process's turn if `box_id` is its output box, or None. Raises UsageError."""
    from cardbox_cli.model.execution.turns import Fence

    if canonical_box_id(OUTPUT_BOX.text()) != box_id:
        return None
    agent_id, turn_id, epoch = AGENT.text(), TURN_ID.text(), TURN_EPOCH.text()
    if not agent_id or not turn_id or not is_epoch(epoch):
        raise UsageError(
            "CBX_OUTPUT_BOX is set, but CBX_AGENT, CBX_TURN_ID and CBX_TURN_EPOCH do not name a turn",
            hint="unset CBX_OUTPUT_BOX: only a worker sets these four variables",
        )
    return Fence(agent_id, turn_id, int(epoch))


def own_turn() -> dict[str, str]:
    """Return the metadata of new cards, which names the turn or chat run that this process works for.

    The result is empty for other processes. The author is always the agent of the turn or chat.
    """
    from cardbox_cli.model.chats import CHAT_AGENT

    if TURN_ID.text():
        metadata = {"agent_turn_id": TURN_ID.text(), "step_id": STEP.text(), "author_id": AGENT.text()}
    elif CHAT_RUN.text():
        metadata = {"agent_turn_id": CHAT_RUN.text(), "step_id": STEP.text(), "author_id": CHAT_AGENT}
    else:
        return {}
    return {name: value for name, value in metadata.items() if value}


def own_context() -> str | None:
    return canonical_box_id(CONTEXT_BOX.text())


_NEW_CARD = "write a new card and append it to the turn's output box"
PUT_IN_ANSWER = "put the text into the answer; the caller can write it"


def refuse_inside_turn(what: str, *, hint: str = _NEW_CARD) -> None:
    """Raise CardConflict if this process works for a turn or a chat run, which may not do `what`."""
    of = TURN_ID if TURN_ID.text() else CHAT_RUN
    turn_id = of.text()
    if turn_id:
        raise CardConflict(
            f"a command of a {'turn' if of is TURN_ID else 'chat run'} ({of.name}={turn_id}) may not {what}",
            hint=hint,
            details={"agent_turn_id": turn_id},
        )
