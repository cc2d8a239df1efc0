"""The tools by which a model changes its chat's context: definitions, argument checks, and calls.

A call does the same as the command of that name (`contexts`).
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from cardbox_cli.chat.chat_view import list_archives
from cardbox_cli.chat.contexts import clear, load, start_new
from cardbox_cli.errors import InvalidInput, NotFound
from cardbox_cli.model import exact_json
from cardbox_cli.model.identity import Tool
from cardbox_cli.store.chats import ChatStores
from cardbox_cli.text.error_messages import conflict_message, unknown_message

NEW = "chat_context_new"
LIST = "chat_context_list"
LOAD = "chat_context_load"
CLEAR = "chat_context_clear_active"

# Other names of arguments that some models and programs use.
_ALIASES = {"contextId": "context_id"}


class NewArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    title: str | None = None
    reason: str | None = None


class LoadArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of `chat_context_load`. A call gives exactly one of them."""

    context_id: str | None = None
    query: str | None = None


class NoArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The empty arguments of the other tools."""


Arguments = NewArguments | LoadArguments | NoArguments


class ChatTool(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    description: str
    properties: Mapping[str, str]
    takes: type[Arguments]

    @property
    def tool(self) -> Tool:
        """The tool as requests offer it. With keys in jsonb's order, the stored request is what was sent."""
        described = sorted(self.properties.items(), key=lambda named: (len(named[0]), named[0]))
        properties = {name: {"type": "string", "description": text} for name, text in described}
        return Tool(
            tool_name=self.name,
            description=self.description,
            parameters={"type": "object", "properties": properties, "additionalProperties": False},
            target_subject=None,
            after_execution=None,
            options={},
        )


CHAT_TOOLS = {
    each.name: each
    for each in (
        ChatTool(
            name=NEW,
            description=(
                "Start a new context for this chat. What you remember of the conversation is archived and "
                "can be found again later. From the next step on you see only the current message. Use this "
                "if the earlier conversation has nothing to do with the current question."
            ),
            properties={
                "title": "A few words by which the archived conversation can be found again.",
                "reason": "Why it is archived.",
            },
            takes=NewArguments,
        ),
        ChatTool(
            name=LIST,
            description=(
                "List the archived contexts of this chat, newest first: id, title, reason, beginning of the "
                "last answer, number of messages."
            ),
            properties={},
            takes=NoArguments,
        ),
        ChatTool(
            name=LOAD,
            description=(
                "Continue an archived context of this chat. Its messages replace what you remember now, "
                "which is archived first. Use this if the user wants to return to an earlier topic. Pass an "
                "id, or words to search for."
            ),
            properties={
                "context_id": f"The id of an archived context, as {LIST} lists it.",
                "query": "Words from its title, its reason or its messages.",
            },
            takes=LoadArguments,
        ),
        ChatTool(
            name=CLEAR,
            description=(
                "Empty this chat's context without archiving it. From the next step on you see only the "
                f"current message, and the context cannot be loaded again. Use {NEW} to archive it."
            ),
            properties={},
            takes=NoArguments,
        ),
    )
}


def parse_arguments(name: str, given: object) -> Arguments:
    """Parse the arguments of a call. Raises NotFound for an unknown tool, InvalidInput for bad arguments."""
    if (tool := CHAT_TOOLS.get(name)) is None:
        hint = f"chat tools are {', '.join(CHAT_TOOLS)}"
        raise NotFound(unknown_message("chat tool", name, CHAT_TOOLS), hint=hint)
    values = {} if given is None else given
    if isinstance(given, dict):
        values = {_ALIASES.get(key, key): value for key, value in given.items()}
    try:
        exact_json.check_storable(given)
        arguments = msgspec.convert(values, tool.takes)
    except (msgspec.ValidationError, exact_json.Unstorable) as exc:
        takes = ", ".join(tool.properties) or "none"
        raise InvalidInput(f"{name}: {exc}", hint=f"its arguments are: {takes}") from exc
    if isinstance(arguments, LoadArguments):
        texts = [each for each in (arguments.context_id, arguments.query) if each and each.strip()]
        if len(texts) != 1:
            both, neither = conflict_message("context_id", "query"), "context_id or query is required"
            raise InvalidInput(
                f"{LOAD}: {both if texts else neither}",
                hint="pass the id of an archived context, or words to search for",
            )
    return arguments


# --- calls: they act at once, and a running run composes its next step from the new context

# The number of archived contexts that a model can list; it finds older ones by words.
_MAX_LISTED = 20


def run_chat_tool(stores: ChatStores, chat_key: str, name: str, given: object) -> dict[str, Any]:
    """Execute a call on a chat, and return its result as JSON values.

    Raises NotFound for an unknown tool, chat or archived context, and for a query without a match;
    InvalidInput for bad arguments.
    """
    arguments = parse_arguments(name, given)
    result: dict[str, Any] = exact_json.decode(
        exact_json.encode(_HANDLERS[name](stores, chat_key, arguments))
    )
    return result


def _new(stores: ChatStores, chat_key: str, arguments: Arguments) -> dict[str, Any]:
    assert isinstance(arguments, NewArguments)
    changed = start_new(stores, chat_key, title=arguments.title, reason=arguments.reason)
    texts = {"title_and_reason": "those it was archived with before"} if changed.was_archived else {}
    return {"archived": changed.archived, "messages": 0, **texts}


def _list(stores: ChatStores, chat_key: str, _: Arguments) -> dict[str, Any]:
    archives = list_archives(stores, chat_key, limit=_MAX_LISTED + 1)
    listed = [
        {
            "context_id": each.context_id,
            "title": each.title,
            "reason": each.reason,
            "last_answer": each.checkpoint_preview,
            "messages": each.messages,
            "archived_at": each.archived_at,
        }
        for each in archives[:_MAX_LISTED]
    ]
    return {"contexts": listed, "has_more": len(archives) > _MAX_LISTED}


def _load(stores: ChatStores, chat_key: str, arguments: Arguments) -> dict[str, Any]:
    assert isinstance(arguments, LoadArguments)
    changed = load(stores, chat_key, arguments.context_id or None, words=arguments.query or None)
    why = {} if changed.why is None else {"why": changed.why}
    return {
        "loaded": changed.loaded,
        "messages": changed.messages,
        "archived": changed.archived,
        **why,
    }


def _clear(stores: ChatStores, chat_key: str, _: Arguments) -> dict[str, Any]:
    clear(stores, chat_key)
    return {"cleared": True, "messages": 0}


_HANDLERS: dict[str, Callable[[ChatStores, str, Arguments], dict[str, Any]]] = {
    NEW: _new,
    LIST: _list,
    LOAD: _load,
    CLEAR: _clear,
}
