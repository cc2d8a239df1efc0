"""Anthropic's messages as cards, and back, exactly.

A message becomes a card for each stretch of its content that is of one sort: text and tool calls, a tool's
result, a thought that only Anthropic can read, blocks of its own tools. A card keeps its blocks only where
its fields cannot hold them; the keys beside the content stay with the first card (`context/sources`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec

from cardbox_cli.context import sources
from cardbox_cli.context.messages import never_a_message
from cardbox_cli.context.other_calls import answering
from cardbox_cli.context.parts import as_list, is_text, kind, text_at, text_of
from cardbox_cli.context.providers.anthropic.blocks import call_of_block, is_call, is_result
from cardbox_cli.context.providers.anthropic.encoding import (
    NAME,
    as_blocks,
    content_of,
    own_blocks,
    standard_content,
)
from cardbox_cli.context.providers.anthropic.tool_ids import allowed_ids, ids_in, is_allowed, with_id
from cardbox_cli.context.providers.provider import AnyCard, Body, MessageFiles
from cardbox_cli.context.providers.turns import gathered, role_of
from cardbox_cli.context.sources import imported_card, keep, same_json
from cardbox_cli.model.card_types import ASIDE, INSTRUCTION, REASONING, RENDERED_PROMPT, THOUGHT, TOOL_RESULT
from cardbox_cli.model.cards import Card, CardDraft, card_text

_SYSTEM = "system"
_OWN_BLOCKS = frozenset(
    {"tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document"}
    | {"search_result", "server_tool_use", "container_upload"}
)
# The type of the cards that a stretch of one sort makes.
_TYPES = {"user": INSTRUCTION, "assistant": THOUGHT, _SYSTEM: RENDERED_PROMPT}


def _marks_beside(beside: Mapping[str, Any]) -> str | None:
    """By what stands there: a system prompt, a tool's input_schema, a model with the limit that it needs."""
    if _SYSTEM in beside:
        return f"{_SYSTEM!r} stands beside the messages"
    tools = beside.get("tools")
    has_schema = isinstance(tools, list) and any(
        isinstance(tool, dict) and "input_schema" in tool for tool in tools
    )
    if has_schema:
        return "a tool has an 'input_schema'"
    # What a gateway serves in another format has the name of whose model it is before that of the model.
    model = text_at(beside, "model") or ""
    is_own = model.startswith("claude-") and "max_tokens" in beside
    return f"the model is {model!r}, and there is 'max_tokens'" if is_own else None


def _marks_message(message: Any) -> str | None:
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list):
        return None
    kinds = map(kind, content)
    found = next((name for name in kinds if name in _OWN_BLOCKS or name.endswith("_tool_result")), None)
    return None if found is None else f"a block is of type {found!r}"


# --- messages as cards


def _draft(message: Body) -> list[CardDraft]:
    role = message["role"]
    cards = content_cards(role, message.get("content"), NAME)
    around = {**message, "content": emptied(message["content"])} if "content" in message else message
    is_text_alone = len(cards) == 1 and isinstance(content_of(cards[0]), str)
    if role != _SYSTEM and same_json(around, {"role": role, "content": "" if is_text_alone else []}):
        return cards
    return [keep(cards[0], NAME, source_message=around), *cards[1:]]


def _draft_system(_: str, prompt: Any) -> CardDraft:
    """The card of a system prompt beside the messages: text alone stands in its fields."""
    card = imported_card(RENDERED_PROMPT, text_of(as_list(prompt)))
    return card if isinstance(prompt, str) else keep(card, NAME, source_blocks=prompt)


def keep_original(changed: CardDraft, original: CardDraft) -> CardDraft:
    """`changed`, with the blocks of `original` as its own."""
    source_format = original.metadata.get(sources.FORMAT, NAME)
    return keep(changed, source_format, source_blocks=as_blocks(content_of(original)))


def content_cards(role: str, content: Any, source_format: str) -> list[CardDraft]:
    """The cards that hold the content of a message, one at least."""
    if not isinstance(content, list) or not content:
        return [imported_card(_TYPES[role], text_of(as_list(content)), role=role)]
    return [_stretch_card(sort, role, blocks, source_format) for sort, blocks in _stretches(role, content)]


def _stretches(role: str, content: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """The card types and blocks of a content in order; a result and a thought are cards of their own."""
    for sort, run in groupby(content, key=lambda block: _sort(role, block)):
        if sort in (TOOL_RESULT, REASONING):
            yield from ((sort, [block]) for block in run)
        else:
            yield sort, list(run)


def _sort(role: str, block: Any) -> str:
    if role == "user" and is_result(block):
        return TOOL_RESULT
    if role != "assistant" or is_text(block) or is_call(block):
        return _TYPES[role]
    return REASONING if kind(block) in ("thinking", "redacted_thinking") else ASIDE


def _stretch_card(sort: str, role: str, blocks: list[Any], source_format: str) -> CardDraft:
    card = _CARDS.get(sort, _text_card)(sort, role, blocks)
    # Ids that Anthropic would refuse are changed on the way out, unless the blocks are kept.
    is_held = all(map(is_allowed, ids_in(blocks))) and same_json(as_blocks(standard_content(card)), blocks)
    return card if is_held else keep(card, source_format, source_blocks=blocks)


def _text_card(sort: str, role: str, blocks: list[Any]) -> CardDraft:
    makes_calls = role == "assistant"
    calls = [call_of_block(block) for block in blocks if makes_calls and is_call(block)]
    text = text_of(block for block in blocks if not (makes_calls and is_call(block)))
    return imported_card(sort, text, role=role, tool_calls=calls or None)


def _result_card(sort: str, role: str, blocks: list[Any]) -> CardDraft:
    [result] = blocks
    return imported_card(sort, text_of(as_list(result.get("content"))), tool_call_id=result["tool_use_id"])


def _reasoning_card(sort: str, role: str, blocks: list[Any]) -> CardDraft:
    [thought] = blocks
    signature = thought.get("signature")
    metadata = {"signature": signature} if isinstance(signature, str) else None
    return imported_card(sort, text_of([thought.get("thinking")]), metadata=metadata)


_CARDS = {TOOL_RESULT: _result_card, REASONING: _reasoning_card}


# --- cards as messages


def emptied(content: Any) -> Any:
    """What an envelope holds in the place of content that cards hold: `""` or `[]`; anything else stays."""
    return type(content)() if isinstance(content, str | list) else content


def filled(around: Body, cards: Sequence[AnyCard]) -> Body:
    """An envelope with the content that its cards hold."""
    place = around.get("content")
    if place == "":
        return {**around, "content": card_text(cards[0].content)}
    return {**around, "content": joined_content(cards)} if place == [] else around


def joined_content(cards: Sequence[AnyCard]) -> list[Any]:
    """The blocks of neighbouring cards, one after the other."""
    return [block for card in cards for block in as_blocks(content_of(card))]


def _export(cards: Iterable[Card]) -> tuple[Body, Iterator[Body]]:
    """System text of another origin than a message joins the prompt beside the messages."""
    others = ids_on_export(cards)
    prompts = [card for card in cards if _is_prompt(card)]
    sent = (card for card in answering(cards) if never_a_message(card) is None)
    runs = gathered(sent, lambda card: _envelope(card) is not None)
    messages = (with_ids(message_of(run), others) for run in runs if not _is_prompt(run[0]))
    return ({_SYSTEM: _content_of(prompts)} if prompts else {}), messages


def ids_on_export(cards: Iterable[Card]) -> dict[str, str]:
    """The ids that calls and results are exported under, of those that Anthropic would refuse.

    Blocks that were kept go out as they came, and so do all calls and results of their ids.
    """
    kept: set[str] = set()
    own: set[str] = set()
    for card in cards:
        refused = [call_id for call_id in _ids(card) if not is_allowed(call_id)]
        (own if own_blocks(card) is msgspec.UNSET else kept).update(refused)
    if own <= kept:
        return {}  # as mostly, and then nobody has to hold all ids
    others = allowed_ids(call_id for card in cards for call_id in _ids(card))
    return {old: new for old, new in others.items() if old not in kept}


def _ids(card: Card) -> Iterator[str]:
    may_have_ids = card.tool_calls or card.tool_call_id or sources.originals(card)
    if may_have_ids and never_a_message(card) is None:
        yield from ids_in(as_blocks(content_of(card)))


def with_ids(message: Body, others: Mapping[str, str]) -> Body:
    """The message with the other ids that its calls and results are exported under."""
    content = message.get("content")
    if not others or not isinstance(content, list):
        return message
    named = [with_id(block, lambda call_id: others.get(call_id, call_id)) for block in content]
    return {**message, "content": named}


def _is_prompt(card: Card) -> bool:
    return never_a_message(card) is None and role_of(card) == _SYSTEM and _envelope(card) is None


def message_of(cards: Sequence[Card]) -> Body:
    """The message that neighbouring cards are together."""
    if (around := _envelope(cards[0])) is not None:
        return filled(around, cards)
    return {"role": role_of(cards[0]), "content": _content_of(cards)}


def _envelope(card: Card) -> Body | None:
    return sources.envelope(card, NAME, sources.MESSAGE)


def _content_of(cards: Sequence[Card]) -> Any:
    return content_of(cards[0]) if len(cards) == 1 else joined_content(cards)


FILES = MessageFiles(
    keyspace=(NAME,),
    roles=tuple(_TYPES),
    marks_beside=_marks_beside,
    marks_message=_marks_message,
    system_keys=(_SYSTEM,),
    calls=lambda block: kind(block) in ("tool_use", "tool_result"),
    draft=_draft,
    draft_system=_draft_system,
    keep_original=keep_original,
    export=_export,
    endpoints=("/v1/messages", "/v1/messages/count_tokens"),
    request_keys=(_SYSTEM, "thinking"),
    parameters=("max_tokens", "temperature", "top_p", "top_k", "tool_choice", "thinking", "cache_control"),
)
