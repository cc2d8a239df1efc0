"""The message in the chat form that a card is, its original taken into account.

Pure. Formats that are no chat form are made of it, and `text` is; what a card keeps of an original is known
to the provider whose format that was in.
"""

from collections.abc import Iterator
from typing import Any

from cardbox_cli.context.messages import NOT_IN_CHAT, NoMessage, standard_body
from cardbox_cli.context.parts import kind
from cardbox_cli.context.providers.registry import PROVIDERS, provider_named
from cardbox_cli.context.sources import BLOCKS, FAILED, MESSAGE
from cardbox_cli.model.cards import Card, CardDraft
from cardbox_cli.model.content import ToolResultContent


def chat_message(card: Card) -> dict[str, Any] | NoMessage:
    """The message in the chat form that a card is, or why it is none."""
    return NOT_IN_CHAT.get(card.type) or chat_body(card)


def chat_body(card: Card | CardDraft) -> dict[str, Any]:
    """The message of a card that makes one: its original, or what its fields hold."""
    metadata = card.metadata
    if MESSAGE in metadata or BLOCKS in metadata:
        for name in PROVIDERS:
            original = provider_named(name).chat_original(card)
            if original is not None:
                return original
    return standard_body(card)


def failed(card: Card | CardDraft) -> bool:
    """Whether it is the result of a tool that failed."""
    content = card.content
    return content.status != "success" if type(content) is ToolResultContent else kept_failure(card)


def kept_failure(card: Card | CardDraft) -> bool:
    """Whether its original alone says that the tool failed."""
    if FAILED in card.metadata:
        return card.metadata[FAILED] is True
    return BLOCKS in card.metadata and any(provider_named(name).failed(card) for name in PROVIDERS)


# --- what no format but this sends of a content part

_PART_KEYS = {"text": ("text",), "image_url": ("image_url",), "input_audio": ("input_audio",)}
_PART_KEYS |= {"file": ("file",), "refusal": ("refusal",)}


def unsent_keys(part: Any) -> Iterator[str]:
    """The keys of a part that it does not have by its type, in words."""
    known = _PART_KEYS.get(kind(part))
    for key in sorted(part.keys() - {"type", *known}) if known is not None else ():
        yield f"the key {key!r} of a part of type {kind(part)!r} is not sent"


def unsent_detail(part: Any) -> Iterator[str]:
    """How closely an image is to be looked at, where a part says so."""
    image = part.get("image_url") if kind(part) == "image_url" else None
    if isinstance(image, dict) and image.get("detail") not in (None, "auto"):
        yield "the 'detail' of an image is not sent"
