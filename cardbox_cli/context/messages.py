"""From cards to messages: which cards make one, whose it is, and what a card's own fields put into it.

Pure. The form of messages here is the chat form, which cards are near to: a role, a text or parts, tool calls
as cards hold them. Every provider's format is made of it (`providers/`). Layers and the order of messages are
the composer's business.
"""

from typing import Any

import msgspec

from cardbox_cli.context.sources import FUNCTION_NAME
from cardbox_cli.model.card_types import CARD_TYPES, TOOL_RESULT
from cardbox_cli.model.cards import Card, CardDraft, card_text
from cardbox_cli.model.content import FieldsSchemaContent, FileContent, MultiFileContent, TextContent


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message of a request in its format, with the layer and the card that it comes from.

    Neighbours of one `group` are parts of one message.
    """

    layer: str
    body: dict[str, Any]
    card_id: str | None = None
    group: str | None = None


class NoMessage(msgspec.Struct, frozen=True):
    """Why a card is no message."""

    reason: str


_NEVER = {name: NoMessage(each.reason) for name, each in CARD_TYPES.items() if each.becomes == "nothing"}
# The types that only the format of their origin sends, and why others leave them out.
OF_ONE_FORMAT = {
    name: NoMessage(each.reason) for name, each in CARD_TYPES.items() if each.becomes == "own-format"
}
NOT_IN_CHAT = {**_NEVER, **OF_ONE_FORMAT}


def never_a_message(card: Card | CardDraft) -> NoMessage | None:
    """Why a card is no message in any format; None for one that may be."""
    return _NEVER.get(card.type)


def standard_body(card: Card | CardDraft) -> dict[str, Any]:
    """The message in the chat form that the card's own fields make."""
    if card.type == TOOL_RESULT:
        body = {"role": "tool", "tool_call_id": card.tool_call_id, "content": card_text(card.content)}
        name = card.metadata.get(FUNCTION_NAME)
        return {**body, "name": name} if isinstance(name, str) else body
    content = card.content.text if type(card.content) is TextContent else _content_of(card)
    if card.tool_calls:
        return {"role": "assistant", "content": content or None, "tool_calls": card.tool_calls}
    return {"role": card.role or "user", "content": content}


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
