"""Shared functions of the containers: reading a file's values one by one, and making the cards of an entry.

A container is read only. An entry with a message makes cards of a provider's form, any other entry a card of
type `session.event`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from cardbox_cli.context.parts import RAW, text_at
from cardbox_cli.context.sources import ENTRY, imported_card
from cardbox_cli.conversations.conversation import Conversation, FileEntry, Format, parse_time
from cardbox_cli.conversations.json_documents import JsonDocument, JsonDocuments, load_lazy_lists
from cardbox_cli.conversations.message_lists import is_list, list_items, require_some_messages
from cardbox_cli.errors import InvalidConversation, UsageError
from cardbox_cli.model.card_types import SESSION_EVENT
from cardbox_cli.model.cards import CardDraft
from cardbox_cli.model.content import JsonContent
from cardbox_cli.providers.anthropic.blocks import NAME as ANTHROPIC
from cardbox_cli.providers.anthropic.cards import AnthropicFiles
from cardbox_cli.providers.registry import provider_named
from cardbox_cli.text.error_messages import json_type

_Block = dict[str, Any]


def container_format(
    name: str,
    provider: str,
    *,
    mark: Callable[[dict[str, Any]], str | None],
    read: Callable[[JsonDocuments], Iterator[Conversation]],
    cards: Callable[[Any], list[CardDraft]],
    request: Callable[[FileEntry], list[CardDraft]] | None = None,
    holds: tuple[str, ...] = (),
) -> Format:
    """Return the format of a container.

    `mark` returns the evidence that an object is of this format, `read` the conversations, and `cards` the
    cards of an entry, empty for an event. `holds` names formats whose values may be its lines.
    """

    def fits(value: Any) -> bool:
        return any(text_at(each, "type") or mark(each) for each in _objects(value))

    def read_all(documents: JsonDocuments, *, at: str | None = None) -> Iterator[Conversation]:
        if at is not None:
            raise UsageError(f"--at {at}: the format {name} has a fixed key for messages", hint="omit --at")
        return require_some_messages(read(documents))

    return Format(
        name=name,
        provider=provider,
        keyspace=(name,),
        marks=lambda value: next(filter(None, map(mark, _objects(value))), None),
        fits=fits,
        reads=lambda value: value == [] or fits(value),
        holds=holds,
        read=read_all,
        draft=lambda entry: cards(entry.value) or [imported_card(SESSION_EVENT, JsonContent(entry.value))],
        draft_request=request,
    )


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the value, or the first item if the value is a list. Yields nothing unless it is an object."""
    first = next(iter(list_items(value)), None) if is_list(value) else value
    if isinstance(first, dict):
        yield first


def iterate_objects(documents: JsonDocuments) -> Iterator[JsonDocument]:
    """Yield the objects of a file of lines, or of a list. Raises InvalidConversation."""
    for place, value in documents:
        items = ((f"{place}[{index}]", each) for index, each in enumerate(value if is_list(value) else ()))
        for where, each in items if is_list(value) else [(place, value)]:
            if not isinstance(each, dict):
                raise InvalidConversation(f"{where}: an entry must be an object, not {json_type(each)}")
            yield JsonDocument(where, load_lazy_lists(each))


def timed_entry(position: str, value: Any, place: str) -> FileEntry:
    return FileEntry(position, value, place, parse_time(value.get("timestamp")))


def store_entry(cards: list[CardDraft], value: Any, **more: Any) -> list[CardDraft]:
    """Store the entry in the metadata of its first card, and `more` in the metadata of every card."""
    first, *others = (
        msgspec.structs.replace(card, metadata={**card.metadata, **more}) if more else card for card in cards
    )
    return [msgspec.structs.replace(first, metadata={**first.metadata, ENTRY: value}), *others]


def message_cards(role: str, content: str | Sequence[_Block]) -> list[CardDraft]:
    """Make the cards of a message in Anthropic's blocks."""
    files = AnthropicFiles(provider_named(ANTHROPIC))
    return files.content_cards(role, content if isinstance(content, str) else list(content), ANTHROPIC)


def text_block(text: str) -> _Block:
    return {"type": "text", "text": text}


def call_block(call_id: str, name: str, arguments: Any) -> _Block:
    value = arguments if isinstance(arguments, dict) else {RAW: arguments}
    return {"type": "tool_use", "id": call_id, "name": name, "input": value}


def result_block(call_id: str, content: Any, *, is_error: bool) -> _Block:
    failed = {"is_error": True} if is_error else {}
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **failed}


def thinking_block(text: str, signature: str | None) -> _Block:
    return {"type": "thinking", "thinking": text, **({"signature": signature} if signature else {})}


def may_be_claude(model: str | None) -> bool:
    """Return whether thoughts of a model may have Anthropic's signatures. True if the model is unknown."""
    return model is None or "claude" in model


def image_block(data: str, media_type: str) -> _Block:
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}
