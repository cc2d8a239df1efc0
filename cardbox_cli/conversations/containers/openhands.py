"""Events of OpenHands, of its first version and of its SDK: a list or lines of them. Read only.

An event that says nothing to the model, such as a change of the agent's state, is one of the session.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from cardbox_cli.context.parts import text_at, text_of
from cardbox_cli.context.providers.registry import DEFAULT
from cardbox_cli.context.tool_calls import arguments_text
from cardbox_cli.conversations.chat_messages import chat_card
from cardbox_cli.conversations.containers.entries import container, entry, objects_in
from cardbox_cli.conversations.conversation import Conversation, FileEntry, Rereadable
from cardbox_cli.conversations.json_documents import Documents
from cardbox_cli.model.cards import CardDraft

NAME = "openhands"
# What the first version's agents and environments do that the model is not told.
_SILENT = ("change_agent_state", "agent_state_changed", "null", "recall")


def _mark(event: dict[str, Any]) -> str | None:
    acts = text_at(event, "action") is not None or text_at(event, "observation") is not None
    if acts and "source" in event and ("id" in event or "timestamp" in event):
        return "an event has a source and an action or an observation"
    kind = text_at(event, "kind") or ""
    return f"an event is of the kind {kind!r}" if kind.endswith("Event") and "source" in event else None


def _read(documents: Documents) -> Iterator[Conversation]:
    yield Conversation(
        entries=Rereadable(partial(_entries, documents)),
        place=documents.name,
        own_id=None,
        title=None,
        format=NAME,
    )


def _entries(documents: Documents) -> Iterator[FileEntry]:
    return (entry(str(number), event, place) for number, (place, event) in enumerate(objects_in(documents)))


def _cards(event: dict[str, Any]) -> list[CardDraft]:
    message = _of_sdk(event) if text_at(event, "kind") else _of_first(event)
    if message is None:
        return []
    answer = text_at(event, "llm_response_id")
    group = {"source_group": answer} if answer else {}  # several calls of one answer
    return [chat_card(message, NAME, source_message=event, **group)]


def _of_sdk(event: dict[str, Any]) -> dict[str, Any] | None:
    """The chat message that an event of the SDK is."""
    match event:
        case {"kind": "SystemPromptEvent", "system_prompt": {"text": str(text)}}:
            return {"role": "system", "content": text}
        case {"kind": "MessageEvent", "llm_message": {"role": str(role), "content": content}}:
            return {"role": role if role in ("assistant", "system") else "user", "content": _text(content)}
        case {"kind": "ActionEvent", "tool_name": str(name), "tool_call_id": str(call_id)}:
            return _call(call_id, name, _arguments(event), _text(event.get("thought")))
        case {"kind": "ObservationEvent", "tool_call_id": str(call_id), "observation": observation}:
            said = observation.get("content") if isinstance(observation, dict) else observation
            return {"role": "tool", "tool_call_id": call_id, "content": _text(said)}
        case {"kind": "AgentErrorEvent", "tool_call_id": str(call_id), "error": str(error)}:
            return {"role": "tool", "tool_call_id": call_id, "content": error}
    return None


def _arguments(event: dict[str, Any]) -> Any:
    call = event.get("tool_call")
    if isinstance(call, dict):
        function = call.get("function")
        given = function.get("arguments") if isinstance(function, dict) else call.get("arguments")
        if given is not None:
            return given
    return event.get("action")


def _of_first(event: dict[str, Any]) -> dict[str, Any] | None:
    """The chat message that an event of the first version is."""
    found = event.get("args")
    arguments = found if isinstance(found, dict) else {}
    action, observation = text_at(event, "action"), text_at(event, "observation")
    call = event.get("tool_call_metadata")
    call = call if isinstance(call, dict) and text_at(call, "tool_call_id") else {}
    if action in _SILENT or observation in _SILENT:
        return None
    if observation is not None:
        said = text_at(event, "content") or text_at(event, "message") or ""
        answered = {"role": "tool", "tool_call_id": call["tool_call_id"]} if call else {"role": "user"}
        return {**answered, "content": said}
    if action in ("message", "system"):
        role = {"user": "user", "agent": "assistant"}.get(str(event.get("source")), "user")
        text = text_at(arguments, "content") or text_at(event, "message") or ""
        return {"role": "system" if action == "system" else role, "content": text}
    if action is None:
        return None
    thought = text_at(arguments, "thought")
    name = text_at(call, "function_name") or action
    if not call:
        return {"role": "assistant", "content": thought or text_at(event, "message") or action}
    given = {key: value for key, value in arguments.items() if key != "thought"}
    return _call(call["tool_call_id"], name, given, thought)


def _call(call_id: str, name: str, arguments: Any, text: str | None) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments_text(arguments)}
    call = {"id": call_id, "type": "function", "function": function}
    return {"role": "assistant", "content": text or None, "tool_calls": [call]}


def _text(content: Any) -> str:
    return content if isinstance(content, str) else text_of(content if isinstance(content, list) else [])


FORMAT = container(NAME, DEFAULT, mark=_mark, read=_read, cards=_cards)
