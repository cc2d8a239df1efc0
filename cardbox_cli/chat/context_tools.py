"""The tools by which a model steers its chat's context: what each is called, says of itself and takes.

Owns their definitions, and the check of what a call hands in. What a call does is an operation of the chat.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from cardbox_cli.chat.chat_view import archives
from cardbox_cli.chat.contexts import clear, load, start_new
from cardbox_cli.errors import InvalidInput, NotFound
from cardbox_cli.model import exact_json
from cardbox_cli.model.chats import Archive
from cardbox_cli.model.identity import Tool
from cardbox_cli.store.chats import Room
from cardbox_cli.text import did_you_mean

NEW = "chat_context_new"
LIST = "chat_context_list"
LOAD = "chat_context_load"
CLEAR = "chat_context_clear_active"

# How some models and programs spell an argument.
_ALSO = {"contextId": "context_id"}


class NewArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `chat_context_new` takes."""

    title: str | None = None
    reason: str | None = None


class LoadArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `chat_context_load` takes: one of the two."""

    context_id: str | None = None
    query: str | None = None


class NoArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the others take."""


Arguments = NewArguments | LoadArguments | NoArguments


class ChatTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool, and the kind of its arguments."""

    name: str
    description: str
    properties: Mapping[str, str]
    takes: type[Arguments]

    @property
    def tool(self) -> Tool:
        """As requests offer it; its keys in the order of jsonb, so that what is kept is what is sent."""
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
                "Start this chat's context afresh: what you remember of the conversation is archived, can be "
                "found again later, and is gone from the next step on, except for the current message. For "
                "when the earlier conversation has nothing to do with what is asked now."
            ),
            properties={
                "title": "A few words by which the archived conversation can be found again.",
                "reason": "Why it is put aside.",
            },
            takes=NewArguments,
        ),
        ChatTool(
            name=LIST,
            description=(
                "List the archived contexts of this chat, the newest first: id, title, reason, how the last "
                "answer began, number of messages."
            ),
            properties={},
            takes=NoArguments,
        ),
        ChatTool(
            name=LOAD,
            description=(
                "Go on with an archived context of this chat: its messages take the place of what you "
                "remember now, which is archived first. For when the user wants to return to something "
                "earlier. Give an id, or words to find it by."
            ),
            properties={
                "context_id": f"The id of an archived context, as {LIST} lists it.",
                "query": "Words of its title, of the reason it was put aside for, or of its messages.",
            },
            takes=LoadArguments,
        ),
        ChatTool(
            name=CLEAR,
            description=(
                "Empty this chat's context without archiving it: from the next step on you remember nothing "
                f"but the current message, and it cannot be loaded again. {NEW} keeps it."
            ),
            properties={},
            takes=NoArguments,
        ),
    )
}


def chat_tool(name: str) -> ChatTool:
    """The tool of this name. Raises NotFound."""
    if name not in CHAT_TOOLS:
        raise NotFound(
            f"there is no tool {name!r} of chats{did_you_mean(name, CHAT_TOOLS)}",
            hint=f"there are {', '.join(CHAT_TOOLS)}",
        )
    return CHAT_TOOLS[name]


def arguments_of(name: str, given: object) -> Arguments:
    """What a call hands in, checked. Raises NotFound for the tool, InvalidInput for its arguments."""
    tool = chat_tool(name)
    try:
        exact_json.check_storable(given)
        arguments = msgspec.convert(_renamed(given), tool.takes)
    except (msgspec.ValidationError, exact_json.Unstorable) as exc:
        takes = ", ".join(tool.properties) or "none"
        raise InvalidInput(f"{name}: {exc}", hint=f"its arguments: {takes}") from exc
    if isinstance(arguments, LoadArguments):
        _check_load(arguments)
    return arguments


def _renamed(given: object) -> object:
    if not isinstance(given, dict):
        return {} if given is None else given
    return {_ALSO.get(key, key): value for key, value in given.items()}


def _check_load(arguments: LoadArguments) -> None:
    given = [each for each in (arguments.context_id, arguments.query) if each and each.strip()]
    if len(given) != 1:
        what = "both context_id and query are given" if given else "neither context_id nor query is given"
        raise InvalidInput(
            f"{LOAD}: {what}",
            hint="give the id of an archived context, or words to find it by",
        )


# What a call of one of the tools of chats does, and what the model is told of it.
#
# A call acts at once, as the same command of a person does; the next step of a run that goes on is composed
# of
# what is active then.


# How many archived contexts a model is told of; it finds older ones by words.
_LISTED = 20


def answer(room: Room, chat_key: str, name: str, given: object) -> dict[str, Any]:
    """Execute a call on a chat; the result of it, JSON.

    Raises NotFound for another tool, for a chat or an archived context there is not, and where words find
    none; InvalidInput for arguments that the tool does not take.
    """
    arguments = arguments_of(name, given)
    result: dict[str, Any] = exact_json.decode(exact_json.encode(_HANDLERS[name](room, chat_key, arguments)))
    return result


def _new(room: Room, chat_key: str, arguments: Arguments) -> dict[str, Any]:
    assert isinstance(arguments, NewArguments)
    changed = start_new(room, chat_key, title=arguments.title, reason=arguments.reason)
    kept = {"title_and_reason": "those it was archived with before"} if changed.was_archived else {}
    return {"archived": changed.archived, "messages": 0, **kept}


def _list(room: Room, chat_key: str, _: Arguments) -> dict[str, Any]:
    found = archives(room, chat_key, limit=_LISTED + 1)
    return {"contexts": [_told(each) for each in found[:_LISTED]], "has_more": len(found) > _LISTED}


def _told(archive: Archive) -> dict[str, Any]:
    return {
        "context_id": archive.context_id,
        "title": archive.title,
        "reason": archive.reason,
        "last_answer": archive.checkpoint_preview,
        "messages": archive.messages,
        "archived_at": archive.archived_at,
    }


def _load(room: Room, chat_key: str, arguments: Arguments) -> dict[str, Any]:
    assert isinstance(arguments, LoadArguments)
    changed = load(room, chat_key, arguments.context_id or None, words=arguments.query or None)
    ranked = {} if changed.why is None else {"why": changed.why}
    return {
        "loaded": changed.loaded,
        "messages": changed.messages,
        "archived": changed.archived,
        **ranked,
    }


def _clear(room: Room, chat_key: str, _: Arguments) -> dict[str, Any]:
    clear(room, chat_key)
    return {"cleared": True, "messages": 0}


_HANDLERS: dict[str, Callable[[Room, str, Arguments], dict[str, Any]]] = {
    NEW: _new,
    LIST: _list,
    LOAD: _load,
    CLEAR: _clear,
}
