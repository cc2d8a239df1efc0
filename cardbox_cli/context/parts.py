"""Content parts and tool calls of messages: their types, texts, files and arguments.

Pure functions of single values of any type. Each provider's format decides what its own parts mean and how to
convert them to another format.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from cardbox_cli.model import exact_json
from cardbox_cli.model.card_types import TOOL_RESULT
from cardbox_cli.model.cards import Card, CardDraft

# Keys of a part that hold ids, types or bytes instead of text for a reader.
_NO_TEXT = frozenset(
    {"type", "id", "tool_use_id", "file_id", "media_type", "signature", "cache_control", "caller"}
    | {"encrypted_content", "encrypted_index", "encrypted_stdout", "citations", "page_age"}
)
_TYPES_WITHOUT_TEXT = ("base64", "redacted_thinking")


def text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def kind(part: Any) -> str:
    """Return a part's type, or "" if the value is not a part."""
    name = part.get("type") if isinstance(part, dict) else None
    return name if isinstance(name, str) else ""


def is_text(part: Any) -> bool:
    return kind(part) == "text" and isinstance(part.get("text"), str)


def is_nothing(value: Any) -> bool:
    """Return whether a value means the same as a missing key: null or empty. 0 and false have a meaning."""
    return value is None or (isinstance(value, str | list | dict) and not value)


def text_at(value: Any, key: str) -> str | None:
    """Return `value[key]` if it is a string, else None."""
    text = value.get(key) if isinstance(value, dict) else None
    return text if isinstance(text, str) else None


def list_at(value: Any, key: str) -> list[Any]:
    """Return `value[key]` if it is a list, else an empty list."""
    items = value.get(key) if isinstance(value, dict) else None
    return items if isinstance(items, list) else []


def dict_at(value: Any, key: str) -> dict[str, Any]:
    """Return `value[key]` if it is a JSON object, else an empty one."""
    inner = value.get(key) if isinstance(value, dict) else None
    return inner if isinstance(inner, dict) else {}


def function_call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def texts_in(content: Any) -> str:
    """Return a message's content if it is a string, else the texts of its parts, one per line."""
    if isinstance(content, str):
        return content
    return "\n".join(text for part in list_of(content) if (text := text_at(part, "text")) is not None)


def tool_name(value: Any) -> str | None:
    """Return the tool name in a definition or a call, at the top level or below `function` or `custom`."""
    inner = [value.get(key) for key in ("function", "custom")] if isinstance(value, dict) else []
    return text_at(next((each for each in inner if isinstance(each, dict)), value), "name")


def list_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def ensure_list(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [] if content is None else [content]


def text_of(parts: Iterable[Any]) -> str:
    """Return all text in the parts, one line per part. The parts of a cited sentence share a line."""
    text = ""
    in_sentence = True
    for part in parts:
        words = words_of(part)
        is_cited = is_text(part) and bool(part.get("citations"))
        if words:
            text += words if in_sentence or is_cited else f"\n{words}"
            in_sentence = is_cited
    return text


def words_of(value: Any) -> str:
    """Return every string in a value that is meant for a reader, one per line."""
    lines: list[str] = []
    _collect_words(value, lines)
    return "\n".join(lines)


def _collect_words(value: Any, lines: list[str]) -> None:
    """Append the strings to `lines`. In an object, names and titles come first, then other keys, sorted."""
    if isinstance(value, str):
        if value:
            lines.append(value)
    elif isinstance(value, list):
        for item in value:
            _collect_words(item, lines)
    elif is_text(value):
        _collect_words(value["text"], lines)
    elif isinstance(value, dict) and value.get("type") not in _TYPES_WITHOUT_TEXT:
        for key in sorted(value.keys() - _NO_TEXT, key=lambda key: (key not in ("name", "title"), key)):
            _collect_words(value[key], lines)


# --- files as `data:` URLs, the form in which the chat form holds their bytes


_MEDIA_TYPE = re.compile(r"data:([\w.+-]+/[\w.+-]+)")
_PARAMETER = re.compile(r"[\w.+-]+=[^,]*")
_AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mp3": "mp3", "audio/mpeg": "mp3"}


def data_url(media_type: str, data: str) -> str:
    """Return the `data:` URL of `data`, which is in base64."""
    return f"data:{media_type};base64,{data}"


def media_of(url: Any) -> tuple[str, str] | None:
    """Return the media type and the base64 data of a `data:` URL. Returns None for other values."""
    if not isinstance(url, str):
        return None
    head, marked, data = url.partition(";base64,")
    first, *parameters = head.split(";")
    media_type = _MEDIA_TYPE.fullmatch(first)
    if not marked or media_type is None or not all(map(_PARAMETER.fullmatch, parameters)):
        return None
    return media_type[1], data


def file_part(media_type: str, data: str, name: str | None = None) -> dict[str, Any]:
    if media_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": data_url(media_type, data)}}
    if media_type in _AUDIO_FORMATS:
        return {"type": "input_audio", "input_audio": {"data": data, "format": _AUDIO_FORMATS[media_type]}}
    filename = name or f"file.{media_type.rpartition('/')[2]}"
    return {"type": "file", "file": {"filename": filename, "file_data": data_url(media_type, data)}}


def file_of(part: Any) -> tuple[str, str, str | None] | None:
    """Return media type, base64 data and name of the file in a part of the chat form, or None."""
    value = part.get(kind(part)) if isinstance(part, dict) and kind(part) else None
    if kind(part) == "image_url":
        media = media_of(address_of(part))
        return None if media is None else (*media, None)
    if kind(part) == "input_audio":
        data, sort = text_at(value, "data"), text_at(value, "format")
        return None if data is None or sort is None else (f"audio/{sort}", data, None)
    media = media_of(text_at(value, "file_data")) if kind(part) == "file" else None
    return None if media is None else (*media, text_at(value, "filename"))


def address_of(part: Any) -> str | None:
    value = part.get("image_url") if kind(part) == "image_url" else None
    return value if isinstance(value, str) else text_at(value, "url")


# --- tool calls as cards hold them: functions with an id and arguments, which are JSON in a string


# The key under which `input_of` returns arguments that are not a JSON object.
RAW = "_raw"


class MalformedAnswer(ValueError):
    """A model's answer that is not a message, or that has a malformed tool call."""


def arguments_of(arguments: Any) -> dict[str, Any] | None:
    """Return a call's arguments as an object ({} if missing), or None if they are not a JSON object."""
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return {}
    try:
        value = exact_json.read_fast(arguments) if isinstance(arguments, str) else arguments
        exact_json.check_storable(value)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def input_of(arguments: Any) -> dict[str, Any]:
    """Return a call's arguments as an object. If they are not a JSON object, their text is under `_raw`."""
    value = arguments_of(arguments)
    return {RAW: arguments_text(arguments)} if value is None else value


def arguments_text(arguments: Any) -> str:
    if isinstance(arguments, str):
        return arguments
    return "{}" if arguments is None else json_text(arguments)


def json_text(value: Any) -> str:
    return exact_json.encode(value).decode()


def called_function(call: Any) -> dict[str, Any] | None:
    """Return the function of a tool call. Returns None for another type of call."""
    function = call.get("function") if isinstance(call, dict) else None
    return function if isinstance(function, dict) else None


def are_functions(calls: Any) -> bool:
    # A loop, because this runs for each message of a long history.
    for call in calls if isinstance(calls, list) else ():
        if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
            return False
    return True


def other_calls(calls: Any) -> Iterator[Any]:
    return (call for call in list_of(calls) if called_function(call) is None)


def normalized_calls(calls: Sequence[Any]) -> list[dict[str, Any]]:
    """Return calls in the form that cards store: with an id (may be "") and arguments as a string. Raises
    MalformedAnswer if a call has no function name."""
    return [_normalized(call, index) for index, call in enumerate(calls)]


def _normalized(call: Any, index: int) -> dict[str, Any]:
    function = dict_at(call, "function")
    if not text_at(function, "name"):
        raise MalformedAnswer(f"tool_calls[{index}] names no function")
    return {
        **call,
        "id": text_at(call, "id") or "",
        "type": "function",
        "function": {**function, "arguments": arguments_text(function.get("arguments"))},
    }


# --- results of calls of other types than functions

# A format that sends such a call as text sends its result as text, too. Only the cards before a result show
# the type of its call, so formats get the result with the call in its metadata; no stored card has that key.

_ANSWERED = "answered_call"


class OtherCalls:
    """The calls of other types than functions, while cards are read in order."""

    def __init__(self) -> None:
        self._calls: dict[str, Any] = {}

    def answering(self, card: Card) -> Card:
        """Return the card, with the call in its metadata if it is the result of such a call."""
        if card.tool_calls and (self._calls or not are_functions(card.tool_calls)):
            for call in list_of(card.tool_calls):
                if call_id := text_at(call, "id"):
                    self._calls.pop(call_id, None)  # a result answers the nearest call
                    if called_function(call) is None:
                        self._calls[call_id] = call
        if not self._calls or card.type != TOOL_RESULT:
            return card
        call = self._calls.get(card.tool_call_id or "")
        if call is None:
            return card
        return msgspec.structs.replace(card, metadata={**card.metadata, _ANSWERED: call})


def answering(cards: Iterable[Card]) -> Iterator[Card]:
    """Yield the cards in order, as `OtherCalls.answering` returns them."""
    calls = OtherCalls()
    return map(calls.answering, cards)


def answered_call(card: Card | CardDraft) -> Any:
    """Return the call of another type than a function that a card answers; None for other cards."""
    return card.metadata.get(_ANSWERED)


def result_text(body: dict[str, Any], *, failed: bool = False) -> str:
    """Return the text that replaces a result in the chat form, for formats without a place for it."""
    whose = text_at(body, "tool_call_id") or text_at(body, "name") or "a tool"
    return f"[result of {whose}{', which failed' if failed else ''}: {texts_in(body.get('content'))}]"


def lost_result(card: Card) -> str:
    what = "function without an id" if answered_call(card) is None else "call that is not a function call"
    return f"the result of a {what} is sent as text"
