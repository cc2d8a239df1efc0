"""`cbx chat new, load, clear, memory, persona, tools` and `call`: the context of a chat is steered."""

from typing import TYPE_CHECKING, Annotated

import msgspec
from typer import Argument, Option

from cardbox_cli.chat.context_tools import CHAT_TOOLS, arguments_of
from cardbox_cli.cli.actor import ANSWER, refuse_inside_turn
from cardbox_cli.cli.commands.chat.chat_messages import room_of
from cardbox_cli.cli.last_ids import remember_made
from cardbox_cli.cli.options.confirmation import Yes, confirm
from cardbox_cli.cli.options.input_files import parse_json, text_or_file
from cardbox_cli.cli.options.shared_options import ChatKey
from cardbox_cli.cli.options.value_types import CHAT, Completed, OneOf
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.table_layout import Column, Shown
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import NotFound, UsageError
from cardbox_cli.model.ids import short_id
from cardbox_cli.providers.registry import DEFAULT, PROVIDERS, provider_named
from cardbox_cli.settings import CHAT_KEY
from cardbox_cli.text import argument, flat, format_count, spelled

if TYPE_CHECKING:
    from cardbox_cli.chat.contexts import Changed
    from cardbox_cli.chat.persona_texts import Text


def emit_changed(changed: "Changed") -> None:
    """Print what became of the active context. With -o id: the snapshot that matters."""
    shown = changed.loaded or changed.archived
    output.emit(changed, table=lambda: _print_changed(changed), ids=[shown] if shown else [])


def _print_changed(changed: "Changed") -> None:
    output.facts(
        ("chat", changed.chat_key),
        ("archived", changed.archived),
        ("active", _active(changed)),
        ("found by", changed.why),
    )
    if changed.run_id is not None:
        announce(f"run {changed.run_id} goes on with that from its next step on")


def _active(changed: "Changed") -> str:
    if changed.loaded is None:
        return "empty"
    return f"{changed.loaded}, {format_count(changed.messages, 'message')}"


@verb(
    "new",
    "cbx chat new telegram-chat-42",
    "cbx chat new telegram-chat-42 --title 'Refund of order 7' --reason 'settled'",
)
def begin_chat_context(
    key: ChatKey,
    title: Annotated[str | None, Option(metavar="TEXT", help="What the archived context is called.")] = None,
    reason: Annotated[str | None, Option(metavar="TEXT", help="Why a new one begins.")] = None,
) -> None:
    """Archive the active context of a chat, and go on with an empty one.

    A run that goes on keeps the system texts and the message that it answers, and no more, from its next
    step on.
    """
    from cardbox_cli.chat.contexts import start_new

    with open_database() as database:
        changed = start_new(room_of(database), key, title=title, reason=reason)
    emit_changed(changed)
    if title is None and reason is None:
        return
    if changed.archived is None:
        announce("nothing was active, so nothing bears the title and reason")
    elif changed.was_archived:
        announce(f"{changed.archived} is as it was loaded, and keeps the title and reason that it has")


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
        Option(metavar="TEXT", help="Instead: what has most of these words in title, reason or messages."),
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


@verb("clear", "cbx chat clear telegram-chat-42", "cbx chat clear telegram-chat-42 --yes")
def clear_chat_context(key: ChatKey, yes: Yes = False) -> None:
    """Empty the active context of a chat without archiving it, and ask first. The transcript stays.

    `cbx chat new` keeps what was active.
    """
    from cardbox_cli.chat.contexts import clear, messages_of

    with open_database() as database:
        room = room_of(database)
        with database.snapshot():
            held = len(messages_of(room, room.chats.get(key)))
        if held:
            confirm(f"Forget {format_count(held, 'message')} of chat {spelled(key)}?", yes=yes)
        changed = clear(room, key)
    emit_changed(changed)


# --- what every context begins with


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
    from cardbox_cli.chat.persona_texts import memory, set_memory

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
        table=lambda: _print_memory(found),
        ids=[] if found is None else [found.card_id],
    )


def _print_memory(found: "Text | None") -> None:
    if found is None:
        announce("it remembers nothing beside its context")
    else:
        output.print_text(found.text.rstrip("\n"))


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
    from cardbox_cli.chat.persona_texts import personas, set_persona

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
        columns=Shown(_PERSONA_COLUMNS),
        item_id=lambda persona: persona.card_id,
        empty=f"no personas in project {session().project_id!r}",
    )


_PERSONA_COLUMNS = (
    Column("NAME", lambda persona: spelled(persona.name or "")),
    Column("CARD", lambda persona: short_id(persona.card_id)),
    Column("TEXT", lambda persona: flat(persona.text)),
)


# --- the tools by which a model does the same


_TOOL_NAMES = Completed("NAME", lambda *_: ((name, tool.description) for name, tool in CHAT_TOOLS.items()))


@verb(
    "call",
    "cbx chat call chat_context_list '{}' --chat telegram-chat-42",
    """cbx chat call chat_context_load '{"query": "refund plan"}' --chat telegram-chat-42""",
    "cbx chat call chat_context_new @arguments.json",
)
def call_chat_tool(
    name: Annotated[str, Argument(click_type=_TOOL_NAMES, help="The tool.")],
    arguments: Annotated[
        str, Argument(metavar="JSON|@FILE", help="Its arguments as the model gave them, an object.")
    ] = "{}",
    chat: Annotated[
        str | None,
        Option("--chat", click_type=CHAT, help="The chat. Default: the one that `cbx chat run` works for."),
    ] = None,
) -> None:
    """Execute a call of one of the tools of chats, and print its result."""
    from cardbox_cli.chat.context_tools import answer
    from cardbox_cli.store.chats import Room

    given = parse_json(arguments, "JSON")
    arguments_of(name, given)
    chat_key = chat or CHAT_KEY.text()
    if not chat_key:
        raise UsageError("no chat is named", hint="name it with --chat KEY")
    with open_database() as database:
        result = answer(Room(database, session().project_id), chat_key, name, given)
    output.emit(result, table=lambda: output.emit_document(result), ids=[chat_key])


@verb("tools", "cbx chat tools", "cbx chat tools --format anthropic | jq '.[].name'")
def show_chat_tools(
    format: Annotated[
        str, Option(click_type=OneOf(lambda: PROVIDERS, what="format"), help="Of which provider.")
    ] = DEFAULT,
) -> None:
    """Print the tools by which a model steers its chat's context, as a request offers them.

    `cbx chat run` offers and answers them by itself; other programs answer them by `cbx chat call`.
    """
    from cardbox_cli.context.request import ComposeOptions, request_of
    from cardbox_cli.execution.requests.turn_requests import function_tool

    provider = provider_named(format)
    tools = [function_tool(each.tool) for each in CHAT_TOOLS.values()]
    request = request_of([], ComposeOptions(), encode=provider.encode)
    offered = provider.body(msgspec.structs.replace(request, tools=tools))["tools"]
    output.emit(offered, table=lambda: output.emit_document(offered), ids=list(CHAT_TOOLS))
