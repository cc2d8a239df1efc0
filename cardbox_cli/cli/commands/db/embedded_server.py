"""The embedded server, for the verbs that are about it alone."""

from typing import TYPE_CHECKING

from cardbox_cli.cli.project_database import database_target
from cardbox_cli.errors import UsageError

if TYPE_CHECKING:
    from cardbox_cli.store.embedded import EmbeddedServer


def embedded_server(action: str) -> "EmbeddedServer":
    target = database_target()
    if not target.embedded:
        raise UsageError(
            f"`cbx db {action}` is for the embedded server, and {target.named_by} names another database",
            hint=f"unset {target.named_by}, or manage that server with its own tools",
        )
    return target.server()
