"""`cbx chat new, load, clear, memory, persona, tools` and `call`: manage the context of a chat."""

from typing import TYPE_CHECKING, Annotated

import msgspec
from typer import Argument, Option

from cardbox_cli.chat.context_tools import CHAT_TOOLS, parse_arguments
from cardbox_cli.cli.actor import PUT_IN_ANSWER, refuse_inside_turn
from cardbox_cli.cli.commands.chat.chat_messages import open_chat_stores
from cardbox_cli.cli.last_ids import remember_made
from cardbox_cli.cli.options.confirmation import Yes, confirm
from cardbox_cli.cli.options.input_files import parse_json, text_or_file
from cardbox_cli.cli.options.shared_options import ChatKey
from cardbox_cli.cli.options.value_types import CHAT, CompletedType, OneOf
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
from cardbox_cli.text.command_lines import quote_argument
from cardbox_cli.text.error_messages import required_message
from cardbox_cli.text.escaping import escape_line, flatten
from cardbox_cli.text.quantities import format_count

if TYPE_CHECKING:
    from cardbox_cli.chat.contexts import ContextChange


def emit_context_change(changed: "ContextChange") -> None:
    """Print the change of the active context; with -o id, the loaded or archived context."""
    shown = changed.loaded or changed.archived
    output.emit(changed, table=lambda: _print_changed(changed), ids=[shown] if shown else [])


def _print_changed(changed: "ContextChange") -> None:
    is_empty = changed.loaded is None
    active = "empty" if is_empty else f"{changed.loaded}, {format_count(changed.messages, 'message')}"
    output.facts(
        ("chat", changed.chat_key),
        ("archived", changed.archived),
        ("active", active),
        ("found by", changed.why),
    )
    if changed.run_id is not None:
        announce(f"run {changed.run_id} uses the new context from its next step")


@verb(
    "new",
    "cbx chat new telegram-chat-42",
    "cbx chat new telegram-chat-42 --title 'Refund of order 7' --reason 'settled'",
)
def begin_chat_context(
    key: ChatKey,
    title: Annotated[str | None, Option(metavar="TEXT", help="The title of the archived context.")] = None,
    reason: Annotated[str | None, Option(metavar="TEXT", help="The reason for the new context.")] = None,
) -> None:
    """Archive the active context of a chat, and begin an empty context.

    From its next step, a current run keeps only the system texts and the message that it answers.
    """
    from cardbox_cli.chat.contexts import start_new

    with open_database() as database:
        changed = start_new(open_chat_stores(database), key, title=title, reason=reason)
    emit_context_change(changed)
    if title is None and reason is None:
        return
    if changed.archived is None:
        announce("nothing was archived: the chat had no active context")
    elif changed.was_archived:
        announce(f"{changed.archived} did not change since it was loaded, and keeps its title and reason")


@verb(
    "load",
    "cbx chat load telegram-chat-42 ctx_0198c2f0",
    "cbx chat load telegram-chat-42 --query 'refund order'",
)
def load_chat_context(
    key: ChatKey,
    context: Annotated[
        str | None,
        Argument(metavar="[CONTEXT]", help="The context's full id, or a unique part of it."),
    ] = None,
    query: Annotated[
        str | None, Option(metavar="TEXT", help="Load the archived context that best matches these words.")
    ] = None,
) -> None:
    """Continue with an archived context of a chat. The active context is archived first.

    From its next step, a current run sees the loaded messages and the message that it answers.
    """
    if (context is None) == (query is None):
        raise UsageError(
            "pass either CONTEXT or --query",
            hint=f"list the archived contexts with `cbx chat list {quote_argument(key)}`",
        )
    from cardbox_cli.chat.contexts import load

    with open_database() as database:
        changed = load(open_chat_stores(database), key, context, words=query)
    emit_context_change(changed)


@verb("clear", "cbx chat clear telegram-chat-42", "cbx chat clear telegram-chat-42 --yes")
def clear_chat_context(key: ChatKey, yes: Yes = False) -> None:
    """Empty the active context of a chat without archiving it. The transcript stays. Asks for confirmation.

    Use `cbx chat new` to archive the context.
    """
    from cardbox_cli.chat.contexts import clear, context_slots

    with open_database() as database:
        stores = open_chat_stores(database)
        with database.snapshot():
            messages = len(context_slots(stores, stores.chats.get(key)))
        if messages:
            confirm(f"Forget {format_count(messages, 'message')} of chat {escape_line(key)}?", yes=yes)
        changed = clear(stores, key)
    emit_context_change(changed)


# --- memory and personas


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
        Argument(metavar="[TEXT|@FILE]", help="The new text; '' removes it. Default: show the text."),
    ] = None,
) -> None:
    """Show or set the permanent memory of a chat, which every run sees in every context.

    Each change is a new card. The memory box keeps the earlier cards.
    """
    from cardbox_cli.chat.persona_texts import find_memory, set_memory

    content = None if text is None else text_or_file(text)
    if content is not None:
        refuse_inside_turn("set the memory of a chat, which is system text", hint=PUT_IN_ANSWER)
    with open_database() as database:
        stores = open_chat_stores(database)
        if content is not None:
            remember_made(card_id=set_memory(stores, key, content))
        memory = find_memory(stores, key)

    def table() -> None:
        if memory is None:
            announce("the chat has no permanent memory")
        else:
            output.print_text(memory.text.rstrip("\n"))

    text, card_id = (None, None) if memory is None else (memory.text, memory.card_id)
    answer = {"chat_key": key, "text": text, "card_id": card_id}
    output.emit(answer, table=table, ids=[] if card_id is None else [card_id])


@verb(
    "persona",
    "cbx chat persona",
    "cbx chat persona Primary @Primary.md",
    "cbx chat persona Primary -o json | jq -r '.[0].text'",
    pages=True,
)
def show_chat_persona(
    name: Annotated[
        str | None,
        Argument(metavar="[NAME]", help="The name of the persona. Default: show all, Primary first."),
    ] = None,
    text: Annotated[
        str | None,
        Argument(metavar="[TEXT|@FILE]", help="The new text; '' removes it. Default: show the text."),
    ] = None,
) -> None:
    """Show or set the persona texts at the beginning of all chats of the project.

    Each change is a new card. The persona box keeps the earlier cards.
    """
    from cardbox_cli.chat.persona_texts import list_personas, set_persona

    content = None if text is None else text_or_file(text)
    if content is not None:
        refuse_inside_turn("set a persona, which is system text", hint=PUT_IN_ANSWER)
    with open_database() as database:
        stores = open_chat_stores(database)
        if name is not None and content is not None:
            remember_made(card_id=set_persona(stores, name, content))
        personas = list_personas(stores)
    if name is not None:
        personas = [each for each in personas if (each.name or "").casefold() == name.casefold()]
        if not personas and content is None:
            raise NotFound(
                f"no persona {name!r} in project {session().project_id!r}",
                hint="list the personas with `cbx chat persona`",
            )
    output.emit_list(
        personas,
        columns=Shown(_PERSONA_COLUMNS),
        item_id=lambda persona: persona.card_id,
        empty=f"no personas in project {session().project_id!r}",
    )


_PERSONA_COLUMNS = (
    Column("NAME", lambda persona: escape_line(persona.name or "")),
    Column("CARD", lambda persona: short_id(persona.card_id)),
    Column("TEXT", lambda persona: flatten(persona.text)),
)


# --- the tools of chats


_TOOL_NAMES = CompletedType(
    "NAME", lambda *_: ((name, tool.description) for name, tool in CHAT_TOOLS.items())
)


@verb(
    "call",
    "cbx chat call chat_context_list '{}' --chat telegram-chat-42",
    """cbx chat call chat_context_load '{"query": "refund plan"}' --chat telegram-chat-42""",
    "cbx chat call chat_context_new @arguments.json",
)
def call_chat_tool(
    name: Annotated[str, Argument(click_type=_TOOL_NAMES, help="The name of the tool.")],
    arguments: Annotated[
        str, Argument(metavar="JSON|@FILE", help="The arguments of the call: a JSON object.")
    ] = "{}",
    chat: Annotated[
        str | None,
        Option(
            "--chat",
            click_type=CHAT,
            help="The key of the chat. Default: the chat of the current `cbx chat run`.",
        ),
    ] = None,
) -> None:
    """Run one of the chat tools, and print its result."""
    from cardbox_cli.chat.context_tools import run_chat_tool
    from cardbox_cli.store.chats import ChatStores

    values = parse_json(arguments, "JSON")
    parse_arguments(name, values)
    chat_key = chat or CHAT_KEY.text()
    if not chat_key:
        raise UsageError(required_message("--chat"), hint="list the keys with `cbx chat list`")
    with open_database() as database:
        result = run_chat_tool(ChatStores(database, session().project_id), chat_key, name, values)
    output.emit(result, table=lambda: output.emit_document(result), ids=[chat_key])


@verb("tools", "cbx chat tools", "cbx chat tools --format anthropic | jq '.[].name'")
def show_chat_tools(
    format: Annotated[
        str, Option(click_type=OneOf(lambda: PROVIDERS, what="format"), help="The format of a provider.")
    ] = DEFAULT,
) -> None:
    """Print the tools that let a model manage its chat's context, in a provider's format.

    `cbx chat run` offers the tools and answers calls. Other programs can answer them with `cbx chat call`.
    """
    from cardbox_cli.context.request import ComposeOptions, request_of
    from cardbox_cli.execution.requests.turn_requests import function_tool

    provider = provider_named(format)
    tools = [function_tool(each.tool) for each in CHAT_TOOLS.values()]
    request = request_of([], ComposeOptions(), encode=provider.encode)
    offered = provider.body(msgspec.structs.replace(request, tools=tools))["tools"]
    output.emit(offered, table=lambda: output.emit_document(offered), ids=list(CHAT_TOOLS))
