"""`cbx chat send`."""

from cardbox_cli.cli.actor import own_turn
from cardbox_cli.cli.commands.chat.talking import (
    Message,
    MessageFile,
    MessageId,
    UserId,
    emit_said,
    message,
    room_of,
    told,
)
from cardbox_cli.cli.options.shared_options import ChatKey
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.verb import verb


@verb(
    "send",
    "cbx chat send telegram-chat-42 'Where is my order?'",
    "cbx chat send telegram-chat-42 --file - --message-id 1093 --user-id 7 < message.txt",
)
def send_message(
    key: ChatKey,
    text: Message = None,
    file: MessageFile = None,
    message_id: MessageId = None,
    user_id: UserId = None,
) -> None:
    """Append a user's message to the transcript of a chat, which begins with its first one.

    A run that goes on takes it in between two of its steps; else `cbx chat run` answers it.
    """
    from cardbox_cli.chat.transcript import send

    said = message(text, file)
    with open_database() as database:
        sent = send(room_of(database), key, said, told=told(message_id, user_id), turn=own_turn())
        emit_said(sent)
