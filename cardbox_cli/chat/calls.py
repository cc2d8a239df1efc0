"""What the four tools of chats do when a model, or a person, calls them: the operations on contexts."""

from typing import Any

import msgspec

from cardbox_cli.chat import contexts, tools, views
from cardbox_cli.chat.room import Room
from cardbox_cli.chat.tools import LoadArguments, NewArguments

# How many archived contexts a model is shown.
_LISTED = 20


def answer_call(room: Room, chat_key: str, name: str, given: object) -> dict[str, Any]:
    """Do what a call asks for; what it answers, as JSON. Raises NotFound and InvalidInput for a bad call."""
    arguments = tools.arguments_of(name, given)
    if isinstance(arguments, NewArguments):
        changed = contexts.start_new(room, chat_key, title=arguments.title, reason=arguments.reason)
        return _told(changed)
    if isinstance(arguments, LoadArguments):
        return _told(contexts.load(room, chat_key, arguments.context_id, words=arguments.query))
    if name == tools.LIST:
        listed = views.archives(room, chat_key, limit=_LISTED)
        return {"contexts": [msgspec.to_builtins(each) for each in listed]}
    return _told(contexts.clear(room, chat_key))


def _told(changed: contexts.Changed) -> dict[str, Any]:
    known: dict[str, Any] = msgspec.to_builtins(changed)
    return {name: value for name, value in known.items() if value is not None}
