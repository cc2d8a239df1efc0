"""Anthropic's content blocks, and how they become parts and calls of the chat form and are made of these.

Pure functions of single values. What has no counterpart becomes text that names it, never nothing.
Sources: the types of the packages `anthropic` and `openai`.
"""

import re
from collections.abc import Iterable
from typing import Any

from cardbox_cli.context.parts import is_text, kind, text_at, text_part, words_of
from cardbox_cli.context.providers.data_urls import media_of
from cardbox_cli.context.tool_calls import input_of
from cardbox_cli.model import exact_json

Block = dict[str, Any]

# What Messages accepts as base64 (anthropic.types.Base64ImageSourceParam).
IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
# The blocks that only system text within the messages may have.
OF_SYSTEM_INSIDE = ("tool_addition", "tool_removal")
# The ids that Messages accepts for tool calls.
_NO_ID_CHARACTER = re.compile(r"[^a-zA-Z0-9_-]")


def is_call(block: Any) -> bool:
    """Whether it is a call of a client's tool with all that a call needs."""
    if kind(block) != "tool_use" or not isinstance(block.get("input"), dict):
        return False
    return bool(text_at(block, "id") and text_at(block, "name"))


def is_result(block: Any) -> bool:
    """Whether it is the answer to a call of a client's tool."""
    call_id = block.get("tool_use_id") if kind(block) == "tool_result" else None
    return isinstance(call_id, str) and call_id != ""


def of_server(name: str) -> bool:
    """Whether blocks of this kind are a server's tool's: its call, or what it found."""
    return name in ("server_tool_use", "mcp_tool_use") or (
        name.endswith("_tool_result") and name != "tool_result"
    )


# --- from blocks to the chat form


def call_of_block(block: Block) -> dict[str, Any]:
    """The tool call that a tool_use block is. Equal inputs give equal arguments."""
    arguments = exact_json.canonical_text(block["input"])
    function = {"name": block["name"], "arguments": arguments}
    return {"id": block["id"], "type": "function", "function": function}


def parts_of(blocks: Iterable[Any]) -> list[dict[str, Any]]:
    """The content parts that a user's blocks are."""
    return [_file_part(block) or text_part(plain_text([block])) for block in blocks]


def has_files(blocks: Any) -> bool:
    """Whether blocks hold files, which text cannot stand for."""
    return isinstance(blocks, list) and any(_file_part(block) is not None for block in blocks)


def plain_text(blocks: Iterable[Any]) -> str:
    """Blocks as text alone, where a format has no other place: what is no text is named."""
    return "\n".join(words_of(block) or f"[{kind(block) or 'block'}]" for block in blocks)


def _file_part(block: Any) -> dict[str, Any] | None:
    source = block.get("source") if kind(block) in ("image", "document") else None
    if not isinstance(source, dict):
        return None
    url = _url(source)
    if kind(block) == "image":
        return None if url is None else {"type": "image_url", "image_url": {"url": url}}
    if source.get("type") != "base64" or url is None:
        return None
    return {"type": "file", "file": {"filename": text_at(block, "title") or "document.pdf", "file_data": url}}


def _url(source: dict[str, Any]) -> str | None:
    if source.get("type") == "base64":
        media_type, data = text_at(source, "media_type"), text_at(source, "data")
        return None if media_type is None or data is None else f"data:{media_type};base64,{data}"
    return text_at(source, "url") if source.get("type") == "url" else None


# --- from the chat form to blocks


def block_of_call(call: Any) -> Block:
    """The tool_use block that a tool call is, under the id that it came with: `tool_ids` changes those.

    Arguments that are no JSON object become `{"_raw": text}`, a name that is no text "".
    """
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return text_part(f"[tool call: {exact_json.encode(call).decode()}]")
    return {
        "type": "tool_use",
        "id": text_at(call, "id") or block_id(""),
        "name": text_at(function, "name") or "",
        "input": input_of(function.get("arguments")),
    }


def block_id(call_id: str) -> str:
    """A tool-call id in the characters that Anthropic allows."""
    return _NO_ID_CHARACTER.sub("_", call_id) or "_"


def blocks_of_content(content: Any) -> list[Block]:
    """The blocks that the content of a chat message is: none for null and for empty text."""
    if isinstance(content, list):
        return [_block(part) for part in content]
    if content is None or content == "":
        return []
    return [text_part(content if isinstance(content, str) else exact_json.encode(content).decode())]


def _block(part: Any) -> Block:
    if is_text(part):
        return text_part(part["text"])
    name = kind(part)
    value = part.get(name) if name else None
    if name == "image_url":
        return _image_block(value.get("url") if isinstance(value, dict) else value)
    if name == "file" and isinstance(value, dict) and (document := _document_block(value)):
        return document
    if name == "refusal" and isinstance(value, str):
        return text_part(value)
    return text_part(f"[{name}]" if name else exact_json.encode(part).decode())


def _image_block(url: Any) -> Block:
    media = media_of(url)
    if media is not None and media[0] in IMAGES:
        return {"type": "image", "source": {"type": "base64", "media_type": media[0], "data": media[1]}}
    if isinstance(url, str) and url.startswith(("https://", "http://")):
        return {"type": "image", "source": {"type": "url", "url": url}}
    return text_part(f"[image: {media[0] if media else url}]")


def _document_block(file: dict[str, Any]) -> Block | None:
    media = media_of(file.get("file_data"))
    if media is None or media[0] != "application/pdf":
        return None
    source = {"type": "base64", "media_type": media[0], "data": media[1]}
    name = text_at(file, "filename")
    title = {} if name is None else {"title": name}
    return {"type": "document", "source": source, **title}
