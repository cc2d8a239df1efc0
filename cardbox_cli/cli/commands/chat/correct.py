"""`cbx chat correct`."""

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
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.verb import verb


@verb("correct", "cbx chat correct telegram-chat-42 'I mean order 7, not 8'")
def correct_message(
    key: ChatKey,
    text: Message = None,
    file: MessageFile = None,
    message_id: MessageId = None,
    user_id: UserId = None,
) -> None:
    """Append a user's message that corrects the one which a run is answering.

    The run takes it in between two of its steps, at the end of the message that it answers. Where no run
    goes on it is a message like any other.
    """
    from cardbox_cli.chat.transcript import correct

    said = message(text, file)
    with open_database() as database:
        sent = correct(room_of(database), key, said, told=told(message_id, user_id), turn=own_turn())
        emit_said(sent)
    if sent.run_id is None:
        announce("no run goes on: it waits for the next one, like any message")
    else:
        announce(f"run {sent.run_id} takes it in before its next step")
