"""What a format cannot say of a request: what is left out of its body, or is sent as mere text.

Pure, and no more than an account: how something is sent is decided by the dialects. What has rules of its own
in the lint (ids that repeat, arguments that are no JSON, thinking without a signature) is not told here, nor
are marks of what to cache, which change no answer.
"""

from collections.abc import Iterable, Iterator
from typing import Any, get_args

import msgspec

from cardbox_cli.context import sources
from cardbox_cli.context.blocks import blocks_of_content, has_files, is_call, is_text, kind
from cardbox_cli.context.formats import DIALECTS
from cardbox_cli.context.messages import ASIDES, spoken_body
from cardbox_cli.context.request import Request
from cardbox_cli.model.cards import Card
from cardbox_cli.model.content import AnyFile, FileContent, ImageFileContent, MultiFileContent
from cardbox_cli.model.layers import process_of

# Keys of an llm_config that steer who sends the request, and are no loss; the model is sent by its own rules.
_STEERING = ("model", "stream", "provider_options", "save_reasoning_content")
# How long an answer may be: Anthropic wants to be told in any case, and knows one name for it.
_LIMITS = ("max_tokens", "max_completion_tokens")
# Parameters that say something only when there are tools.
_OF_TOOLS = ("tool_choice", "parallel_tool_calls")

# The classes of contents that are files, which formats take as their addresses.
FILES = frozenset({*get_args(AnyFile), MultiFileContent})


class Loss(msgspec.Struct, frozen=True):
    """What is lost of a card, in words; `card_id` is None for a parameter of the profile's llm_config."""

    card_id: str | None
    what: str


def losses(request: Request, provider: str) -> list[Loss]:
    """What the body for `provider` does not say of the request's cards, in their order, and of its config."""
    cards = [entry.slot.card for entry in request.places.values() if entry.slot.card is not None]
    return losses_of(filter(may_lose, cards), request, provider)


def losses_of(cards: Iterable[Card], request: Request, provider: str) -> list[Loss]:
    """The same where only these cards of the request may lose something."""
    of_card = _of_blocks if provider == "openai" else _of_message
    if not process_of(request.process).takes_history:
        sent = {message.card_id for message in request.messages}
        cards = [card for card in cards if card.card_id in sent]
    lost = [Loss(card.card_id, what) for card in cards for what in of_card(card)]
    return lost + [Loss(None, f"the parameter {name!r} is not sent") for name in _idle(request, provider)]


def may_lose(card: Card) -> bool:
    """Whether some format may be unable to say all of a card."""
    return (
        "source_message" in card.metadata
        or "source_blocks" in card.metadata
        or card.type in ASIDES
        or type(card.content) in FILES
        or (bool(card.tool_calls) and not _are_functions(card.tool_calls))
    )


def _are_functions(calls: Any) -> bool:
    """Whether no tool call is another thing than one of a function."""
    for call in calls if isinstance(calls, list) else ():
        if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
            return False
    return True


# --- for Anthropic, of OpenAI's messages


def _of_message(card: Card) -> Iterator[str]:
    if sources.anthropic_blocks(card) is not msgspec.UNSET or card.type in ASIDES:
        return  # sent as it came, or no message of OpenAI's
    body = spoken_body(card)
    is_result = body["role"] in ("tool", "function")
    if is_result and not body.get("tool_call_id"):
        yield "the result of a function without an id is sent as text"
    for key, value in body.items():
        if key in ("refusal", "function_call") and value:
            yield f"{key!r} is sent as text"
        elif value and key not in _SAID and not (key == "name" and is_result):
            yield f"the message's {key!r} is not sent"
    if not _are_functions(body.get("tool_calls")):
        yield "a tool call that is no function's is sent as text"
    content = body.get("content")
    yield from _of_parts(content if isinstance(content, list) else [])
    yield from _of_files(card)


_SAID = ("role", "content", "tool_calls", "tool_call_id")


def _of_parts(parts: Iterable[Any]) -> Iterator[str]:
    for part in parts:
        [block] = blocks_of_content([part])
        if kind(block) == "text" and not is_text(part):
            yield f"a part of type {kind(part)!r} is sent as text"
        image = part.get("image_url") if kind(part) == "image_url" else None
        if isinstance(image, dict) and image.get("detail") not in (None, "auto"):
            yield "the 'detail' of an image is not sent"


# --- for OpenAI, of Anthropic's blocks


def _of_blocks(card: Card) -> Iterator[str]:
    if card.type == "agent.reasoning":
        yield "thinking is left out"
    elif card.type == "agent.aside":
        yield "blocks that only Anthropic knows are left out"
    else:
        blocks = sources.anthropic_blocks(card)
        for block in blocks if isinstance(blocks, list) else []:
            yield from _of_result(block) if card.type == "tool.result" else _of_block(card, block)
        yield from _of_files(card)


def _of_result(block: Any) -> Iterator[str]:
    if not isinstance(block, dict):
        return
    if block.get("is_error"):
        yield "that the tool failed ('is_error') is not sent"
    content = block.get("content")
    for inner in content if isinstance(content, list) else []:
        if not is_text(inner):
            yield f"a block of type {kind(inner)!r} in a tool result is sent as text"


def _of_block(card: Card, block: Any) -> Iterator[str]:
    if is_text(block):
        if block.get("citations"):
            yield "citations are not sent"
    elif not (card.role == "assistant" and is_call(block)) and not (
        card.role == "user" and has_files([block])
    ):
        yield f"a block of type {kind(block)!r} is sent as text"


# --- for both


def _of_files(card: Card) -> Iterator[str]:
    content = card.content
    files = content.files if isinstance(content, MultiFileContent) else [content]
    for file in files:
        if isinstance(file, FileContent) and not isinstance(file, ImageFileContent):
            yield f"the {type(file).__name__.removesuffix('Content')} {file.uri!r} is sent as its address"


def _idle(request: Request, provider: str) -> Iterator[str]:
    """The keys of the config that are not sent: without them the body would be the same."""
    bare = msgspec.structs.replace(request, messages=[])
    body = DIALECTS[provider].body
    for name, value in request.config.items():
        if value is None or name in _STEERING or (name in _OF_TOOLS and not request.tools):
            continue
        if (name, value) == ("parallel_tool_calls", True):
            continue  # what both do anyway
        if name in _LIMITS:
            is_sent = value in [body(bare).get(limit) for limit in _LIMITS]
        else:
            config = {key: each for key, each in request.config.items() if key != name}
            is_sent = body(bare) != body(msgspec.structs.replace(bare, config=config))
        if not is_sent:
            yield name
