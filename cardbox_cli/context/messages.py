"""From cards to messages: which cards speak, as whom, and what they say.

Pure. A message is spelled in OpenAI's form here, the form that cards are near to; `formats/` holds the
other dialects. Layers and their order are the composer's business.
"""

from typing import Any

import msgspec

from cardbox_cli.context import sources
from cardbox_cli.context.blocks import has_files, parts_of, plain_text
from cardbox_cli.model.cards import Card, CardDraft, card_text
from cardbox_cli.model.content import (
    FieldsSchemaContent,
    FileContent,
    MultiFileContent,
    TextContent,
)

# Types that never are a message of their own, and why: what `--explain` says was left out.
SILENT_TYPES = {
    "tool.call": "scheduling and audit; the call stands in its thought",
    "sys.profile": "makes the system prompt",
    "sys.tools": "becomes the request's tools",
    "context.compression": "joins the layer compression__context",
    "todo.item": "belongs to the layer todo__context",
    "context.layer": "a layer of an earlier request, as its metadata names it",
    "session.event": "an event of a session, no message",
}
# Types that only the format that they come from can send, and why others leave them out.
ASIDES = {
    "agent.reasoning": "thinking, sent to Anthropic alone",
    "agent.aside": "blocks of Anthropic's own, sent to it alone",
}


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message of a request in its dialect, with the layer and the card that it comes from.

    Neighbours of one `group` are parts of one message.
    """

    layer: str
    body: dict[str, Any]
    card_id: str | None = None
    group: str | None = None


class Silence(msgspec.Struct, frozen=True):
    """Why a card is no message."""

    reason: str


_SILENT = {card_type: Silence(reason) for card_type, reason in SILENT_TYPES.items()}
_SILENT_OR_ASIDE = {**_SILENT, **{card_type: Silence(reason) for card_type, reason in ASIDES.items()}}


def silence(card: Card) -> Silence | None:
    """Why a card is no message in any format, or None for one that may be."""
    return _SILENT.get(card.type)


def message_body(card: Card) -> dict[str, Any] | Silence:
    """The OpenAI message that `card` is, or why it is none.

    What was imported and fits no content class comes out as it went in.
    """
    silent = _SILENT_OR_ASIDE.get(card.type)
    if silent is not None:
        return silent
    metadata = card.metadata
    if "source_message" in metadata or "source_blocks" in metadata:
        return spoken_body(card)
    return standard_body(card)


def spoken_body(card: Card | CardDraft) -> dict[str, Any]:
    """The OpenAI message of a card that speaks: its original, or what its fields spell."""
    if "source_message" in card.metadata and (source := sources.openai_message(card)) is not None:
        return dict(source)
    body = standard_body(card)
    if "source_blocks" not in card.metadata:
        return body
    blocks = sources.anthropic_blocks(card)
    if card.type == "tool.result":
        return {**body, "content": _result_text(blocks, body["content"])}
    if body["role"] == "user" and has_files(blocks):
        return {**body, "content": parts_of(blocks)}
    return body


def standard_body(card: Card | CardDraft) -> dict[str, Any]:
    """The OpenAI message that the card's own fields spell."""
    if card.type == "tool.result":
        body = {"role": "tool", "tool_call_id": card.tool_call_id, "content": card_text(card.content)}
        name = card.metadata.get("function_name")
        return {**body, "name": name} if isinstance(name, str) else body
    content = card.content.text if type(card.content) is TextContent else _content_of(card)
    if card.tool_calls:
        return {"role": "assistant", "content": content or None, "tool_calls": card.tool_calls}
    return {"role": card.role or "user", "content": content}


def _result_text(blocks: Any, text: Any) -> Any:
    """The text of a tool result, with a word for what is no text: tool messages hold nothing else."""
    content = blocks[0].get("content") if isinstance(blocks, list) and len(blocks) == 1 else None
    return plain_text(content) if isinstance(content, list) and content else text


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
