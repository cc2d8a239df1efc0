"""`cbx chat why`: what the next run of a chat carries with it, and why that is nothing."""

from typing import TYPE_CHECKING

from cardbox_cli.cli.commands.chat.talking import room_of
from cardbox_cli.cli.options.shared_options import ChatKey
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.table_layout import NOTHING, Column, print_below
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import Findings, NotFound
from cardbox_cli.model.text.escaping import spelled
from cardbox_cli.model.text.quantities import age

if TYPE_CHECKING:
    from cardbox_cli.chat.why import Explained


@verb(
    "why",
    "cbx chat why telegram-chat-42-topic-7",
    "cbx chat why telegram-chat-42-topic-7 -o json | jq -r '.near[].chat_key'",
    pages=True,
    reads=True,
)
def explain_chat(key: ChatKey) -> None:
    """Explain what the next run of a chat carries with it; and where that is nothing, why.

    Most often the key is another one: a new topic is a new key. Exit code 0: it carries something. 8: it
    begins afresh.
    """
    from cardbox_cli.chat.why import explain

    with open_database() as database, database.snapshot():
        found = explain(room_of(database), key)
    if not found.exists and not found.causes:
        raise NotFound(
            f"no chat {key!r} in project {session().project_id!r}, and none with a key near to it",
            hint="`cbx chat list` lists the chats",
        )
    output.emit(found, table=lambda: _print_text(found), ids=[each.chat_key for each in found.near])
    if not found.well:
        raise Findings(f"chat {spelled(key)} begins afresh")


def _print_text(found: "Explained") -> None:
    output.print_text(f"chat {spelled(found.chat_key)}: {found.summary}")
    for cause in found.causes:
        output.print_text(f"{cause.cause}: {cause.proves}")
        if cause.fix is not None:
            output.print_text(f"  fix: {cause.fix}")
    print_below(_NEAR, found.near)


_NEAR = (
    Column("NEAR KEY", lambda near: spelled(near.chat_key)),
    Column("ENTRIES", lambda near: str(near.entries), right=True),
    Column("CONTEXT", lambda near: "active" if near.has_context else NOTHING),
    Column("USED", lambda near: age(near.updated_at), right=True),
)
