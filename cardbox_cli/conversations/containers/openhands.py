"""Events of OpenHands' first version and of its SDK: a list, lines, or a folder of them. Read only.

The lines of its evaluations, each with the history of a run, are read, too. An event that is not sent to the
model, such as a change of the agent's state, becomes a `session.event`. For events of the first version this
follows `openhands/memory/conversation_memory.py`.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from cardbox_cli.context.parts import (
    arguments_text,
    called_function,
    dict_at,
    function_call,
    kind,
    list_at,
    list_of,
    text_at,
    text_part,
    texts_in,
)
from cardbox_cli.context.sources import GROUP, mark_failed
from cardbox_cli.conversations.containers.container_entries import (
    container_format,
    iterate_objects,
    store_entry,
    timed_entry,
)
from cardbox_cli.conversations.containers.packed_files import folder_id
from cardbox_cli.conversations.conversation import Conversation, FileEntry, Rereadable
from cardbox_cli.conversations.json_documents import JsonDocuments
from cardbox_cli.conversations.message_lists import is_list
from cardbox_cli.errors import InvalidConversation
from cardbox_cli.model.cards import CardDraft
from cardbox_cli.providers.openai.cards import card_of_message
from cardbox_cli.providers.registry import DEFAULT
from cardbox_cli.text.error_messages import json_type

NAME = "openhands"
# Events of the first version that are not sent to the model. The model receives what a recall found, but in a
# text that the event does not contain.
_SILENT = (
    *("change_agent_state", "agent_state_changed", "null", "recall", "condensation", "condensation_request"),
    *("start", "pause", "resume", "stop", "loop_recovery", "loop_detection"),
)


def _mark(event: dict[str, Any]) -> str | None:
    acts = text_at(event, "action") is not None or text_at(event, "observation") is not None
    if acts and "source" in event and ("id" in event or "timestamp" in event):
        return "an event has a source and an action or an observation"
    kind = text_at(event, "kind") or ""
    if kind.endswith("Event") and "source" in event:
        return f"an event has the kind {kind!r}"
    history: Any = event.get("history")
    first = next(iter(history), None) if is_list(history) else None
    evidence = _mark(first) if isinstance(first, dict) else None
    return evidence and f"in the 'history' {evidence}"


def _read(documents: JsonDocuments) -> Iterator[Conversation]:
    """Yield the conversation of a file's events, or one for each line with a history."""
    for number, (place, run) in enumerate(documents):
        if not isinstance(run, dict) or not is_list(run.get("history")):
            if number:
                raise InvalidConversation(f"{place}: a line of an OpenHands evaluation must have a 'history'")
            break
        entries = Rereadable(partial(_history, run["history"], f"{place}: history"))
        yield Conversation(entries=entries, place=place, title=text_at(run, "instance_id"), format=NAME)
    else:
        return
    yield Conversation(
        entries=Rereadable(partial(_entries, documents)),
        place=documents.name,
        own_id=folder_id(documents.name),
        format=NAME,
    )


def _history(events: Any, where: str) -> Iterator[FileEntry]:
    for number, event in enumerate(events):
        if not isinstance(event, dict):
            problem = f"an event must be an object, not {json_type(event)}"
            raise InvalidConversation(f"{where}[{number}]: {problem}")
        yield timed_entry(str(number), event, f"{where}[{number}]")


def _entries(documents: JsonDocuments) -> Iterator[FileEntry]:
    for number, (place, event) in enumerate(iterate_objects(documents)):
        yield timed_entry(str(number), event, place)


def _cards(event: dict[str, Any]) -> list[CardDraft]:
    is_sdk = text_at(event, "kind") is not None
    message = _sdk_message(event) if is_sdk else _first_version_message(event)
    if message is None:
        return []
    # The calls of one answer are one message.
    answer = text_at(event, "llm_response_id") if is_sdk else text_at(_response(event), "id")
    group = {GROUP: answer} if answer and message.get("tool_calls") else {}
    card = card_of_message(message)
    is_error = text_at(event, "kind") == "AgentErrorEvent" or text_at(event, "observation") == "error"
    if message["role"] == "tool" and (is_error or dict_at(event, "observation").get("is_error") is True):
        card = mark_failed(card)
    return store_entry([card], event, **group)


def _sdk_message(event: dict[str, Any]) -> dict[str, Any] | None:
    match event:
        case {"kind": "SystemPromptEvent", "system_prompt": {"text": str(text)}}:
            return {"role": "system", "content": text}
        case {"kind": "MessageEvent", "llm_message": {"role": str(role), "content": content}}:
            own = role if role in ("assistant", "system") else "user"
            return {"role": own, "content": _user_content(content) if own == "user" else texts_in(content)}
        case {"kind": "ActionEvent", "tool_name": str(name), "tool_call_id": str(call_id)}:
            return _call(call_id, name, _arguments(event), texts_in(event.get("thought")))
        case {"kind": "ObservationEvent", "tool_call_id": str(call_id), "observation": observation}:
            content = observation.get("content") if isinstance(observation, dict) else observation
            return {"role": "tool", "tool_call_id": call_id, "content": texts_in(content)}
        case {"kind": "AgentErrorEvent", "tool_call_id": str(call_id), "error": str(error)}:
            return {"role": "tool", "tool_call_id": call_id, "content": error}
    return None


def _arguments(event: dict[str, Any]) -> Any:
    call = dict_at(event, "tool_call")
    function = called_function(call)
    arguments = (call if function is None else function).get("arguments")
    return event.get("action") if arguments is None else arguments


def _first_version_message(event: dict[str, Any]) -> dict[str, Any] | None:
    arguments, call = dict_at(event, "args"), dict_at(event, "tool_call_metadata")
    action, observation = text_at(event, "action"), text_at(event, "observation")
    call_id = text_at(call, "tool_call_id")
    if action in _SILENT or observation in _SILENT:
        return None
    if observation is not None:
        text = text_at(event, "content") or text_at(event, "message") or ""
        answered = {"role": "tool", "tool_call_id": call_id} if call_id else {"role": "user"}
        return {**answered, "content": text}
    role = "assistant" if event.get("source") == "agent" else "user"
    if action in ("message", "system"):
        text = text_at(arguments, "content") or text_at(event, "message") or ""
        return {"role": "system" if action == "system" else role, "content": _add_images(text, arguments)}
    if action is None:
        return None
    thought = text_at(arguments, "thought")
    if action == "finish":  # a call without a result
        texts = (thought, text_at(_answer(event), "content"), text_at(arguments, "final_thought"))
        return {"role": role, "content": "\n".join(dict.fromkeys(filter(None, texts))) or action}
    if not call_id:
        return {"role": role, "content": thought or text_at(event, "message") or action}
    rest = {key: value for key, value in arguments.items() if key != "thought"}
    name = text_at(call, "function_name") or action
    return _original_call(event, call_id) or _call(call_id, name, rest, thought)


def _response(event: dict[str, Any]) -> Any:
    """Return the original answer of the model that led to an event."""
    return dict_at(event, "tool_call_metadata").get("model_response")


def _answer(event: dict[str, Any]) -> dict[str, Any]:
    """Return the message of the model's answer, empty if the event has none."""
    choices = list_at(_response(event), "choices")
    return dict_at(choices[0], "message") if choices else {}


def _original_call(event: dict[str, Any], call_id: str) -> dict[str, Any] | None:
    """Return the call as the model wrote it. The text of an answer goes with its first call."""
    answer = _answer(event)
    for number, call in enumerate(list_at(answer, "tool_calls")):
        function = called_function(call)
        name, arguments = text_at(function, "name"), text_at(function, "arguments")
        if text_at(call, "id") == call_id and name and arguments is not None:
            return _call(call_id, name, arguments, None if number else text_at(answer, "content"))
    return None


def _add_images(text: str, arguments: dict[str, Any]) -> Any:
    urls = arguments.get("image_urls")
    images = [{"type": "image_url", "image_url": {"url": url}} for url in urls or [] if isinstance(url, str)]
    return [text_part(text), *images] if images else text


def _call(call_id: str, name: str, arguments: Any, text: str | None) -> dict[str, Any]:
    call = function_call(call_id, name, arguments_text(arguments))
    return {"role": "assistant", "content": text or None, "tool_calls": [call]}


def _user_content(content: Any) -> Any:
    """Return content parts if any is an image (`image_urls` of the SDK's `ImageContent`), else a string."""
    parts = list_of(content)
    if not any(kind(part) == "image" for part in parts):
        return texts_in(content)
    converted = (_add_images(text_at(part, "text") or "", part) for part in parts if isinstance(part, dict))
    return [
        part
        for each in converted
        for part in (each if isinstance(each, list) else [text_part(each)])
        if part != text_part("")
    ]


FORMAT = container_format(NAME, DEFAULT, mark=_mark, read=_read, cards=_cards)
