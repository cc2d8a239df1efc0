"""What gets lost between Anthropic's blocks and the chat form, in words.

What has rules of its own in the lint (ids that repeat, arguments that are no JSON, thinking without a
signature) has no place here.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from cardbox_cli.context import sources
from cardbox_cli.context.messages import OF_ONE_FORMAT
from cardbox_cli.context.other_calls import lost_result
from cardbox_cli.context.parts import is_nothing, is_text, kind
from cardbox_cli.context.providers.anthropic.blocks import (
    OF_SYSTEM_INSIDE,
    blocks_of_content,
    has_files,
    is_call,
)
from cardbox_cli.context.providers.anthropic.body import at_the_top, moved
from cardbox_cli.context.providers.anthropic.encoding import (
    as_blocks,
    is_in_words,
    is_of_own_format,
    own_blocks,
)
from cardbox_cli.context.providers.chat import chat_body, unsent_detail, unsent_keys
from cardbox_cli.context.providers.turns import moved_texts
from cardbox_cli.context.request import Request
from cardbox_cli.context.tool_calls import are_functions
from cardbox_cli.model.card_types import ASIDE, REASONING, TOOL_RESULT
from cardbox_cli.model.cards import Card

_SENT_KEYS = ("role", "content", "tool_calls", "tool_call_id")


def in_request(request: Request) -> Iterator[tuple[str | None, str]]:
    """What of a request's order and of its system text is lost on the way to the top."""
    yield from moved_texts(request, moved(request.messages, request.model))
    for message in at_the_top(request.messages, request.model):
        for name in {kind(block) for block in as_blocks(message.body["content"])} & {*OF_SYSTEM_INSIDE}:
            yield message.card_id, f"a block of type {name!r} in system text is left out"


def in_chat(card: Card) -> Iterator[str]:
    """What the chat form leaves out of a card that keeps blocks."""
    if sources.FORMAT in card.metadata and not is_of_own_format(card):
        return  # another's, which says itself what gets lost
    around = card.metadata.get(sources.MESSAGE)
    yield from _unsent("the message's", around, ("role", "content"))
    if card.type == REASONING:
        yield "thinking is left out"
    elif card.type == ASIDE:
        yield "blocks that only Anthropic knows are left out"
    else:
        blocks = own_blocks(card)
        for block in blocks if isinstance(blocks, list) else []:
            yield from _of_result(block) if card.type == TOOL_RESULT else _of_block(card, block)


def _unsent(whose: str, value: Any, known: Iterable[str]) -> Iterator[str]:
    """The keys of an object that the chat form has no place for."""
    for key in sorted(value.keys() - set(known)) if isinstance(value, dict) else ():
        if not is_nothing(value[key]):
            yield f"{whose} {key!r} is not sent"


def _of_result(block: Any) -> Iterator[str]:
    if not isinstance(block, dict):
        return
    yield from _unsent("the result's", block, ("type", "tool_use_id", "content", "is_error"))
    content = block.get("content")
    for inner in content if isinstance(content, list) else []:
        if not is_text(inner):
            yield f"a block of type {kind(inner)!r} in a tool result is sent as text"


def _of_block(card: Card, block: Any) -> Iterator[str]:
    if is_text(block):
        if block.get("citations"):
            yield "citations are not sent"
        yield from _unsent("the text's", block, ("type", "text", "citations"))
    elif card.role == "assistant" and is_call(block):
        yield from _unsent("the call's", block, ("type", "id", "name", "input"))
    elif card.role == "user" and has_files([block]):
        yield from _unsent("the file's", block, ("type", "source", "title"))
    else:
        yield f"a block of type {kind(block)!r} is sent as text"


def of_chat(card: Card) -> Iterator[str]:
    """What Messages leaves out of a card in the chat form."""
    if own_blocks(card) is not msgspec.UNSET or card.type in OF_ONE_FORMAT:
        return  # sent as it came, or in no chat form
    body = chat_body(card)
    is_result = body["role"] in ("tool", "function")
    if is_in_words(card, body):
        yield lost_result(card)
    known = (*_SENT_KEYS, "name") if is_result and _is_said(card) else _SENT_KEYS
    for key, value in body.items():
        if key in ("refusal", "function_call") and value:
            yield f"{key!r} is sent as text"
        elif key not in known and not is_nothing(value):
            yield f"the message's {key!r} is not sent"
    if not are_functions(body.get("tool_calls")):
        yield "a tool call that is no function's is sent as text"
    content = body.get("content")
    yield from _of_parts(content if isinstance(content, list) else [])


def _is_said(card: Card) -> bool:
    """Whether nothing is lost with the name of a result: nobody wrote it, or it stands in the text."""
    return not (sources.is_named_result(card) and card.tool_call_id)


def _of_parts(parts: Iterable[Any]) -> Iterator[str]:
    for part in parts:
        [block] = blocks_of_content([part])
        yield from unsent_keys(part)
        if kind(block) == "text" and not is_text(part):
            yield f"a part of type {kind(part)!r} is sent as text"
        yield from unsent_detail(part)
