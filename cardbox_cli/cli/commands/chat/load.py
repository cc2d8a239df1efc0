"""`cbx chat load`."""

from typing import Annotated

from typer import Argument, Option

from cardbox_cli.cli.commands.chat.changing import emit_changed
from cardbox_cli.cli.commands.chat.talking import room_of
from cardbox_cli.cli.options.shared_options import ChatKey
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import UsageError
from cardbox_cli.model.text.command_lines import argument


@verb(
    "load",
    "cbx chat load telegram-chat-42 ctx_0198c2f0",
    "cbx chat load telegram-chat-42 --query 'refund order'",
)
def load_chat_context(
    key: ChatKey,
    context: Annotated[
        str | None, Argument(metavar="[CONTEXT]", help="Its id, or 4 or more characters of one.")
    ] = None,
    query: Annotated[
        str | None,
        Option(metavar="WORDS", help="Instead: what has most of these words in title, reason or messages."),
    ] = None,
) -> None:
    """Make an archived context of a chat the active one. What was active is archived first.

    A run that goes on does so with the loaded messages and the one that it answers, from its next step on.
    """
    if (context is None) == (query is None):
        raise UsageError(
            "name one archived context, by its id or by --query",
            hint=f"`cbx chat list {argument(key)}` lists them",
        )
    from cardbox_cli.chat.contexts import load

    with open_database() as database:
        changed = load(room_of(database), key, context, words=query)
    emit_changed(changed)
