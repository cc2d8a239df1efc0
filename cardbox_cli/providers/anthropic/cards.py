"""Anthropic's messages as cards, and back without loss.

A message becomes one card for each run of blocks of one type. The types are text with tool calls, results,
thoughts, and other blocks of Anthropic. A card stores the original blocks only if its own fields cannot hold
them. The first card stores the other keys of the message (`context/sources`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from cardbox_cli.context import messages as speakers
from cardbox_cli.context import sources
from cardbox_cli.context.messages import never_a_message
from cardbox_cli.context.parts import answering, ensure_list, is_text, kind, list_of, text_at, text_of
from cardbox_cli.context.provider import AnyCard, Body, MessageFiles
from cardbox_cli.context.sources import imported_card, keep, same_json
from cardbox_cli.model.card_types import ASIDE, INSTRUCTION, REASONING, RENDERED_PROMPT, THOUGHT, TOOL_RESULT
from cardbox_cli.model.cards import Card, CardDraft, card_text
from cardbox_cli.providers.anthropic.blocks import (
    NAME,
    allowed_ids,
    call_of_block,
    content_of,
    ensure_blocks,
    ids_in,
    is_allowed,
    is_call,
    is_result,
    own_blocks,
    replace_id,
    standard_content,
)

_SYSTEM = "system"
_OWN_BLOCKS = frozenset(
    {"tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document"}
    | {"search_result", "server_tool_use", "container_upload"}
)
# Maps a message's role to the card type of its text.
_TYPES = {"user": INSTRUCTION, "assistant": THOUGHT, _SYSTEM: RENDERED_PROMPT}


class AnthropicFiles(MessageFiles):
    roles = tuple(_TYPES)
    system_keys = (_SYSTEM,)
    endpoints = ("/v1/messages", "/v1/messages/count_tokens")
    request_keys = (_SYSTEM, "thinking")
    parameters = ("max_tokens", "temperature", "top_p", "top_k", "tool_choice", "thinking", "cache_control")

    def marks_beside(self, beside: Mapping[str, Any]) -> str | None:
        if _SYSTEM in beside:
            return f"{_SYSTEM!r} is next to the messages"
        if any(isinstance(tool, dict) and "input_schema" in tool for tool in list_of(beside.get("tools"))):
            return "a tool has an 'input_schema'"
        # A name such as `anthropic/claude-…` belongs to a gateway, which uses another format.
        model = text_at(beside, "model") or ""
        is_own = model.startswith("claude-") and "max_tokens" in beside
        return f"the model is {model!r}, and there is 'max_tokens'" if is_own else None

    def marks_message(self, message: Any) -> str | None:
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(content, list):
            return None
        kinds = map(kind, content)
        own = next((name for name in kinds if name in _OWN_BLOCKS or name.endswith("_tool_result")), None)
        return None if own is None else f"a block is of type {own!r}"

    def is_exchange(self, part: Any) -> bool:
        return kind(part) in ("tool_use", "tool_result")

    def draft(self, message: Any) -> list[CardDraft]:
        role = message["role"]
        cards = self.content_cards(role, message.get("content"), NAME)
        around = dict(message)
        if "content" in message:
            around["content"] = empty_content(message["content"])
        is_text_alone = len(cards) == 1 and isinstance(content_of(cards[0], self.provider), str)
        if role != _SYSTEM and same_json(around, {"role": role, "content": "" if is_text_alone else []}):
            return cards
        return [keep(cards[0], NAME, source_message=around), *cards[1:]]

    def draft_system(self, key: str, value: Any) -> CardDraft:
        card = imported_card(RENDERED_PROMPT, text_of(ensure_list(value)))
        return card if isinstance(value, str) else keep(card, NAME, source_blocks=value)

    def keep_original(self, changed: CardDraft, original: CardDraft) -> CardDraft:
        source_format = original.metadata.get(sources.FORMAT, NAME)
        return keep(changed, source_format, source_blocks=ensure_blocks(content_of(original, self.provider)))

    def content_cards(self, role: str, content: Any, source_format: str) -> list[CardDraft]:
        """Return the cards of a message's content. Empty content makes one card."""
        if not isinstance(content, list) or not content:
            return [imported_card(_TYPES[role], text_of(ensure_list(content)), role=role)]
        typed = ((_card_type(role, block), block) for block in content)
        # Each result and each thought has its own card.
        runs = speakers.neighbours(
            typed, lambda before, each: each[0] == before[0] and each[0] not in (TOOL_RESULT, REASONING)
        )
        return [self._run_card(run[0][0], role, [block for _, block in run], source_format) for run in runs]

    def _run_card(self, card_type: str, role: str, blocks: list[Any], source_format: str) -> CardDraft:
        card = _card(card_type, role, blocks)
        # If the card does not store its blocks, an export changes ids that Anthropic refuses.
        is_held = all(map(is_allowed, ids_in(blocks))) and same_json(
            ensure_blocks(standard_content(card, self.provider)), blocks
        )
        return card if is_held else keep(card, source_format, source_blocks=blocks)

    def export(self, cards: Iterable[Card]) -> tuple[Body, Iterator[Body]]:
        """Return the system prompt and the messages. System text that was a message remains a message."""
        others = self.ids_on_export(cards)
        prompts = [card for card in cards if _is_prompt(card)]
        sent = (card for card in answering(cards) if never_a_message(card) is None)
        runs = speakers.gather(sent, lambda card: _envelope(card) is not None)
        messages = (restore_ids(self.message_of(run), others) for run in runs if not _is_prompt(run[0]))
        return ({_SYSTEM: self._content_of(prompts)} if prompts else {}), messages

    def ids_on_export(self, cards: Iterable[Card]) -> dict[str, str]:
        """Map each id that Anthropic refuses to the id for the export.

        Blocks that cards store are exported unchanged, so their ids are not replaced anywhere.
        """
        kept: set[str] = set()
        own: set[str] = set()
        for card in cards:
            refused = [call_id for call_id in self._ids(card) if not is_allowed(call_id)]
            (own if own_blocks(card) is msgspec.UNSET else kept).update(refused)
        if own <= kept:
            return {}  # the usual case, in which the ids need not be in memory
        others = allowed_ids(call_id for card in cards for call_id in self._ids(card))
        return {old: new for old, new in others.items() if old not in kept}

    def _ids(self, card: Card) -> Iterator[str]:
        may_have_ids = card.tool_calls or card.tool_call_id or sources.originals(card)
        if may_have_ids and never_a_message(card) is None:
            yield from ids_in(ensure_blocks(content_of(card, self.provider)))

    def message_of(self, cards: Sequence[Card]) -> Body:
        if (around := _envelope(cards[0])) is not None:
            return self.filled(around, cards)
        return {"role": speakers.role_of(cards[0]), "content": self._content_of(cards)}

    def filled(self, around: Body, cards: Sequence[AnyCard]) -> Body:
        """Return the envelope `around` with the content of its cards."""
        place = around.get("content")
        if place == "":
            return {**around, "content": card_text(cards[0].content)}
        return {**around, "content": self.joined_content(cards)} if place == [] else around

    def joined_content(self, cards: Sequence[AnyCard]) -> list[Any]:
        return [block for card in cards for block in ensure_blocks(content_of(card, self.provider))]

    def _content_of(self, cards: Sequence[Card]) -> Any:
        return content_of(cards[0], self.provider) if len(cards) == 1 else self.joined_content(cards)


def empty_content(content: Any) -> Any:
    """Return `""` for a string and `[]` for a list. Returns other content unchanged."""
    return type(content)() if isinstance(content, str | list) else content


def restore_ids(message: Body, others: Mapping[str, str]) -> Body:
    """Return the message with the call ids in `others` replaced by their ids for the export."""
    content = message.get("content")
    if not others or not isinstance(content, list):
        return message
    restored = [replace_id(block, lambda call_id: others.get(call_id, call_id)) for block in content]
    return {**message, "content": restored}


def _is_prompt(card: Card) -> bool:
    return never_a_message(card) is None and speakers.role_of(card) == _SYSTEM and _envelope(card) is None


def _envelope(card: Card) -> Body | None:
    return sources.envelope(card, NAME, sources.MESSAGE)


def _card_type(role: str, block: Any) -> str:
    if role == "user" and is_result(block):
        return TOOL_RESULT
    if role != "assistant" or is_text(block) or is_call(block):
        return _TYPES[role]
    return REASONING if kind(block) in ("thinking", "redacted_thinking") else ASIDE


def _card(card_type: str, role: str, blocks: list[Any]) -> CardDraft:
    block = blocks[0]
    if card_type == TOOL_RESULT:
        text = text_of(ensure_list(block.get("content")))
        return imported_card(card_type, text, tool_call_id=block["tool_use_id"])
    if card_type == REASONING:
        signature = text_at(block, "signature")
        metadata = None if signature is None else {"signature": signature}
        return imported_card(card_type, text_of([block.get("thinking")]), metadata=metadata)
    makes_calls = role == "assistant"
    calls = [call_of_block(block) for block in blocks if makes_calls and is_call(block)]
    text = text_of(block for block in blocks if not (makes_calls and is_call(block)))
    return imported_card(card_type, text, role=role, tool_calls=calls or None)
