"""`cbx chat reply`."""

from typing import Annotated

from typer import Argument

from cardbox_cli.cli.actor import own_turn
from cardbox_cli.cli.commands.chat.talking import (
    MessageFile,
    MessageId,
    emit_said,
    key_and_message,
    own_run,
    room_of,
    told,
)
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import NotFound
from cardbox_cli.settings import DATABASE_URL


@verb(
    "reply",
    "cbx chat reply telegram-chat-42 'It is on its way'",
    "cbx chat reply 'I am looking it up'",
)
def reply_to_chat(
    words: Annotated[
        list[str] | None,
        Argument(
            metavar="[KEY] TEXT",
            help="The chat's key, which the command of a run may leave out, and what was sent.",
        ),
    ] = None,
    file: MessageFile = None,
    message_id: MessageId = None,
) -> None:
    """Append what was sent to the transcript of a chat, once it was really sent.

    From the command of a run it is what that run says in this round, and the final answer is not entered
    beside it. Anybody else's reply answers what users have said so far.
    """
    from cardbox_cli.chat.transcript import reply

    key, said = key_and_message(words or [], file)
    fence = own_run()
    own = fence if fence is not None and fence.chat_key == key else None
    with open_database() as database:
        room = room_of(database)
        if own is not None and room.chats.find(key) is None:
            raise NotFound(
                f"the run's chat {key!r} is not in project {session().project_id!r} of this database",
                hint=f"give the run's command the database with --env {DATABASE_URL.name}",
            )
        emit_said(reply(room, key, said, told=told(message_id, None), turn=own_turn(), fence=own))
