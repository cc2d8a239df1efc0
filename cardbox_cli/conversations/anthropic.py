"""Anthropic messages as cards, and back, exactly.

A message becomes a card for each stretch of its content that is of one sort: text and tool calls, a tool's
result, a thought that only Anthropic can read, blocks of its own tools. A card keeps its blocks only where
its fields cannot spell them; the keys beside the content stay with the first card (`context/sources.py`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from cardbox_cli.context import sources
from cardbox_cli.context.blocks import kind, text_of
from cardbox_cli.context.drafting import as_list, content_cards, imported_card, keep
from cardbox_cli.context.formats.anthropic import as_blocks, content_of, role_of
from cardbox_cli.context.messages import SILENT_TYPES
from cardbox_cli.context.sources import same_json
from cardbox_cli.context.tool_use_ids import ids_in, is_spelled_well, spellings, with_id
from cardbox_cli.conversations.conversation import (
    Conversation,
    Entry,
    Rereadable,
    checked_message,
    file_pieces,
)
from cardbox_cli.conversations.files import MessageList, all_messages, find_messages, message_entries
from cardbox_cli.conversations.json_documents import Documents
from cardbox_cli.conversations.json_window import held
from cardbox_cli.model.cards import Card, CardDraft, card_text

NAME = sources.ANTHROPIC
KEYSPACE: tuple[str, ...] = (NAME,)

_ROLES = ("user", "assistant", "system")
_OWN_BLOCKS = frozenset(
    {"tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document"}
    | {"search_result", "server_tool_use", "container_upload"}
)
_OWN_SUFFIX = "_tool_result"
# What an entry's value is for the system prompt that stands beside the messages.
_SYSTEM = "system"

# --- reading


def recognises(documents: Documents) -> bool:
    """Whether `system` or a tool's input_schema stands beside messages, or one has blocks of its own."""
    return any(
        _SYSTEM in found.beside
        or _has_schema(found.beside.get("tools"))
        or any(_is_own(block) for message in found.messages for block in _content_blocks(message))
        for found in all_messages(documents)
    )


def _has_schema(tools: Any) -> bool:
    return isinstance(tools, list) and any(
        isinstance(tool, dict) and "input_schema" in tool for tool in tools
    )


def _content_blocks(message: Any) -> list[Any]:
    content = message.get("content") if isinstance(message, dict) else None
    return content if isinstance(content, list) else []


def _is_own(block: Any) -> bool:
    return kind(block) in _OWN_BLOCKS or kind(block).endswith(_OWN_SUFFIX)


def read(documents: Documents, *, at: str | None = None) -> Iterator[Conversation]:
    """The conversations in a file: lists of messages under whatever key, and `system` beside them."""
    for found in find_messages(documents, at):
        yield found.conversation(NAME, Rereadable(partial(_entries, found)))


def _entries(found: MessageList) -> Iterator[Entry]:
    if _SYSTEM in found.beside:
        yield Entry(_SYSTEM, {_SYSTEM: held(found.beside[_SYSTEM])}, found.place)
    yield from message_entries(found)


# --- drafting


def draft(entry: Entry) -> list[CardDraft]:
    """The cards that hold a message, or the system prompt."""
    if entry.position == _SYSTEM:
        return [_prompt_card(entry.value[_SYSTEM])]
    message = checked_message(entry, _ROLES, "Anthropic")
    role = message["role"]
    cards = content_cards(role, message.get("content"), NAME)
    around = {**message, "content": emptied(message["content"])} if "content" in message else message
    if role != "system" and same_json(around, _default_envelope(role, cards)):
        return cards
    return [keep(cards[0], NAME, source_message=around), *cards[1:]]


def _prompt_card(prompt: Any) -> CardDraft:
    """The card of a top-level system prompt: text alone stands in its fields."""
    card = imported_card("sys.rendered_prompt", text_of(as_list(prompt)))
    return card if isinstance(prompt, str) else keep(card, NAME, source_blocks=prompt)


def keep_original(changed: CardDraft, original: CardDraft) -> CardDraft:
    """`changed`, with the blocks of `original` as its own."""
    source_format = original.metadata.get("source_format", NAME)
    return keep(changed, source_format, source_blocks=as_blocks(content_of(original)))


# --- content and what stands around it


def emptied(content: Any) -> Any:
    """What an envelope holds in the place of content that cards say: `""` or `[]`; anything else stays."""
    return type(content)() if isinstance(content, str | list) else content


def filled(around: dict[str, Any], cards: Sequence[Card | CardDraft]) -> dict[str, Any]:
    """An envelope with the content that its cards say."""
    place = around.get("content")
    if place == "":
        return {**around, "content": card_text(cards[0].content)}
    return {**around, "content": joined_content(cards)} if place == [] else around


def joined_content(cards: Sequence[Card | CardDraft]) -> list[Any]:
    """The blocks of neighbouring cards, one after the other."""
    return [block for card in cards for block in as_blocks(content_of(card))]


def _default_envelope(role: str, cards: Sequence[Card | CardDraft]) -> dict[str, Any]:
    is_text_alone = len(cards) == 1 and isinstance(content_of(cards[0]), str)
    return {"role": role, "content": "" if is_text_alone else []}


# --- exporting


def export(cards: Iterable[Card]) -> Iterator[str]:
    """`{"system"?, "messages"}`: what was imported as it was; system text of other origin joins `system`."""
    others = id_spellings(cards)
    prompts = [card for card in cards if _is_prompt(card)]
    speaking = (card for card in cards if card.type not in SILENT_TYPES)
    runs = gathered(speaking, lambda card: _envelope(card) is not None)
    messages = (respelled(message_of(run), others) for run in runs if not _is_prompt(run[0]))
    return file_pieces(messages, **({_SYSTEM: _prompt(prompts)} if prompts else {}))


def id_spellings(cards: Iterable[Card]) -> dict[str, str]:
    """The ids that calls and results are exported under, of those that Anthropic would refuse.

    Blocks that were kept go out as they came, and so do all calls and results of their ids.
    """
    kept: set[str] = set()
    own: set[str] = set()
    for card in cards:
        refused = [call_id for call_id in _ids(card) if not is_spelled_well(call_id)]
        (own if sources.anthropic_blocks(card) is msgspec.UNSET else kept).update(refused)
    if own <= kept:
        return {}  # as mostly, and then nobody has to hold all ids
    others = spellings(call_id for card in cards for call_id in _ids(card))
    return {old: new for old, new in others.items() if old not in kept}


def _ids(card: Card) -> Iterator[str]:
    may_have_ids = card.tool_calls or card.tool_call_id or sources.originals(card)
    if may_have_ids and card.type not in SILENT_TYPES:
        yield from ids_in(as_blocks(content_of(card)))


def respelled(message: dict[str, Any], others: dict[str, str]) -> dict[str, Any]:
    """The message with the other ids that its calls and results are exported under."""
    content = message.get("content")
    if not others or not isinstance(content, list):
        return message
    named = [with_id(block, lambda call_id: others.get(call_id, call_id)) for block in content]
    return {**message, "content": named}


def _is_prompt(card: Card) -> bool:
    return card.type not in SILENT_TYPES and role_of(card) == _SYSTEM and _envelope(card) is None


def gathered(cards: Iterable[Card], begins: Callable[[Card], bool]) -> Iterator[list[Card]]:
    """The cards, those together that are one message: neighbours of one group and speaker.

    A card that `begins` a message never continues one.
    """
    run: list[Card] = []
    for card in cards:
        if run and not begins(card) and _continues(run[-1], card):
            run.append(card)
            continue
        if run:
            yield run
        run = [card]
    if run:
        yield run


def _continues(before: Card, card: Card) -> bool:
    group = sources.group(card)
    return group is not None and group == sources.group(before) and role_of(card) == role_of(before)


def message_of(cards: Sequence[Card]) -> dict[str, Any]:
    """The message that neighbouring cards are together."""
    around = _envelope(cards[0])
    if around is not None:
        return filled(around, cards)
    role = role_of(cards[0])
    if len(cards) == 1:
        return {"role": role, "content": content_of(cards[0])}
    return {"role": role, "content": joined_content(cards)}


def _envelope(card: Card) -> dict[str, Any] | None:
    return sources.envelope(card, NAME, "source_message")


def _prompt(cards: Sequence[Card]) -> Any:
    return content_of(cards[0]) if len(cards) == 1 else joined_content(cards)
