"""What a call of one of the tools of chats does, and what the model is told of it.

A call acts at once, as the same command of a person does; the next step of a run that goes on is composed of
what is active then.
"""

from collections.abc import Callable
from typing import Any

from cardbox_cli.chat import tools
from cardbox_cli.chat.contexts import clear, load, start_new
from cardbox_cli.chat.room import Room
from cardbox_cli.chat.tools import Arguments, LoadArguments, NewArguments
from cardbox_cli.chat.views import archives
from cardbox_cli.model import exact_json
from cardbox_cli.model.chats import Archive

# How many archived contexts a model is told of; it finds older ones by words.
_LISTED = 20


def answer(room: Room, chat_key: str, name: str, given: object) -> dict[str, Any]:
    """Execute a call on a chat; the result of it, JSON.

    Raises NotFound for another tool, for a chat or an archived context there is not, and where words find
    none; InvalidInput for arguments that the tool does not take.
    """
    arguments = tools.arguments_of(name, given)
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
    tools.NEW: _new,
    tools.LIST: _list,
    tools.LOAD: _load,
    tools.CLEAR: _clear,
}
