"""Who acts at this command line, and how commands write down what that person did.

Nobody's environment has a say: the user is the operating system's, the role is the database's.
"""

import os
import socket
from typing import TYPE_CHECKING, Any

from cardbox_cli.cli.session import session

if TYPE_CHECKING:
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
