"""From cards to messages: which cards speak, as whom, and what they say.

Pure. A `Message` is an OpenAI chat message, the form that other formats are made from, with the place
that it came from. Layers and their order are the composer's business, provider dialects that of `formats/`.
"""

from typing import Any

import msgspec

from cardbox_cli.model.cards import Card, CardDraft, card_text
from cardbox_cli.model.content import (
    FieldsSchemaContent,
    FileContent,
    MultiFileContent,
)

# Types that never are a message of their own, and why: what `--explain` says was left out.
SILENT_TYPES = {
    "tool.call": "scheduling and audit; the call stands in its thought",
    "sys.profile": "makes the system prompt",
    "sys.tools": "becomes the request's tools",
    "context.compression": "joins the layer compression__context",
    "todo.item": "belongs to the layer todo__context",
}


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a request: the layer and the card that it comes from, and its OpenAI form."""

    layer: str
    body: dict[str, Any]
    card_id: str | None = None


def message_body(card: Card) -> dict[str, Any] | None:
    """The OpenAI message that `card` is; None for a card that never is one.

    What was imported and fits no content class comes out as it went in.
    """
    if card.type in SILENT_TYPES:
        return None
    source = source_message(card)
    return dict(source) if source is not None else standard_body(card)


def source_message(card: Card) -> dict[str, Any] | None:
    """The original of an imported OpenAI message that cards cannot express, if this card keeps one."""
    source = card.metadata.get("source_message")
    is_ours = card.metadata.get("source_format", "openai") == "openai"
    return source if is_ours and isinstance(source, dict) and "role" in source else None


def standard_body(card: Card | CardDraft) -> dict[str, Any]:
    """The OpenAI message that the card's own fields spell."""
    role = card.role or "user"
    if card.type == "tool.result":
        body = {"role": "tool", "tool_call_id": card.tool_call_id, "content": card_text(card.content)}
        name = card.metadata.get("function_name")
        return {**body, "name": name} if isinstance(name, str) else body
    content = _content_of(card)
    if card.tool_calls:
        return {"role": "assistant", "content": content or None, "tool_calls": card.tool_calls}
    return {"role": role, "content": content}


def _content_of(card: Card | CardDraft) -> str | list[dict[str, Any]]:
    content = card.content
    if isinstance(content, MultiFileContent):
        return [_file_part(file) for file in content.files]
    if isinstance(content, FileContent):
        return [_file_part(content)]
    if isinstance(content, FieldsSchemaContent):
        return _fields_text(content)
    return card_text(content)


def _fields_text(content: FieldsSchemaContent) -> str:
    lines = [f"- {field.name}: {field.description}".rstrip(": ") for field in content.fields]
    return "\n".join(["The result must contain these fields:", *lines])


def _file_part(file: FileContent) -> dict[str, Any]:
    kind = type(file).__name__
    if kind == "ImageFileContent":
        return {"type": "image_url", "image_url": {"url": file.uri}}
    return {"type": "text", "text": f"[{kind.removesuffix('Content')}: {file.uri}]"}
