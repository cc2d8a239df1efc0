"""What the commands share that append to a chat: what a platform says of a message, and how it is answered."""

from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from cardbox_cli.chat.room import Room
from cardbox_cli.cli.parameters.inputs import read_text
from cardbox_cli.cli.session import announce, session
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
UserId = Annotated[str | None, Option(metavar="ID", help="The platform's id of who speaks.")]


def room_of(database: "Database") -> Room:
    """The chats of this run's project."""
    return Room(database, session().project_id, settings_from())


def text_of(given: str) -> str:
    """The text of an argument: itself, the file @FILE, or standard input for -."""
    if given == "-" or given.startswith("@"):
        return read_text(given.removeprefix("@")).rstrip("\n")
    return given


def told(message_id: str | None, user_id: str | None) -> dict[str, Any]:
    """What a platform says of a message."""
    return {"message_id": message_id, "user_id": user_id}


def own_run() -> ChatFence | None:
    """The fence of the run that this process works for, if it is one's command. Raises UsageError."""
    key, run_id, epoch = CHAT_KEY.text(), CHAT_RUN.text(), CHAT_EPOCH.text()
    if not run_id:
        return None
    if not key or not epoch.isdecimal():
        raise UsageError(
            f"{CHAT_RUN.name} is set, but {CHAT_KEY.name} and {CHAT_EPOCH.name} do not name a run",
            hint=f"a run sets all three; unset {CHAT_RUN.name} elsewhere",
        )
    return ChatFence(key, run_id, int(epoch))


def key_and_text(given: list[str]) -> tuple[str, str]:
    """The key and the text of `[KEY] TEXT`: the command of a run need not name its chat."""
    if len(given) == 2:
        return given[0], given[1]
    if len(given) == 1 and CHAT_KEY.text():
        return CHAT_KEY.text(), given[0]
    what = "no chat is named" if len(given) == 1 else f"{len(given)} arguments are given"
    raise UsageError(f"{what}: a key and a text are wanted", hint="quote a text that has spaces")


def emit_said(said: "Said") -> None:
    """Print what was appended. With -o id: the card."""
    session().made(card_id=said.card_id)
    output.emit(said, table=lambda: _print_text(said), ids=[said.card_id])


def _print_text(said: "Said") -> None:
    if not said.is_new:
        announce("it was delivered before: nothing was appended")
    output.print_text(said.card_id)
