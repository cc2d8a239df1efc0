"""Events of OpenHands' first version and of its SDK: a list, lines, or a folder of them. Read only.

The lines of its evaluations, each with the history of a run, are read, too. An event that is not sent to the
model, such as a change of the agent's state, becomes a `session.event`. For events of the first version this
follows `openhands/memory/conversation_memory.py`.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from cardbox_cli.context.parts import arguments_text, kind, text_at, text_part, texts_in
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
        where = f"{place}: history"
        yield Conversation(
            entries=Rereadable(partial(_history, run["history"], where)),
            place=place,
            own_id=None,
            title=text_at(run, "instance_id"),
            format=NAME,
        )
    else:
        return
    yield Conversation(
        entries=Rereadable(partial(_entries, documents)),
        place=documents.name,
        own_id=folder_id(documents.name),
        title=None,
        format=NAME,
    )


def _history(events: Any, where: str) -> Iterator[FileEntry]:
    for number, event in enumerate(events):
        if not isinstance(event, dict):
            raise InvalidConversation(
                f"{where}[{number}]: an event must be an object, not {json_type(event)}"
            )
        yield timed_entry(str(number), event, f"{where}[{number}]")


def _entries(documents: JsonDocuments) -> Iterator[FileEntry]:
    return (
        timed_entry(str(number), event, place)
        for number, (place, event) in enumerate(iterate_objects(documents))
    )


def _cards(event: dict[str, Any]) -> list[CardDraft]:
    is_sdk = text_at(event, "kind") is not None
    message = _sdk_message(event) if is_sdk else _first_version_message(event)
    if message is None:
        return []
    # The calls of one answer are one message.
    answer = text_at(event, "llm_response_id") if is_sdk else text_at(_response(event), "id")
    group = {GROUP: answer} if answer and message.get("tool_calls") else {}
    card = card_of_message(message)
    return store_entry([mark_failed(card) if _failed(message, event) else card], event, **group)


def _failed(message: dict[str, Any], event: dict[str, Any]) -> bool:
    """Return whether the message of an event is the result of a failed call."""
    is_error = text_at(event, "kind") == "AgentErrorEvent" or text_at(event, "observation") == "error"
    observed = event.get("observation")
    observed_error = isinstance(observed, dict) and observed.get("is_error") is True
    return message["role"] == "tool" and (is_error or observed_error)


def _sdk_message(event: dict[str, Any]) -> dict[str, Any] | None:
    """Convert an event of the SDK to a chat message, None if it has none."""
    match event:
        case {"kind": "SystemPromptEvent", "system_prompt": {"text": str(text)}}:
            return {"role": "system", "content": text}
        case {"kind": "MessageEvent", "llm_message": {"role": str(role), "content": content}}:
            own = role if role in ("assistant", "system") else "user"
            return {"role": own, "content": _user_content(content) if own == "user" else _text(content)}
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


def _first_version_message(event: dict[str, Any]) -> dict[str, Any] | None:
    """Convert an event of the first version to a chat message, None if it has none."""
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
    source = event.get("source")
    role = "assistant" if source == "agent" else "user"
    if action in ("message", "system"):
        text = text_at(arguments, "content") or text_at(event, "message") or ""
        return {"role": "system" if action == "system" else role, "content": _add_images(text, arguments)}
    if action is None:
        return None
    thought = text_at(arguments, "thought")
    if action == "finish":  # a call without a result
        words = (thought, _answer_text(event), text_at(arguments, "final_thought"))
        return {"role": role, "content": "\n".join(dict.fromkeys(filter(None, words))) or action}
    if not call:
        return {"role": role, "content": thought or text_at(event, "message") or action}
    given = {key: value for key, value in arguments.items() if key != "thought"}
    name = text_at(call, "function_name") or action
    return _original_call(event, call["tool_call_id"]) or _call(call["tool_call_id"], name, given, thought)


def _response(event: dict[str, Any]) -> Any:
    """Return the original answer of the model that led to an event."""
    call = event.get("tool_call_metadata")
    return call.get("model_response") if isinstance(call, dict) else None


def _answer(event: dict[str, Any]) -> dict[str, Any]:
    """Return the message of the model's answer, empty if the event has none."""
    response = _response(event)
    choices = response.get("choices") if isinstance(response, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    return message if isinstance(message, dict) else {}


def _answer_text(event: dict[str, Any]) -> str | None:
    return text_at(_answer(event), "content")


def _original_call(event: dict[str, Any], call_id: str) -> dict[str, Any] | None:
    """Return the call as the model wrote it. The text of an answer goes with its first call."""
    calls = _answer(event).get("tool_calls")
    for number, call in enumerate(calls if isinstance(calls, list) else []):
        function = call.get("function") if isinstance(call, dict) else None
        name, arguments = text_at(function, "name"), text_at(function, "arguments")
        if text_at(call, "id") == call_id and name and arguments is not None:
            return _call(call_id, name, arguments, None if number else _answer_text(event))
    return None


def _add_images(text: str, arguments: dict[str, Any]) -> Any:
    urls = arguments.get("image_urls")
    images = [{"type": "image_url", "image_url": {"url": url}} for url in urls or [] if isinstance(url, str)]
    return [text_part(text), *images] if images else text


def _call(call_id: str, name: str, arguments: Any, text: str | None) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments_text(arguments)}
    call = {"id": call_id, "type": "function", "function": function}
    return {"role": "assistant", "content": text or None, "tool_calls": [call]}


def _user_content(content: Any) -> Any:
    """Return content parts if any is an image (`image_urls` of the SDK's `ImageContent`), else a string."""
    parts = content if isinstance(content, list) else []
    if not any(kind(part) == "image" for part in parts):
        return _text(content)
    made = (_add_images(text_at(part, "text") or "", part) for part in parts if isinstance(part, dict))
    return [
        part
        for each in made
        for part in (each if isinstance(each, list) else [text_part(each)])
        if part != text_part("")
    ]


def _text(content: Any) -> str:
    return content if isinstance(content, str) else texts_in(content)


FORMAT = container_format(NAME, DEFAULT, mark=_mark, read=_read, cards=_cards)
