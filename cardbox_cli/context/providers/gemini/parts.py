"""The parts of Gemini's contents, and how they become messages of the chat form and are made of them.

Pure functions of single values. The API takes its keys in two spellings, `functionCall` and `function_call`.
Sources: the types of the package `google-genai`; Gemini API reference, "Content".
"""

from collections.abc import Iterator
from typing import Any

from cardbox_cli.context.parts import is_text, kind, text_at, texts_in
from cardbox_cli.context.providers.data_urls import address_of, file_of, file_part
from cardbox_cli.context.providers.parted import Answered, Part, Parting, text_alone
from cardbox_cli.context.providers.provider import Body
from cardbox_cli.context.tool_calls import input_of
from cardbox_cli.model import exact_json

NAME = "gemini"
# What a part is, by the key that it has.
KINDS = (
    *("text", "inlineData", "fileData", "functionCall", "functionResponse"),
    *("executableCode", "codeExecutionResult", "toolCall", "toolResponse"),
)
_SNAKES = {
    "inlineData": "inline_data",
    "fileData": "file_data",
    "functionCall": "function_call",
    "functionResponse": "function_response",
    "executableCode": "executable_code",
    "codeExecutionResult": "code_execution_result",
    "toolCall": "tool_call",
    "toolResponse": "tool_response",
    "mimeType": "mime_type",
    "fileUri": "file_uri",
    "displayName": "display_name",
    "thoughtSignature": "thought_signature",
    "finishReason": "finish_reason",
    "promptFeedback": "prompt_feedback",
    "blockReason": "block_reason",
    "usageMetadata": "usage_metadata",
}
_KINDS = {spelled: name for name in KINDS for spelled in (name, _SNAKES.get(name, name))}
# The name of a result until that of its call is known: no card can hold such a text.
UNNAMED = "\0"
# Under which keys a function's answer is a text alone: the one that is written, and Google's own package's.
_ANSWER, _FAILURE = "output", "error"


def camel_key(key: str) -> str:
    """A key in camelCase, in whichever spelling it came."""
    first, *others = key.split("_")
    return first + "".join(map(str.capitalize, others))


def at(value: Any, key: str) -> Any:
    """What an object has under a key, in either spelling."""
    if not isinstance(value, dict):
        return None
    return value[key] if key in value else value.get(_SNAKES.get(key, key))


def kind_of(part: Any) -> str:
    """Which of KINDS a part is; "" for none."""
    if type(part) is dict and len(part) == 1:
        [(key, value)] = part.items()
        return _KINDS.get(key, "") if value is not None else ""
    return next((name for name in KINDS if at(part, name) is not None), "")


def call_of(part: Part) -> dict[str, Any] | None:
    """The tool call that a part is, its id "" where it has none."""
    value = at(part, "functionCall")
    name = text_at(value, "name")
    arguments = value.get("args") if isinstance(value, dict) else None
    if not name or not (arguments is None or isinstance(arguments, dict)):
        return None
    text = exact_json.canonical_text(arguments or {})
    return {
        "id": text_at(value, "id") or "",
        "type": "function",
        "function": {"name": name, "arguments": text},
    }


def _is_exact(part: Part) -> bool:
    """Whether a call has an id, its name and arguments, and nothing else."""
    call = part.get("functionCall") if len(part) == 1 else None
    return call is not None and len(call) == 3 and bool(text_at(call, "id")) and call.get("args") is not None


def answered_by(part: Part) -> Answered | None:
    """The call that a part is the result of."""
    value = at(part, "functionResponse")
    name = text_at(value, "name")
    return None if name is None else Answered(text_at(value, "id") or "", name)


def words_of_part(part: Part) -> str:
    """The text of a part as a reader wants it."""
    name = kind_of(part)
    if name == "text":
        return text_at(part, "text") or ""
    value = at(part, name) if name else None
    if name == "functionResponse":
        return _answer(at(value, "response"))
    if name == "executableCode":
        return text_at(value, "code") or ""
    if name == "codeExecutionResult":
        return text_at(value, "output") or ""
    if name in ("inlineData", "fileData"):
        return f"[{at(value, 'fileUri') or at(value, 'mimeType') or 'file'}]"
    return ""


def _answer(response: Any) -> str:
    """What a function answered: its text where that is all, else the object as JSON."""
    if isinstance(response, dict) and len(response) == 1:
        [(key, value)] = response.items()
        if key in (_ANSWER, _FAILURE) and isinstance(value, str):
            return value
    return "" if response is None else exact_json.encode(response).decode()


def file_of_part(part: Part) -> dict[str, Any] | None:
    """The content part in the chat form that a part with a file is."""
    inline, linked = at(part, "inlineData"), at(part, "fileData")
    if isinstance(inline, dict):
        media_type, data = at(inline, "mimeType"), text_at(inline, "data")
        if isinstance(media_type, str) and data is not None:
            return file_part(media_type, data, at(inline, "displayName"))
    address, media_type = at(linked, "fileUri"), at(linked, "mimeType")
    is_image = isinstance(media_type, str) and media_type.startswith("image/")
    if is_image and isinstance(address, str) and address.startswith(("https://", "http://")):
        return {"type": "image_url", "image_url": {"url": address}}
    return None


def make(body: Body, failed: bool) -> list[Part]:
    """The parts of a message in the chat form."""
    content = body.get("content")
    if body["role"] in ("tool", "function"):
        return [_response(body, texts_in(content), failed)]
    if isinstance(content, str):
        parts: list[Part] = [{"text": content}] if content.strip() else []
    else:
        given = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
        parts = [made for part in given if (made := _part(part)) is not None]
    refusal = body.get("refusal")
    parts += [{"text": refusal}] if isinstance(refusal, str) and refusal else []
    calls = body.get("tool_calls")
    parts += [_call(call) for call in calls] if isinstance(calls, list) else []
    old = body.get("function_call")
    return [*parts, {"text": f"[call of {exact_json.encode(old).decode()}]"}] if old else parts


def _part(part: Any) -> Part | None:
    if is_text(part):
        return {"text": part["text"]} if part["text"].strip() else None
    file = file_of(part)
    if file is not None:
        media_type, data, _ = file
        return {"inlineData": {"mimeType": media_type, "data": data}}
    address = address_of(part)
    if address is not None and address.startswith(("https://", "http://", "gs://")):
        return {"fileData": {"fileUri": address, "mimeType": _image_type(address)}}
    words = text_at(part, "refusal") or (
        f"[{kind(part)}]" if kind(part) else exact_json.encode(part).decode()
    )
    return {"text": words}


def _image_type(address: str) -> str:
    """The media type of an image as its address tells; the API wants one."""
    ending = address.partition("?")[0].rpartition(".")[2].lower()
    return {"png": "image/png", "gif": "image/gif", "webp": "image/webp"}.get(ending, "image/jpeg")


def _call(call: Any) -> Part:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return {"text": f"[tool call: {exact_json.encode(call).decode()}]"}
    named = {"id": call["id"]} if text_at(call, "id") else {}
    return {
        "functionCall": {
            **named,
            "name": text_at(function, "name") or "",
            "args": input_of(function.get("arguments")),
        }
    }


def _response(body: Body, text: str, failed: bool) -> Part:
    """The answer to a call. Its name is that of the call, which `named` finds."""
    call_id, name = text_at(body, "tool_call_id"), text_at(body, "name")
    named = {"id": call_id} if call_id else {}
    return {
        "functionResponse": {
            **named,
            "name": name or UNNAMED,
            "response": {_FAILURE if failed else _ANSWER: text},
        }
    }


def lost(part: Part) -> Iterator[str]:
    """What the chat form leaves out of a part."""
    name = kind_of(part)
    known = {name, _SNAKES.get(name, name), "thoughtSignature", "thought_signature", "thought"}
    if at(part, "thoughtSignature") is not None:
        yield "the thought's signature is not sent"
    if name in ("inlineData", "fileData") and file_of_part(part) is None:
        yield f"a part of the kind {name!r} is sent as text"
    elif not name or name in ("executableCode", "codeExecutionResult", "toolCall", "toolResponse"):
        yield f"a part of the kind {name or 'unknown'!r} is left out"
    if at(at(part, "functionResponse"), "parts"):
        yield "the files in a tool result are not sent"
    for key in sorted(part.keys() - known if isinstance(part, dict) else ()):
        yield f"the key {key!r} of a part is not sent"


def _failed(part: Part) -> bool:
    response = at(at(part, "functionResponse"), "response")
    return isinstance(response, dict) and _FAILURE in response and _ANSWER not in response


PARTING = Parting(
    name=NAME,
    title="Gemini",
    is_thought=lambda part: at(part, "thought") is True,
    is_plain=lambda part: kind_of(part) == "text" and at(part, "thought") is not True,
    words=words_of_part,
    failed=_failed,
    call=call_of,
    answered=answered_by,
    files=lambda part: [file] if (file := file_of_part(part)) else [],
    make=make,
    names_results=True,
    is_exact=_is_exact,
    lost=lost,
    text=text_alone,
)
