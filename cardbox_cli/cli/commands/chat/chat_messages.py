"""`cbx chat send, reply` and `correct`: messages are appended to a chat."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from cardbox_cli.cli.actor import is_epoch, own_turn
from cardbox_cli.cli.last_ids import remember_made
from cardbox_cli.cli.options.input_files import read_text
from cardbox_cli.cli.options.shared_options import ChatKey
from cardbox_cli.cli.options.value_types import FILE
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import NotFound, UsageError
from cardbox_cli.model.chats import ChatFence
from cardbox_cli.settings import CHAT_EPOCH, CHAT_KEY, CHAT_RUN, DATABASE_URL, settings_from

if TYPE_CHECKING:
    from cardbox_cli.chat.transcript import Said
    from cardbox_cli.store.chats import Room
    from cardbox_cli.store.connection.database import Database


MessageId = Annotated[
    str | None,
    Option(metavar="ID", help="The platform's id of the message: what it delivers twice is stored once."),
]
Message = Annotated[str | None, Argument(metavar="TEXT", help="The message, as it is.")]
MessageFile = Annotated[
    str | None,
    Option("--file", "-f", click_type=FILE, help="Instead of TEXT: the file that holds it; - for stdin."),
]
UserId = Annotated[str | None, Option(metavar="ID", help="The platform's id of who speaks.")]


def room_of(database: "Database") -> "Room":
    """The chats of this run's project."""
    from cardbox_cli.store.chats import Room

    return Room(database, session().project_id, settings_from())


def message(text: str | None, file: str | None) -> str:
    """The message: TEXT as it is, whatever it begins with, or what a file holds. Raises UsageError."""
    if (text is None) == (file is None):
        raise UsageError("a message is wanted, once", hint="give TEXT, or --file with - for stdin")
    return text if text is not None else read_text(file or "").removesuffix("\n")


def sender_metadata(message_id: str | None, user_id: str | None) -> dict[str, Any]:
    """What a platform says of a message."""
    return {"message_id": message_id, "user_id": user_id}


def own_run() -> ChatFence | None:
    """The fence of the run that this process works for, if it is one's command. Raises UsageError."""
    key, run_id, epoch = CHAT_KEY.text(), CHAT_RUN.text(), CHAT_EPOCH.text()
    if not run_id:
        return None
    if not key or not is_epoch(epoch):
        raise UsageError(
            f"{CHAT_RUN.name} is set, but {CHAT_KEY.name} and {CHAT_EPOCH.name} do not name a run",
            hint=f"a run sets all three; unset {CHAT_RUN.name} elsewhere",
        )
    return ChatFence(key, run_id, int(epoch))


def key_and_message(given: Sequence[str], file: str | None) -> tuple[str, str]:
    """The key and the message of `[KEY] [TEXT]`: the command of a run need not name its chat."""
    texts = 1 if file is None else 0
    if len(given) == texts + 1:
        return given[0], message(given[1] if texts else None, file)
    if len(given) == texts and CHAT_KEY.text():
        return CHAT_KEY.text(), message(given[0] if texts else None, file)
    what = "no chat is named" if len(given) <= texts else f"{len(given)} arguments are given"
    raise UsageError(f"{what}: a key and a message are wanted", hint="quote a message that has spaces")


def emit_said(said: "Said") -> None:
    """Print what was appended. With -o id: the card."""
    remember_made(card_id=said.card_id)
    output.emit(said, table=lambda: _print_appended(said), ids=[said.card_id])


def _print_appended(said: "Said") -> None:
    if not said.is_new:
        announce("it was delivered before: nothing was appended")
    output.print_text(said.card_id)


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
        sent = send(room_of(database), key, said, told=sender_metadata(message_id, user_id), turn=own_turn())
        emit_said(sent)


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
        emit_said(reply(room, key, said, told=sender_metadata(message_id, None), turn=own_turn(), fence=own))


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
        sent = correct(
            room_of(database), key, said, told=sender_metadata(message_id, user_id), turn=own_turn()
        )
        emit_said(sent)
    if sent.run_id is None:
        announce("no run goes on: it waits for the next one, like any message")
    else:
        announce(f"run {sent.run_id} takes it in before its next step")
