"""Anthropic's content blocks and OpenAI's content parts and tool calls, one turned into the other.

Pure functions of single values. What has no counterpart becomes text that names it, never nothing.
Sources: the types of the packages `anthropic` and `openai`.
"""

import re
from collections.abc import Iterable
from typing import Any

from cardbox_cli.model import exact_json

Block = dict[str, Any]

# What Messages accepts as base64 (anthropic.types.Base64ImageSourceParam).
IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w.+-]+=[^;,]*)*;base64,(.*)", re.DOTALL)
# The ids that Messages accepts for tool calls.
_NO_ID_CHARACTER = re.compile(r"[^a-zA-Z0-9_-]")
# Where the input of a call has arguments that are no JSON object.
RAW = "_raw"
# Keys of a block that name things or hold bytes, and say nothing to a reader.
_MUTE = frozenset(
    {"type", "id", "tool_use_id", "file_id", "media_type", "signature", "cache_control", "caller"}
    | {"encrypted_content", "encrypted_index", "encrypted_stdout", "citations", "page_age"}
)
_MUTE_TYPES = ("base64", "redacted_thinking")


def text_block(text: str) -> Block:
    """A text block."""
    return {"type": "text", "text": text}


def kind(block: Any) -> str:
    """A block's type; "" for what is no block."""
    name = block.get("type") if isinstance(block, dict) else None
    return name if isinstance(name, str) else ""


def is_text(block: Any) -> bool:
    """Whether it is a text block that holds text."""
    return kind(block) == "text" and isinstance(block.get("text"), str)


def is_call(block: Any) -> bool:
    """Whether it is a call of a client's tool with all that a call needs."""
    if kind(block) != "tool_use" or not isinstance(block.get("input"), dict):
        return False
    call_id, name = block.get("id"), block.get("name")
    return isinstance(call_id, str) and isinstance(name, str) and call_id != "" and name != ""


def is_result(block: Any) -> bool:
    """Whether it is the answer to a call of a client's tool."""
    call_id = block.get("tool_use_id") if kind(block) == "tool_result" else None
    return isinstance(call_id, str) and call_id != ""


def text_at(value: Any, key: str) -> str | None:
    """The text that an object has under `key`; None where it has none, or is no object."""
    text = value.get(key) if isinstance(value, dict) else None
    return text if isinstance(text, str) else None


def texts_in(content: Any) -> str:
    """A message's content where it is a text, else the texts of its parts or blocks, a line each."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(text for part in parts if (text := text_at(part, "text")) is not None)


def tool_name(value: Any) -> str | None:
    """The name of a tool, in a definition or a call of either form."""
    function = value.get("function") if isinstance(value, dict) else None
    return text_at(function if isinstance(function, dict) else value, "name")


# --- what blocks say


def text_of(blocks: Iterable[Any]) -> str:
    """What blocks say in words, a line each; the pieces of a cited sentence stay one line."""
    text = ""
    in_sentence = True
    for block in blocks:
        words = _words(block)
        is_cited = is_text(block) and bool(block.get("citations"))
        if words:
            text += words if in_sentence or is_cited else f"\n{words}"
            in_sentence = is_cited
    return text


def _words(value: Any) -> str:
    lines: list[str] = []
    _collect_words(value, lines)
    return "\n".join(lines)


def _collect_words(value: Any, lines: list[str]) -> None:
    """Every string in `value` that is meant to be read; names and titles first, the rest by key."""
    if isinstance(value, str):
        if value:
            lines.append(value)
    elif isinstance(value, list):
        for item in value:
            _collect_words(item, lines)
    elif is_text(value):
        _collect_words(value["text"], lines)
    elif isinstance(value, dict) and value.get("type") not in _MUTE_TYPES:
        for key in sorted(value.keys() - _MUTE, key=lambda key: (key not in ("name", "title"), key)):
            _collect_words(value[key], lines)


# --- from Anthropic to OpenAI


def call_of_block(block: Block) -> dict[str, Any]:
    """The tool call, in OpenAI's form, that a tool_use block is. Equal inputs give equal arguments."""
    arguments = exact_json.canonical(exact_json.encode(block["input"])).decode()
    return {
        "id": block["id"],
        "type": "function",
        "function": {"name": block["name"], "arguments": arguments},
    }


def parts_of(blocks: Iterable[Any]) -> list[dict[str, Any]]:
    """The content parts, in OpenAI's form, that a user's blocks are."""
    return [_part(block) for block in blocks]


def has_files(blocks: Any) -> bool:
    """Whether blocks hold what only content parts can say."""
    return isinstance(blocks, list) and any(_file_part(block) is not None for block in blocks)


def plain_text(blocks: Iterable[Any]) -> str:
    """Blocks as text alone, where a format has no other place: what is no text is named."""
    return "\n".join(_words(block) or f"[{kind(block) or 'block'}]" for block in blocks)


def _part(block: Any) -> dict[str, Any]:
    file = _file_part(block)
    return file if file is not None else text_block(plain_text([block]))


def _file_part(block: Any) -> dict[str, Any] | None:
    source = block.get("source") if kind(block) in ("image", "document") else None
    if not isinstance(source, dict):
        return None
    url = _url(source)
    if kind(block) == "image":
        return None if url is None else {"type": "image_url", "image_url": {"url": url}}
    if source.get("type") != "base64" or url is None:
        return None
    title = block.get("title")
    name = title if isinstance(title, str) and title else "document.pdf"
    return {"type": "file", "file": {"filename": name, "file_data": url}}


def _url(source: dict[str, Any]) -> str | None:
    if source.get("type") == "base64":
        media_type, data = source.get("media_type"), source.get("data")
        is_whole = isinstance(media_type, str) and isinstance(data, str)
        return f"data:{media_type};base64,{data}" if is_whole else None
    url = source.get("url")
    return url if source.get("type") == "url" and isinstance(url, str) else None


# --- from OpenAI to Anthropic


def block_of_call(call: Any) -> Block:
    """The tool_use block that a tool call is, under the id that it came with: `tool_use_ids` spells those.

    Arguments that are no JSON object become `{"_raw": text}`, a name that is no text "".
    """
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return text_block(f"[tool call: {exact_json.encode(call).decode()}]")
    return {
        "type": "tool_use",
        "id": text_at(call, "id") or block_id(""),
        "name": text_at(function, "name") or "",
        "input": input_of(function.get("arguments")),
    }


def block_id(call_id: str) -> str:
    """A tool-call id in the characters that Anthropic allows."""
    return _NO_ID_CHARACTER.sub("_", call_id) or "_"


def input_of(arguments: Any) -> dict[str, Any]:
    """The input that a call's arguments are; those that are no JSON object stand in it as `_raw`."""
    value = arguments_of(arguments)
    if value is not None:
        return value
    return {RAW: arguments if isinstance(arguments, str) else exact_json.encode(arguments).decode()}


def arguments_of(arguments: Any) -> dict[str, Any] | None:
    """The object that a call's arguments spell, {} where there are none; None for what is no JSON object."""
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return {}
    try:
        value = exact_json.read(arguments) if isinstance(arguments, str) else arguments
        exact_json.check_storable(value)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def blocks_of_content(content: Any) -> list[Block]:
    """The blocks that an OpenAI message's content is: none for null and for empty text."""
    if isinstance(content, list):
        return [_block(part) for part in content]
    if content is None or content == "":
        return []
    return [text_block(content if isinstance(content, str) else exact_json.encode(content).decode())]


def _block(part: Any) -> Block:
    if is_text(part):
        return text_block(part["text"])
    name = kind(part)
    value = part.get(name) if name else None
    if name == "image_url":
        return _image_block(value.get("url") if isinstance(value, dict) else value)
    if name == "file" and isinstance(value, dict) and (document := _document_block(value)):
        return document
    if name == "refusal" and isinstance(value, str):
        return text_block(value)
    return text_block(f"[{name}]" if name else exact_json.encode(part).decode())


def _image_block(url: Any) -> Block:
    data = _DATA_URL.fullmatch(url) if isinstance(url, str) else None
    if data is not None and data[1] in IMAGES:
        return {"type": "image", "source": {"type": "base64", "media_type": data[1], "data": data[2]}}
    if isinstance(url, str) and url.startswith(("https://", "http://")):
        return {"type": "image", "source": {"type": "url", "url": url}}
    return text_block(f"[image: {data[1] if data else url}]")


def _document_block(file: dict[str, Any]) -> Block | None:
    data = _DATA_URL.fullmatch(file["file_data"]) if isinstance(file.get("file_data"), str) else None
    if data is None or data[1] != "application/pdf":
        return None
    source = {"type": "base64", "media_type": data[1], "data": data[2]}
    name = file.get("filename")
    title = {"title": name} if isinstance(name, str) else {}
    return {"type": "document", "source": source, **title}
