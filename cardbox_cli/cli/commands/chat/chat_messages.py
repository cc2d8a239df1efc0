"""`cbx chat send, reply` and `correct`: append messages to a chat."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

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
from cardbox_cli.settings import CHAT_EPOCH, CHAT_KEY, CHAT_RUN, DATABASE_URL, read_settings

if TYPE_CHECKING:
    from cardbox_cli.chat.transcript import AppendedEntry
    from cardbox_cli.store.chats import ChatStores
    from cardbox_cli.store.connection.database import Database


MessageId = Annotated[
    str | None,
    Option(metavar="ID", help="The platform's id of the message; cbx does not store a second delivery."),
]
Message = Annotated[str | None, Argument(metavar="TEXT", help="The message.")]
MessageFile = Annotated[
    str | None,
    Option("--file", "-f", click_type=FILE, help="A file with the message, instead of TEXT; - for stdin."),
]
UserId = Annotated[str | None, Option(metavar="ID", help="The platform's id of the user.")]


def open_chat_stores(database: "Database") -> "ChatStores":
    from cardbox_cli.store.chats import ChatStores

    return ChatStores(database, session().project_id, read_settings())


def _read_message(text: str | None, file: str | None) -> str:
    """Return the message: TEXT unchanged, or the content of a file. Raises UsageError."""
    if (text is None) == (file is None):
        raise UsageError("pass either TEXT or --file", hint="--file - reads the message from stdin")
    return text if text is not None else read_text(file or "").removesuffix("\n")


def _find_own_run() -> ChatFence | None:
    """Return the fence of the run that this process works for, or None. Raises UsageError."""
    key, run_id, epoch = CHAT_KEY.text(), CHAT_RUN.text(), CHAT_EPOCH.text()
    if not run_id:
        return None
    if not key or not is_epoch(epoch):
        raise UsageError(
            f"{CHAT_RUN.name} is set, but {CHAT_KEY.name} and {CHAT_EPOCH.name} do not name a run",
            hint=f"unset {CHAT_RUN.name}: only `cbx chat run` sets these three variables",
        )
    return ChatFence(key, run_id, int(epoch))


def _parse_key_and_message(words: Sequence[str], file: str | None) -> tuple[str, str]:
    """Return the key and the message of `[KEY] [TEXT]`. The command of a run may omit the key."""
    texts = 1 if file is None else 0
    if len(words) == texts + 1:
        return words[0], _read_message(words[1] if texts else None, file)
    if len(words) == texts and CHAT_KEY.text():
        return CHAT_KEY.text(), _read_message(words[0] if texts else None, file)
    what = "the key of the chat is missing" if len(words) <= texts else f"got {len(words)} arguments"
    raise UsageError(f"{what}; pass a key and a message", hint="quote a message that has spaces")


def _emit_entry(entry: "AppendedEntry") -> None:
    def table() -> None:
        if not entry.is_new:
            announce("nothing was appended: the chat already has this message")
        output.print_text(entry.card_id)

    remember_made(card_id=entry.card_id)
    output.emit(entry, table=table, ids=[entry.card_id])


def _append_message(
    append: "Callable[..., AppendedEntry]",
    key: str,
    text: str,
    message_id: str | None,
    user_id: str | None,
) -> "AppendedEntry":
    metadata = {"message_id": message_id, "user_id": user_id}
    with open_database() as database:
        entry = append(open_chat_stores(database), key, text, platform_metadata=metadata, turn=own_turn())
        _emit_entry(entry)
    return entry


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
    """Append a user's message to the transcript of a chat. The first message creates the chat.

    A current run adds the message between two steps. Otherwise `cbx chat run` answers it.
    """
    from cardbox_cli.chat.transcript import send

    _append_message(send, key, _read_message(text, file), message_id, user_id)


@verb("reply", "cbx chat reply telegram-chat-42 'It is on its way'", "cbx chat reply 'I am looking it up'")
def reply_to_chat(
    words: Annotated[
        list[str] | None,
        Argument(
            metavar="[KEY] TEXT",
            help="The chat's key and the sent message. In the command of a run, you can omit the key.",
        ),
    ] = None,
    file: MessageFile = None,
    message_id: MessageId = None,
) -> None:
    """Append a reply that has been sent to a user to the transcript of a chat.

    Inside a run's command, the reply is the run's answer, and the command's final output is not appended.
    Elsewhere, the reply answers all messages so far.
    """
    from cardbox_cli.chat.transcript import reply

    key, text = _parse_key_and_message(words or [], file)
    fence = _find_own_run()
    own = fence if fence is not None and fence.chat_key == key else None
    with open_database() as database:
        stores = open_chat_stores(database)
        if own is not None and stores.chats.find(key) is None:
            raise NotFound(
                f"the run's chat {key!r} is not in project {session().project_id!r} of this database",
                hint=f"pass the database to the run's command with --env {DATABASE_URL.name}",
            )
        metadata = {"message_id": message_id, "user_id": None}
        _emit_entry(reply(stores, key, text, platform_metadata=metadata, turn=own_turn(), fence=own))


@verb("correct", "cbx chat correct telegram-chat-42 'I mean order 7, not 8'")
def correct_message(
    key: ChatKey,
    text: Message = None,
    file: MessageFile = None,
    message_id: MessageId = None,
    user_id: UserId = None,
) -> None:
    """Append a user's correction of the message that a run is answering.

    The run adds the text to that message between two steps. Without a current run, it is a normal message.
    """
    from cardbox_cli.chat.transcript import correct

    sent = _append_message(correct, key, _read_message(text, file), message_id, user_id)
    if sent.run_id is None:
        announce("no run is active: the message waits for the next run")
    else:
        announce(f"run {sent.run_id} reads the message before its next step")
