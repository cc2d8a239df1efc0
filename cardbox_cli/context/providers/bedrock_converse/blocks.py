"""Bedrock Converse's content blocks, and how they become messages of the chat form and are made of them.

Pure functions of single values. A block is an object with one key, which says what it is. Sources: the model
of `bedrock-runtime` in the package `botocore`; Amazon Bedrock API reference, "ContentBlock".
"""

import re
from collections.abc import Iterator
from typing import Any

from cardbox_cli.context.parts import is_text, kind, text_at, texts_in
from cardbox_cli.context.providers.data_urls import file_of, file_part
from cardbox_cli.context.providers.parted import Answered, Part, Parting, text_alone
from cardbox_cli.context.providers.provider import Body
from cardbox_cli.context.tool_calls import input_of
from cardbox_cli.model import exact_json

NAME = "bedrock-converse"
# What a block is, by its one key.
KINDS = (
    *("text", "image", "document", "video", "audio", "toolUse", "toolResult", "guardContent"),
    *("cachePoint", "reasoningContent", "citationsContent", "searchResult"),
)
_DOCUMENTS = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "text/html": "html",
    "text/plain": "txt",
    "text/markdown": "md",
    "application/msword": "doc",
    "application/vnd.ms-excel": "xls",
}
_MEDIA_TYPES = {name: media_type for media_type, name in _DOCUMENTS.items()}
_IMAGES = ("png", "jpeg", "gif", "webp")
_NO_NAME_CHARACTER = re.compile(r"[^a-zA-Z0-9\s()\[\]-]+")
_BLANKS = re.compile(r"\s+")


def kind_of(block: Any) -> str:
    """Which of KINDS a block is; "" for none."""
    return next((name for name in KINDS if isinstance(block, dict) and name in block), "")


def call_of(block: Part) -> dict[str, Any] | None:
    """The tool call that a block is."""
    value = block.get("toolUse") if isinstance(block, dict) else None
    name, call_id = text_at(value, "name"), text_at(value, "toolUseId")
    if not isinstance(value, dict) or not name or not call_id or "type" in value:
        return None  # with a type it is a call that the server answers
    given = value.get("input")
    if not isinstance(given, dict):
        return None
    text = exact_json.canonical_text(given)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


def answered_by(block: Part) -> Answered | None:
    """The call that a block is the result of."""
    call_id = text_at(block.get("toolResult"), "toolUseId") if isinstance(block, dict) else None
    return Answered(call_id) if call_id else None


def _is_exact(block: Part) -> bool:
    """Whether a call has only its id, name and input, or a result only its id and a text."""
    if len(block) != 1:
        return False
    if "toolUse" in block:
        return len(block["toolUse"]) == 3
    content = block["toolResult"].get("content")
    if len(block["toolResult"]) != 2 or not isinstance(content, list) or len(content) != 1:
        return False
    return text_at(content[0], "text") is not None and len(content[0]) == 1


def words_of_block(block: Part) -> str:
    """The text of a block as a reader wants it."""
    name = kind_of(block)
    value = block[name] if name else None
    if name == "text":
        return value if isinstance(value, str) else ""
    if name == "toolResult":
        return _inner_words(value)
    if name == "guardContent":
        return text_at(value.get("text"), "text") or "" if isinstance(value, dict) else ""
    if name == "reasoningContent":
        return text_at(value.get("reasoningText"), "text") or "" if isinstance(value, dict) else ""
    if name in ("citationsContent", "searchResult"):
        return _inner_words(value)
    return f"[{text_at(value, 'name') or name}]" if name in ("image", "document", "video", "audio") else ""


def _inner_words(value: Any) -> str:
    content = value.get("content") if isinstance(value, dict) else None
    lines = []
    for inner in content if isinstance(content, list) else []:
        if isinstance(inner, dict) and "json" in inner:
            lines.append(exact_json.encode(inner["json"]).decode())
        else:
            lines.append(words_of_block(inner))
    return "\n".join(filter(None, lines))


def file_of_block(block: Part) -> dict[str, Any] | None:
    """The content part in the chat form that a block with a file is."""
    name = kind_of(block)
    value = block[name] if name in ("image", "document") else None
    source = value.get("source") if isinstance(value, dict) else None
    data, sort = text_at(source, "bytes"), text_at(value, "format")
    if data is None or sort is None:
        return None
    if name == "image":
        return file_part(f"image/{sort}", data)
    media_type = _MEDIA_TYPES.get(sort)
    return None if media_type is None else file_part(media_type, data, text_at(value, "name"))


def make(body: Body, failed: bool) -> list[Part]:
    """The blocks of a message in the chat form. Bedrock refuses blank text."""
    content = body.get("content")
    if body["role"] in ("tool", "function"):
        return [_result(body, texts_in(content), failed)]
    if isinstance(content, str):
        blocks: list[Part] = [{"text": content}] if content.strip() else []
    else:
        given = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
        blocks = [made for part in given if (made := _block(part)) is not None]
    refusal = body.get("refusal")
    blocks += [{"text": refusal}] if isinstance(refusal, str) and refusal.strip() else []
    calls = body.get("tool_calls")
    blocks += [_call(call) for call in calls] if isinstance(calls, list) else []
    old = body.get("function_call")
    return [*blocks, {"text": f"[call of {exact_json.encode(old).decode()}]"}] if old else blocks


def _block(part: Any) -> Part | None:
    if is_text(part):
        return {"text": part["text"]} if part["text"].strip() else None
    file = file_of(part)
    if file is not None and (made := _file_block(*file)) is not None:
        return made
    words = text_at(part, "refusal") or (
        f"[{kind(part)}]" if kind(part) else exact_json.encode(part).decode()
    )
    return {"text": words}


def _file_block(media_type: str, data: str, name: str | None) -> Part | None:
    family, _, sort = media_type.partition("/")
    if family == "image" and sort in _IMAGES:
        return {"image": {"format": sort, "source": {"bytes": data}}}
    if media_type not in _DOCUMENTS:
        return None
    cleaned = _BLANKS.sub(" ", _NO_NAME_CHARACTER.sub("-", name or "")).strip()
    source = {"bytes": data}
    return {"document": {"format": _DOCUMENTS[media_type], "name": cleaned or "document", "source": source}}


def _call(call: Any) -> Part:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return {"text": f"[tool call: {exact_json.encode(call).decode()}]"}
    return {
        "toolUse": {
            "toolUseId": text_at(call, "id") or "_",
            "name": text_at(function, "name") or "",
            "input": input_of(function.get("arguments")),
        }
    }


def _result(body: Body, text: str, failed: bool) -> Part:
    status = {"status": "error"} if failed else {}
    call_id = text_at(body, "tool_call_id") or ""
    return {"toolResult": {"toolUseId": call_id, "content": [{"text": text}], **status}}


def lost(block: Part) -> Iterator[str]:
    """What the chat form leaves out of a block."""
    name = kind_of(block)
    if name == "cachePoint":
        return  # a mark of what to cache changes no answer
    if name == "toolResult":
        yield from _lost_of_result(block[name])
    elif name not in ("", "text", "toolUse") and file_of_block(block) is None:
        yield f"a block of the kind {name!r} is sent as text"
    elif not name:
        yield "a block of an unknown kind is left out"


def _lost_of_result(result: Any) -> Iterator[str]:
    content = result.get("content") if isinstance(result, dict) else None
    for inner in content if isinstance(content, list) else []:
        name = next(iter(inner), "") if isinstance(inner, dict) else ""
        if name not in ("text", "json"):
            yield f"a block of the kind {name!r} in a tool result is sent as text"


PARTING = Parting(
    name=NAME,
    title="Bedrock",
    is_thought=lambda block: kind_of(block) == "reasoningContent",
    is_plain=lambda block: kind_of(block) in ("text", "citationsContent"),
    words=words_of_block,
    failed=lambda block: kind_of(block) == "toolResult" and text_at(block["toolResult"], "status") == "error",
    call=call_of,
    answered=answered_by,
    files=lambda part: [file] if (file := file_of_block(part)) else [],
    make=make,
    is_exact=_is_exact,
    lost=lost,
    text=text_alone,
)
