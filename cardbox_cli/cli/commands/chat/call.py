"""`cbx chat call`."""

from typing import Annotated

from typer import Argument, Option

from cardbox_cli.chat.handlers import answer
from cardbox_cli.chat.room import Room
from cardbox_cli.chat.tools import CHAT_TOOLS, arguments_of
from cardbox_cli.cli.options.input_files import parse_json
from cardbox_cli.cli.options.value_types import CHAT, Completed
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import UsageError
from cardbox_cli.settings import CHAT_KEY

_TOOL = Completed("NAME", lambda *_: ((name, tool.description) for name, tool in CHAT_TOOLS.items()))


@verb(
    "call",
    "cbx chat call chat_context_list '{}' --chat telegram-chat-42",
    """cbx chat call chat_context_load '{"query": "refund plan"}' --chat telegram-chat-42""",
    "cbx chat call chat_context_new @arguments.json",
)
def call_chat_tool(
    name: Annotated[str, Argument(click_type=_TOOL, help="The tool.")],
    arguments: Annotated[
        str, Argument(metavar="JSON|@FILE", help="Its arguments as the model gave them, an object.")
    ] = "{}",
    chat: Annotated[
        str | None,
        Option("--chat", click_type=CHAT, help="The chat. Default: the one that `cbx chat run` works for."),
    ] = None,
) -> None:
    """Execute a call of one of the tools of chats, and print its result."""
    given = parse_json(arguments, "JSON")
    arguments_of(name, given)
    chat_key = chat or CHAT_KEY.text()
    if not chat_key:
        raise UsageError("no chat is named", hint="name it with --chat KEY")
    with open_database() as database:
        result = answer(Room(database, session().project_id), chat_key, name, given)
    output.emit(result, table=lambda: output.emit_document(result), ids=[chat_key])
