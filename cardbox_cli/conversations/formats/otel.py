"""OpenTelemetry spans with the input and output of a model. Read only.

A span is a conversation. The semantic conventions for generative AI define its attributes, for example
`gen_ai.input.messages`. Attributes are in OTLP's JSON or one object, and their values are JSON or strings of
JSON.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from cardbox_cli.context.parts import (
    arguments_text,
    data_url,
    function_call,
    kind,
    list_of,
    text_at,
    text_part,
)
from cardbox_cli.context.sources import imported_card
from cardbox_cli.conversations.conversation import Conversation, FileEntry, Format, Rereadable
from cardbox_cli.conversations.formats.chat_messages import chat_card, parse_text
from cardbox_cli.conversations.json_documents import JsonDocuments, load_lazy_lists
from cardbox_cli.conversations.message_lists import is_list
from cardbox_cli.errors import InvalidConversation, UsageError
from cardbox_cli.model import exact_json
from cardbox_cli.model.card_types import PROFILE, REASONING, TOOLS
from cardbox_cli.model.cards import CardDraft
from cardbox_cli.model.content import JsonContent, ToolContent
from cardbox_cli.providers.registry import DEFAULT

NAME = "otel"
_PREFIX = "gen_ai."
_INSTRUCTIONS, _INPUT, _OUTPUT = (
    f"{_PREFIX}{name}" for name in ("system_instructions", "input.messages", "output.messages")
)
_DEFINITIONS = f"{_PREFIX}tool.definitions"
_REQUEST = f"{_PREFIX}request."
_ROLES = ("system", "developer", "user", "assistant", "tool")
_NAMES = {"stop_sequences": "stop", "choice.count": "n"}


# --- spans


def _attributes(span: Any) -> dict[str, Any]:
    """Return the attributes of a span in any of their forms."""
    attributes = span.get("attributes") if isinstance(span, dict) else None
    if isinstance(attributes, list):
        named = (each for each in attributes if text_at(each, "key") is not None)
        return {each["key"]: _plain(each.get("value")) for each in named}
    if isinstance(attributes, dict):
        return attributes
    is_bare = isinstance(span, dict) and any(key in span for key in (_INPUT, _OUTPUT))
    return span if is_bare else {}


def _plain(value: Any) -> Any:
    if not isinstance(value, dict) or len(value) != 1:
        return value
    [(sort, inner)] = value.items()
    if sort == "arrayValue":
        return [_plain(each) for each in (inner or {}).get("values", [])]
    if sort == "kvlistValue":
        return {each["key"]: _plain(each.get("value")) for each in (inner or {}).get("values", [])}
    if sort == "intValue" and isinstance(inner, str):
        return int(inner)
    return inner


def _spans(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Yield the spans in a document, with their places."""
    if is_list(value):
        for number, each in enumerate(value):
            yield from _spans(each, f"{place}[{number}]")
    elif isinstance(value, dict):
        for key in ("resourceSpans", "scopeSpans", "spans"):
            if is_list(value.get(key)):
                yield from _spans(value[key], f"{place}: {key}")
                return
        yield place, value


def _holds_messages(span: Any) -> bool:
    attributes = _attributes(span)
    return _INPUT in attributes or _OUTPUT in attributes


def _marks(value: Any) -> str | None:
    for _, span in _spans(value, ""):
        if _holds_messages(span):
            attributes = _attributes(span)
            return f"a span has {next(key for key in (_INPUT, _OUTPUT) if key in attributes)!r}"
    return None


def _fits(value: Any) -> bool:
    """Return whether a value is or contains a span, also one without messages."""
    return any("attributes" in span for _, span in _spans(value, "") if isinstance(span, dict))


def _read(documents: JsonDocuments, *, at: str | None = None) -> Iterator[Conversation]:
    if at is not None:
        raise UsageError(f"--at {at}: a span has no key for messages", hint="omit --at")
    total = matches = 0
    for place, document in documents:
        for where, span in _spans(document, place):
            total += 1
            if _holds_messages(span):
                matches += 1
                yield _conversation(load_lazy_lists(span), where)
    if total and not matches:
        raise InvalidConversation(
            f"{documents.name}: none of {total} spans has messages",
            hint=f"pass spans of model calls, with {_INPUT} or {_OUTPUT}",
        )


def _conversation(span: dict[str, Any], place: str) -> Conversation:
    attributes = _attributes(span)
    request = _request(attributes)
    return Conversation(
        entries=Rereadable(partial(_entries, attributes, place)),
        place=place,
        own_id=text_at(attributes, f"{_PREFIX}conversation.id"),
        title=text_at(span, "name"),
        format=NAME,
        siblings={"model": request["llm_config"].get("model")},
        request=FileEntry("request", request, place) if any(request.values()) else None,
    )


def _request(attributes: Mapping[str, Any]) -> dict[str, Any]:
    names = {key.removeprefix(_REQUEST): attributes[key] for key in attributes if key.startswith(_REQUEST)}
    tools = parse_text(attributes.get(_DEFINITIONS))
    return {
        "llm_config": {_NAMES.get(name, name): value for name, value in names.items()},
        "tools": [tool for tool in list_of(tools) if isinstance(tool, dict)],
    }


def _entries(attributes: Mapping[str, Any], place: str) -> Iterator[FileEntry]:
    """Yield the instructions, the input messages and the output messages."""
    instructions = parse_text(attributes.get(_INSTRUCTIONS))
    if isinstance(instructions, list) and instructions:
        yield FileEntry(_INSTRUCTIONS, {"role": "system", "parts": instructions}, f"{place}: {_INSTRUCTIONS}")
    for key in (_INPUT, _OUTPUT):
        if key not in attributes:
            continue
        messages = parse_text(attributes[key])
        if not isinstance(messages, list):
            raise InvalidConversation(f"{place}: {key} is not a list of messages, as JSON or as a string")
        for number, message in enumerate(messages):
            yield FileEntry(f"{key}[{number}]", message, f"{place}: {key}[{number}]")


# --- messages as cards


def _draft(entry: FileEntry) -> list[CardDraft]:
    message = entry.value
    role, parts = text_at(message, "role"), message.get("parts") if isinstance(message, dict) else None
    if role not in _ROLES or not isinstance(parts, list):
        raise InvalidConversation(
            f"{entry.place}: a message must have parts and a known role, not {role!r}",
            hint=f"roles are {', '.join(_ROLES)}",
        )
    thoughts = [text_at(part, "content") or "" for part in parts if kind(part) == "reasoning"]
    answers = [part for part in parts if kind(part) == "tool_call_response"]
    others = [part for part in parts if kind(part) not in ("reasoning", "tool_call_response")]
    cards = [imported_card(REASONING, "\n".join(thoughts))] if thoughts else []
    cards += [chat_card(_answer(part), NAME) for part in answers]
    if others or not cards:
        cards.append(chat_card(_message(role, others), NAME))
    return cards


def _answer(part: dict[str, Any]) -> dict[str, Any]:
    response = part.get("response", part.get("result"))
    text = response if isinstance(response, str) else exact_json.encode(response).decode()
    return {"role": "tool", "tool_call_id": text_at(part, "id"), "content": text}


def _message(role: str, parts: list[Any]) -> dict[str, Any]:
    calls = [_call(part) for part in parts if kind(part) == "tool_call"]
    converted = [_part(part) for part in parts if kind(part) != "tool_call"]
    is_text = all(kind(part) == "text" for part in converted)
    content = "\n".join(part["text"] for part in converted) if is_text else converted
    if calls and role == "assistant":
        return {"role": role, "content": content or None, "tool_calls": calls}
    return {"role": "user" if role == "tool" else role, "content": content}


def _call(part: dict[str, Any]) -> dict[str, Any]:
    arguments = arguments_text(part.get("arguments"))
    return function_call(text_at(part, "id") or "", text_at(part, "name") or "", arguments)


def _part(part: Any) -> dict[str, Any]:
    """Convert a part to a chat content part. A part without an equivalent becomes a text of JSON."""
    sort, modality = kind(part), text_at(part, "modality")
    if sort == "text" and text_at(part, "content") is not None:
        return text_part(part["content"])
    if modality == "image" and sort == "blob" and text_at(part, "content") and text_at(part, "mime_type"):
        return {"type": "image_url", "image_url": {"url": data_url(part["mime_type"], part["content"])}}
    if modality == "image" and sort == "uri" and text_at(part, "uri"):
        return {"type": "image_url", "image_url": {"url": part["uri"]}}
    return text_part(exact_json.encode(part).decode())


def _draft_request(entry: FileEntry) -> list[CardDraft]:
    config, tools = entry.value["llm_config"], entry.value["tools"]
    profile = [imported_card(PROFILE, JsonContent({"llm_config": config}))] if config else []
    return [*profile, *([imported_card(TOOLS, ToolContent(tools))] if tools else [])]


FORMAT = Format(
    name=NAME,
    provider=DEFAULT,
    keyspace=(NAME,),
    marks=_marks,
    fits=_fits,
    read=_read,
    draft=_draft,
    draft_request=_draft_request,
)
