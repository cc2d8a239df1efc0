"""`cbx chat list`: the archived contexts of a chat; without a key the chats."""

from typing import Annotated

from typer import Argument

from cardbox_cli.cli.commands.chat.talking import room_of
from cardbox_cli.cli.options.shared_options import ColumnNames, Limit
from cardbox_cli.cli.options.value_types import CHAT
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.table_layout import NOTHING, Column, chosen
from cardbox_cli.cli.verb import verb
from cardbox_cli.model.card_words import PREVIEW
from cardbox_cli.model.text.escaping import one_line, spelled
from cardbox_cli.model.text.quantities import age


@verb(
    "list",
    "cbx chat list",
    "cbx chat list telegram-chat-42",
    "cbx chat list telegram-chat-42 -o json | jq -r '.[].title'",
    pages=True,
    reads=True,
)
def list_chats(
    key: Annotated[
        str | None,
        Argument(click_type=CHAT, metavar="[KEY]", help="The chat. Default: lists the chats."),
    ] = None,
    limit: Limit = 50,
    columns: ColumnNames = None,
) -> None:
    """List the archived contexts of a chat, newest first; without a key the chats of the project."""
    from cardbox_cli.chat.views import archives

    shown = chosen(_CHAT if key is None else _ARCHIVE, columns)
    with open_database() as database, database.snapshot():
        room = room_of(database)
        if key is None:
            output.emit_list(
                room.chats.all(limit=limit or None),
                columns=shown,
                item_id=lambda chat: chat.chat_key,
                empty=f"no chats in project {session().project_id!r}",
            )
            return
        output.emit_list(
            archives(room, key, limit=limit or None),
            columns=shown,
            item_id=lambda archive: archive.context_id,
            empty=f"chat {spelled(key)} has no archived context",
        )


_ARCHIVE = (
    Column("CONTEXT", lambda archive: archive.context_id),
    Column("TITLE", lambda archive: one_line(archive.title or NOTHING, PREVIEW)),
    Column("REASON", lambda archive: one_line(archive.reason or NOTHING, PREVIEW), spare=1),
    Column("MESSAGES", lambda archive: str(archive.messages), right=True),
    Column("AGE", lambda archive: age(archive.archived_at), right=True),
    Column("LAST ANSWER", lambda archive: one_line(archive.checkpoint_preview or NOTHING, PREVIEW)),
)
_CHAT = (
    Column("CHAT", lambda chat: spelled(chat.chat_key)),
    Column("ENTRIES", lambda chat: str(chat.entries), right=True),
    Column("CONTEXT", lambda chat: chat.context_id or NOTHING),
    Column("USED", lambda chat: age(chat.updated_at), right=True),
)
