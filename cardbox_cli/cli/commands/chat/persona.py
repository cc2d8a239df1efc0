"""`cbx chat persona`."""

from typing import Annotated

from typer import Argument

from cardbox_cli.cli.actor import ANSWER, refuse_inside_turn
from cardbox_cli.cli.commands.chat.talking import room_of
from cardbox_cli.cli.last_ids import remember_made
from cardbox_cli.cli.options.input_files import text_or_file
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.table_layout import Column, Shown
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import NotFound
from cardbox_cli.model.ids import short_id
from cardbox_cli.model.text.escaping import flat, spelled


@verb(
    "persona",
    "cbx chat persona",
    "cbx chat persona Primary @Primary.md",
    "cbx chat persona Primary -o json | jq -r '.[0].text'",
    pages=True,
)
def show_chat_persona(
    name: Annotated[
        str | None, Argument(metavar="[NAME]", help="The persona; Primary comes first. Default: shows all.")
    ] = None,
    text: Annotated[
        str | None,
        Argument(metavar="[TEXT|@FILE]", help="Its text from now on; empty for none. Default: shows it."),
    ] = None,
) -> None:
    """Show the persona texts that all chats of the project begin with, or set one.

    A change is a new card, and the earlier ones stay in their box.
    """
    from cardbox_cli.chat.texts import personas, set_persona

    given = None if text is None else text_or_file(text)
    if given is not None:
        refuse_inside_turn("write a persona, which is system text", hint=ANSWER)
    with open_database() as database:
        room = room_of(database)
        if name is not None and given is not None:
            remember_made(card_id=set_persona(room, name, given))
        found = personas(room)
    if name is not None:
        found = [each for each in found if (each.name or "").casefold() == name.casefold()]
        if not found and given is None:
            raise NotFound(
                f"no persona {name!r} in project {session().project_id!r}",
                hint="`cbx chat persona` lists those that there are",
            )
    output.emit_list(
        found,
        columns=Shown(_PERSONA),
        item_id=lambda persona: persona.card_id,
        empty=f"no personas in project {session().project_id!r}",
    )


_PERSONA = (
    Column("NAME", lambda persona: spelled(persona.name or "")),
    Column("CARD", lambda persona: short_id(persona.card_id)),
    Column("TEXT", lambda persona: flat(persona.text)),
)
