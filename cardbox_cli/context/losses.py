"""Losses of a request in a format: data that the body lacks or contains only as text.

Pure. Decides nothing: the providers' formats decide how something is sent, and report their own losses.
This module knows the files and the parameters that no format can send.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, get_args

import msgspec

from cardbox_cli.context.messages import OF_ONE_FORMAT, never_a_message
from cardbox_cli.context.parts import (
    answered_call,
    answering,
    are_functions,
    is_nothing,
    json_text,
    kind,
    tool_name,
)
from cardbox_cli.context.provider import Provider
from cardbox_cli.context.request import Request
from cardbox_cli.context.sources import BLOCKS, FAILED, MESSAGE, is_named_result
from cardbox_cli.model.card_types import TOOL_RESULT, card_type
from cardbox_cli.model.cards import Card
from cardbox_cli.model.content import AnyFile, FileContent, ImageFileContent, MultiFileContent
from cardbox_cli.model.layers import find_process

# Keys of an llm_config that are never a loss: they address the sender of the request, not the provider.
_STEERING = ("model", "stream", "provider_options", "save_reasoning_content")
# The parameters that limit the tokens of an answer. A format may rename them, or always send a limit.
_LIMITS = ("max_tokens", "max_completion_tokens")
# Parameters without an effect if the request has no tools.
_OF_TOOLS = ("tool_choice", "parallel_tool_calls")

# The content classes that are files. Formats may send only the address of such a file.
FILES = frozenset({*get_args(AnyFile), MultiFileContent})


class Loss(msgspec.Struct, frozen=True):
    """A loss, described in `what`. `card_id` is None if a tool or a parameter of the llm_config is lost."""

    card_id: str | None
    what: str


def losses(request: Request, provider: Provider) -> list[Loss]:
    """Return the losses of the request in the body for `provider`: of cards in their order, of tools, and of
    the llm_config."""
    cards = [entry.slot.card for entry in request.places.values() if entry.slot.card is not None]
    moved = [Loss(card_id, what) for card_id, what in provider.losses_in_request(request)]
    return moved + losses_of(filter(may_lose, answering(cards)), request, provider)


def losses_of(cards: Iterable[Card], request: Request, provider: Provider) -> list[Loss]:
    """Return the losses of a request. `cards` has every card of the request that can lose something."""
    if not find_process(request.process).takes_history:
        sent = {message.card_id for message in request.messages}
        cards = [card for card in cards if card.card_id in sent]
    lost = [Loss(card.card_id, what) for card in cards for what in _card_losses(card, provider)]
    lost += [Loss(None, what) for what in _tool_losses(request, provider)]
    return lost + [Loss(None, what) for what in _lost_parameters(request, provider)]


def _card_losses(card: Card, provider: Provider) -> Iterator[str]:
    if never_a_message(card) is not None:
        return
    for each in provider.peers():
        if each.format != provider.format:
            yield from each.losses_to_chat(card)
    yield from provider.losses_from_chat(card)
    if not provider.has_failures and provider.is_failed_by_original(card):
        yield "that the tool failed is not sent"
    if card.type not in OF_ONE_FORMAT:
        yield from _file_losses(card)


def may_lose(card: Card) -> bool:
    """Return whether at least one format may be unable to send the whole card."""
    return (
        BLOCKS in card.metadata
        or MESSAGE in card.metadata
        or FAILED in card.metadata
        or card.type in OF_ONE_FORMAT
        or is_named_result(card)
        or type(card.content) in FILES
        or (bool(card.tool_calls) and not are_functions(card.tool_calls))
        or answered_call(card) is not None
        or (card.type == TOOL_RESULT and not card.tool_call_id)
    )


def is_looked_at(card: Card) -> bool:
    """Return whether a request's losses may depend on this card, so that `losses` needs it."""
    return may_lose(card) or card_type(card.type).is_late


def _file_losses(card: Card) -> Iterator[str]:
    content = card.content
    files = content.files if isinstance(content, MultiFileContent) else [content]
    for file in files:
        if isinstance(file, FileContent) and not isinstance(file, ImageFileContent):
            yield f"the {type(file).__name__.removesuffix('Content')} {file.uri!r} is sent as its address"


def _tool_losses(request: Request, provider: Provider) -> Iterator[str]:
    """Yield the tools that are not sent, and the unsent keys of sent tools. Makes one body for each tool."""
    bare = msgspec.structs.replace(request, messages=[], tools=[])
    for tool in request.tools:
        body = provider.body(msgspec.structs.replace(bare, tools=[tool]))
        if not provider.split_tools(body)[0]:
            yield f"the tool {tool_name(tool) or kind(tool) or next(iter(tool), '')!r} is not sent"
            continue
        sent = json_text(body)
        for key, value in tool.items():
            if value not in (None, False, [], {}) and key not in _TOOL_KEYS and json_text(key) not in sent:
                yield f"the {key!r} of the tool {tool_name(tool)!r} is not sent"


# The keys of a tool that every format has by one name or another.
_TOOL_KEYS = ("type", "function", "name", "description", "parameters", "input_schema")


def _lost_parameters(request: Request, provider: Provider) -> Iterator[str]:
    """Yield the keys of the config that do not change the body."""
    bare = msgspec.structs.replace(request, messages=[])
    body = provider.body
    whole = body(bare) if request.config else {}
    for name, value in request.config.items():
        if value is None or name in _STEERING or (name in _OF_TOOLS and not request.tools):
            continue
        if (name, value) == ("parallel_tool_calls", True):
            continue  # the default of every model
        config = {key: each for key, each in request.config.items() if key != name}
        is_limit = name in _LIMITS and value in [whole.get(limit) for limit in _LIMITS]
        if not is_limit and whole == body(msgspec.structs.replace(bare, config=config)):
            names = _unsent_names(name, value, provider)
            yield from (f"the parameter {each!r} is not sent" for each in names)
        else:
            yield from _lost_schema_name(name, value, whole)
            yield from _lost_keys(name, value, bare, provider)


def _unsent_names(name: str, value: Any, provider: Provider) -> list[str]:
    """Return the name of an unsent parameter, or of each of its keys if it is nested."""
    nested = (each.files.nested_parameters for each in provider.peers())
    is_left = isinstance(value, dict) and any(name in names for names in nested)
    return [f"{name}.{key}" for key in value] if is_left and value else [name]


def _lost_keys(name: str, value: Any, request: Request, provider: Provider) -> Iterator[str]:
    """Yield the keys of a sent parameter that do not change the body."""
    for key, each in value.items() if isinstance(value, dict) else ():
        if key == "type" or each is False or is_nothing(each):
            continue
        less = {**request.config, name: {other: item for other, item in value.items() if other != key}}
        if provider.body(request) == provider.body(msgspec.structs.replace(request, config=less)):
            yield f"the {key!r} of the parameter {name!r} is not sent"


def _lost_schema_name(name: str, value: Any, body: Mapping[str, Any]) -> Iterator[str]:
    """Yield the name and the description of a JSON schema if the format cannot send them."""
    schema = value.get("json_schema") if isinstance(value, dict) else None
    if not isinstance(schema, dict):
        return
    sent = json_text(body)
    for key in ("name", "description"):
        label = schema.get(key)
        if isinstance(label, str) and json_text(label) not in sent:
            yield f"the {key!r} of the parameter {name!r} is not sent"


# --- what only the chat form sends of a message, and of a content part


def unsent_of_message(body: Mapping[str, Any], sent: Collection[str] = ()) -> Iterator[str]:
    """Yield the losses of a message in the chat form: keys that a format leaves out or sends as text. Every
    format sends the keys in `_SENT_KEYS`. `sent` has further keys that this format sends."""
    for key, value in body.items():
        if key in ("refusal", "function_call") and value:
            if key not in sent:
                yield f"{key!r} is sent as text"
        elif key not in (*_SENT_KEYS, *sent) and not is_nothing(value):
            yield f"the message's {key!r} is not sent"


_SENT_KEYS = ("role", "content", "tool_calls", "tool_call_id")

# The types of parts; the content of each is at the key with its name.
_PART_TYPES = ("text", "image_url", "input_audio", "file", "refusal")


def unsent_keys(part: Any) -> Iterator[str]:
    """Yield a loss for each key of a part that its type does not define."""
    for key in sorted(part.keys() - {"type", kind(part)}) if kind(part) in _PART_TYPES else ():
        yield f"the key {key!r} of a part of type {kind(part)!r} is not sent"


def unsent_detail(part: Any) -> Iterator[str]:
    image = part.get("image_url") if kind(part) == "image_url" else None
    if isinstance(image, dict) and image.get("detail") not in (None, "auto"):
        yield "the 'detail' of an image is not sent"
