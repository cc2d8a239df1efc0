"""Explaining a request: for each message where it comes from and what it costs; and what was left out."""

from typing import Any

import msgspec

from cardbox_cli.context.collector import LayerLeftOut
from cardbox_cli.context.messages import Message
from cardbox_cli.context.request import Omitted, Request
from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import Card
from cardbox_cli.model.layers import SYSTEM_PROMPT
from cardbox_cli.model.tokens import estimate_tokens

# The line of the tools among those of the layers.
TOOLS = "tools"


class MessageLine(msgspec.Struct, frozen=True, kw_only=True):
    """One message's account. `characters` counts its content and tool calls; `tokens` is an estimate.

    A message of the history is one card; `made_of` are the cards that the text of a layer was made of.
    """

    layer: str
    role: str
    card_id: str | None
    box_id: str | None
    position: int | None
    rule: str | None
    made_of: list[str]
    characters: int
    tokens: int
    preview: str


class ToolLine(msgspec.Struct, frozen=True, kw_only=True):
    """One tool's account, as its definition is stored."""

    name: str | None
    characters: int
    tokens: int


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The account of a request. All token counts are estimates."""

    process: str
    layout: str
    messages: list[MessageLine]
    tools: list[ToolLine]
    left_out: list[Omitted]
    layers_left_out: list[LayerLeftOut]
    tokens: int


class LayerShare(msgspec.Struct, frozen=True, kw_only=True):
    """What a layer takes of a request: `share` of its tokens, `of_window` of those that the model holds.

    The tools are the last layer, `messages` of them. `of_window` is None where nobody knows the model.
    """

    layer: str
    messages: int
    characters: int
    tokens: int
    share: float
    of_window: float | None


def explain(request: Request) -> Explanation:
    """The account of every message of `request`, in order, and of every card and layer that made none."""
    made_of = {layer.name: layer.card_ids for layer in request.layers}
    made_of[SYSTEM_PROMPT] = [
        card_id for card_id, place in request.places.items() if _is_profile(place.slot.card)
    ][:1]
    messages = [_message_line(message, request, made_of) for message in request.messages]
    tools = [_tool_line(tool) for tool in request.tools]
    return Explanation(
        process=request.process,
        layout=request.layout,
        messages=messages,
        tools=tools,
        left_out=request.left_out,
        layers_left_out=request.layers_left_out,
        tokens=sum(line.tokens for line in messages) + sum(tool.tokens for tool in tools),
    )


def shares(told: Explanation, window: int | None) -> list[LayerShare]:
    """What each layer takes, in the order of their first messages, the tools last.

    `window` is how many tokens the model holds, None where that is not known.
    """
    groups: dict[str, list[MessageLine | ToolLine]] = {}
    for line in told.messages:
        groups.setdefault(line.layer, []).append(line)
    for tool in told.tools:
        groups.setdefault(TOOLS, []).append(tool)
    return [_share(layer, lines, told.tokens, window) for layer, lines in groups.items()]


def spoken(body: dict[str, Any]) -> str:
    """What a message says: its text, or else its parts as JSON, and its tool calls."""
    content = body.get("content")
    text = content if isinstance(content, str) else "" if content is None else _json(content)
    calls = "".join(_json(body[key]) for key in ("tool_calls", "function_call") if body.get(key))
    return text + calls


def tool_name(tool: dict[str, Any]) -> str | None:
    """The name of a tool in a definition of either form."""
    function = tool.get("function")
    name = (function if isinstance(function, dict) else tool).get("name")
    return name if isinstance(name, str) else None


def _message_line(message: Message, request: Request, made_of: dict[str, list[str]]) -> MessageLine:
    said = spoken(message.body)
    place = request.places.get(message.card_id or "")
    return MessageLine(
        layer=message.layer,
        role=str(message.body.get("role")),
        card_id=message.card_id,
        box_id=None if place is None else place.box_id,
        position=None if place is None else place.slot.position,
        rule=None if place is None else place.rule,
        made_of=[] if message.card_id is not None else made_of.get(message.layer, []),
        characters=len(said),
        tokens=estimate_tokens(said),
        preview=said,
    )


def _tool_line(tool: dict[str, Any]) -> ToolLine:
    said = _json(tool)
    return ToolLine(name=tool_name(tool), characters=len(said), tokens=estimate_tokens(said))


def _share(layer: str, lines: list[MessageLine | ToolLine], of_all: int, window: int | None) -> LayerShare:
    tokens = sum(line.tokens for line in lines)
    return LayerShare(
        layer=layer,
        messages=len(lines),
        characters=sum(line.characters for line in lines),
        tokens=tokens,
        share=round(tokens / of_all, 4) if of_all else 0.0,
        of_window=round(tokens / window, 4) if window else None,
    )


def _is_profile(card: Card | None) -> bool:
    return card is not None and card.type == "sys.profile"


def _json(value: Any) -> str:
    return exact_json.encode(value).decode()
