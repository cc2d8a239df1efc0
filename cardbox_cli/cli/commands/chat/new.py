"""`cbx chat new`."""

from typing import Annotated

from typer import Option

from cardbox_cli.cli.commands.chat.changing import emit_changed
from cardbox_cli.cli.commands.chat.talking import room_of
from cardbox_cli.cli.options.shared_options import ChatKey
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.verb import verb


@verb(
    "new",
    "cbx chat new telegram-chat-42",
    "cbx chat new telegram-chat-42 --title 'Refund of order 7' --reason 'settled'",
)
def begin_chat_context(
    key: ChatKey,
    title: Annotated[str | None, Option(metavar="T", help="What the archived context is called.")] = None,
    reason: Annotated[str | None, Option(metavar="R", help="Why a new one begins.")] = None,
) -> None:
    """Archive the active context of a chat, and go on with an empty one.

    A run that goes on keeps the system texts and the message that it answers, and no more, from its next
    step on.
    """
    from cardbox_cli.chat.contexts import start_new

    with open_database() as database:
        changed = start_new(room_of(database), key, title=title, reason=reason)
    emit_changed(changed)
    if title is None and reason is None:
        return
    if changed.archived is None:
        announce("nothing was active, so nothing bears the title and reason")
    elif changed.was_archived:
        announce(f"{changed.archived} is as it was loaded, and keeps the title and reason that it has")
