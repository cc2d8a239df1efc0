"""What a card is as a message of Anthropic's: its role, and a text or content blocks.

Calls have the ids that cards have; which ones are sent is decided for all of a request's messages (`body`).
"""

from typing import Any

import msgspec

from cardbox_cli.context import sources
from cardbox_cli.context.messages import NoMessage, never_a_message, standard_body
from cardbox_cli.context.other_calls import answered_call, result_text
from cardbox_cli.context.parts import as_list, is_text, kind, text_at, text_part
from cardbox_cli.context.providers.anthropic.blocks import (
    Block,
    block_of_call,
    blocks_of_content,
    has_files,
    is_call,
    is_result,
    parts_of,
    plain_text,
)
from cardbox_cli.context.providers.chat import chat_body, failed
from cardbox_cli.context.providers.provider import AnyCard, Body, Exchanged
from cardbox_cli.context.providers.turns import role_of
from cardbox_cli.model import exact_json
from cardbox_cli.model.card_types import ASIDE, REASONING, TOOL_RESULT
from cardbox_cli.model.cards import Card, card_text

NAME = "anthropic"
_OF_SYSTEM_INSIDE = ("clear_at", "output_config")
# The formats of files whose content blocks are Anthropic's.
_FORMATS = (NAME, "claude-code")


def is_of_own_format(card: AnyCard) -> bool:
    """Whether it was imported from a file with Anthropic's blocks."""
    return card.metadata.get(sources.FORMAT) in _FORMATS


def own_blocks(card: AnyCard) -> Any:
    """What stood as content in an Anthropic message, if this card keeps it; else `UNSET`."""
    return card.metadata.get(sources.BLOCKS, msgspec.UNSET) if is_of_own_format(card) else msgspec.UNSET


def kept_failure(card: AnyCard) -> bool:
    """Whether the blocks that a card keeps are the result of a tool that failed."""
    blocks = own_blocks(card)
    return any(is_result(block) and block.get("is_error") for block in as_list(blocks))


def chat_original(card: AnyCard) -> Body | None:
    """The chat message of a card that keeps blocks; None for another."""
    blocks = own_blocks(card)
    if blocks is msgspec.UNSET:
        return None
    body = standard_body(card)
    if card.type == TOOL_RESULT:
        return {**body, "content": _result_text(blocks, body["content"])}
    if body["role"] == "user" and has_files(blocks):
        return {**body, "content": parts_of(blocks)}
    return body


def _result_text(blocks: Any, text: Any) -> Any:
    """The text of a tool result, with a word for what is no text: tool messages hold nothing else."""
    is_one = isinstance(blocks, list) and len(blocks) == 1 and isinstance(blocks[0], dict)
    content = blocks[0].get("content") if is_one else None
    return plain_text(content) if isinstance(content, list) and content else text


def content_of(card: AnyCard) -> Any:
    """What a card is as the content of a message: its original, or a string, or a list of blocks."""
    original = own_blocks(card)
    return standard_content(card) if original is msgspec.UNSET else original


def standard_content(card: AnyCard) -> str | list[Block]:
    """The content that a card's own fields make: a string where they hold text and no more."""
    if card.type == ASIDE:
        return []
    if card.type == REASONING:
        return [_thinking_block(card)]
    body = chat_body(card)
    if body["role"] in ("tool", "function"):
        return [_result_block(card, body)]
    content = body.get("content")
    if isinstance(content, str) and len(body) == 2:
        return content
    blocks = blocks_of_content(content)
    blocks += [text_part(body["refusal"])] if isinstance(body.get("refusal"), str) else []
    calls = body.get("tool_calls")
    blocks += [block_of_call(call) for call in calls] if isinstance(calls, list) else []
    if body.get("function_call"):
        blocks.append(text_part(f"[call of {exact_json.encode(body['function_call']).decode()}]"))
    is_text_alone = isinstance(content, str) and len(blocks) == (1 if content else 0)
    return content if isinstance(content, str) and is_text_alone else blocks


def as_blocks(content: Any) -> list[Any]:
    """Content as a list of blocks."""
    return content if isinstance(content, list) else blocks_of_content(content)


def _thinking_block(card: AnyCard) -> Block:
    signature = card.metadata.get("signature")
    block = {"type": "thinking", "thinking": card_text(card.content)}
    return {**block, "signature": signature} if isinstance(signature, str) else block


def _result_block(card: AnyCard, body: dict[str, Any]) -> Block:
    content = body.get("content")
    if is_in_words(card, body):
        return text_part(result_text(body, failed=failed(card)))
    text = content if isinstance(content, str) else blocks_of_content(content) or ""
    block = {"type": "tool_result", "tool_use_id": body["tool_call_id"], "content": text}
    return {**block, "is_error": True} if failed(card) else block


def is_in_words(card: AnyCard, body: Body) -> bool:
    """Whether it is a result that is sent as text: no call with an id that it answers is sent as a call.

    OpenAI's older functions have no ids, and a tool_result cannot do without.
    """
    if body["role"] not in ("tool", "function"):
        return False
    return not text_at(body, "tool_call_id") or answered_call(card) is not None


def encode(card: Card) -> Body | NoMessage:
    """The Anthropic message that `card` is, or the reason why it is none.

    The API refuses empty content, and thinking that it has not signed.
    """
    nothing = never_a_message(card)
    if nothing is not None:
        return nothing
    content = content_of(card)
    if isinstance(content, list):
        content = [block for block in content if not _is_refused(block)]
    if not content or (isinstance(content, str) and not content.strip()):
        return NoMessage("nothing that Anthropic would take: empty, or thinking without its signature")
    role = role_of(card)
    message = {"role": role, "content": content if isinstance(content, str) else as_blocks(content)}
    return {**_beside_text(card), **message} if role == "system" else message


def exchanged(body: Body) -> Exchanged:
    """The calls that a message makes and answers, by their ids."""
    blocks = body["content"] if isinstance(body["content"], list) else []
    calls = [block["id"] for block in blocks if is_call(block)]
    return Exchanged(calls, [block["tool_use_id"] for block in blocks if is_result(block)])


def _beside_text(card: Card) -> Body:
    """What system text within the messages says beside its content: how long it holds, how to answer."""
    around = sources.envelope(card, NAME, sources.MESSAGE) or {}
    return {key: around[key] for key in _OF_SYSTEM_INSIDE if key in around}


def _is_refused(block: Any) -> bool:
    if is_text(block):
        return not block["text"].strip()
    return kind(block) == "thinking" and not block.get("signature")
