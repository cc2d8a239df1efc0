"""What the commands share that append to a chat: the message, what a platform says, whose it is."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from cardbox_cli.chat.room import Room
from cardbox_cli.cli.actor import is_epoch
from cardbox_cli.cli.last_ids import remember_made
from cardbox_cli.cli.options.input_files import read_text
from cardbox_cli.cli.options.value_types import FILE
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.errors import UsageError
from cardbox_cli.model.chats import ChatFence
from cardbox_cli.settings import CHAT_EPOCH, CHAT_KEY, CHAT_RUN, settings_from

if TYPE_CHECKING:
    from cardbox_cli.chat.transcript import Said
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


def room_of(database: "Database") -> Room:
    """The chats of this run's project."""
    return Room(database, session().project_id, settings_from())


def message(text: str | None, file: str | None) -> str:
    """The message: TEXT as it is, whatever it begins with, or what a file holds. Raises UsageError."""
    if (text is None) == (file is None):
        raise UsageError("a message is wanted, once", hint="give TEXT, or --file with - for stdin")
    return text if text is not None else read_text(file or "").removesuffix("\n")


def told(message_id: str | None, user_id: str | None) -> dict[str, Any]:
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
    output.emit(said, table=lambda: _print_text(said), ids=[said.card_id])


def _print_text(said: "Said") -> None:
    if not said.is_new:
        announce("it was delivered before: nothing was appended")
    output.print_text(said.card_id)
