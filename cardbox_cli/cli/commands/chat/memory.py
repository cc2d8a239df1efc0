"""`cbx chat memory`."""

from typing import TYPE_CHECKING, Annotated

from typer import Argument

from cardbox_cli.cli.actor import ANSWER, refuse_inside_turn
from cardbox_cli.cli.commands.chat.talking import room_of
from cardbox_cli.cli.last_ids import remember_made
from cardbox_cli.cli.options.input_files import text_or_file
from cardbox_cli.cli.options.shared_options import ChatKey
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb

if TYPE_CHECKING:
    from cardbox_cli.chat.texts import Text


@verb(
    "memory",
    "cbx chat memory telegram-chat-42",
    "cbx chat memory telegram-chat-42 @notes.md",
    "cbx chat memory telegram-chat-42 ''",
)
def show_chat_memory(
    key: ChatKey,
    text: Annotated[
        str | None,
        Argument(metavar="[TEXT|@FILE]", help="The text from now on; empty for none. Default: shows it."),
    ] = None,
) -> None:
    """Show the text that a chat remembers in every run, whatever its context is; or set it.

    A change is a new card, and the earlier ones stay in its box.
    """
    from cardbox_cli.chat.texts import memory, set_memory

    given = None if text is None else text_or_file(text)
    if given is not None:
        refuse_inside_turn("write what a chat remembers, which is system text", hint=ANSWER)
    with open_database() as database:
        room = room_of(database)
        if given is not None:
            remember_made(card_id=set_memory(room, key, given))
        found = memory(room, key)
    value = {
        "chat_key": key,
        "text": None if found is None else found.text,
        "card_id": None if found is None else found.card_id,
    }
    output.emit(
        value,
        table=lambda: _print_text(found),
        ids=[] if found is None else [found.card_id],
    )


def _print_text(found: "Text | None") -> None:
    if found is None:
        announce("it remembers nothing beside its context")
    else:
        output.print_text(found.text.rstrip("\n"))
