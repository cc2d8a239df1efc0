"""Explaining a request: for each message where it comes from and what it costs; and what was left out."""

import msgspec

from cardbox_cli.context.collector import LayerLeftOut
from cardbox_cli.context.inspection.costs import Cost, Costs
from cardbox_cli.context.messages import Message
from cardbox_cli.context.parts import tool_name
from cardbox_cli.context.provider import Provider
from cardbox_cli.context.request import Omitted, Request

# The lines of the tools, and of the beginning of the reply, among those of the layers.
TOOLS, REPLY = "tools", "reply"


class MessageLine(msgspec.Struct, frozen=True, kw_only=True):
    """One message's account. `characters` counts its content and tool calls, `tokens` all that it costs.

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
    tokens_exact: bool
    preview: str


class ToolLine(msgspec.Struct, frozen=True):
    """One tool's account, as its definition is stored."""

    name: str | None
    characters: int
    tokens: int
    tokens_exact: bool


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The account of a request. `tokens` counts its tools and the beginning of the reply too.

    `tokens_estimated` of them are an estimate, `tokenizer` is what counted them.
    """

    process: str
    layout: str
    messages: list[MessageLine]
    tools: list[ToolLine]
    left_out: list[Omitted]
    layers_left_out: list[LayerLeftOut]
    tokens: int
    tokens_exact: bool
    tokens_estimated: int
    tokenizer: str


class LayerShare(msgspec.Struct, frozen=True, kw_only=True):
    """What a layer takes of a request: `share` of its tokens, `of_window` of those that the model holds.

    The tools are the last layer, `messages` of them. `of_window` is None where nobody knows the model.
    """

    layer: str
    messages: int
    characters: int
    tokens: int
    tokens_exact: bool
    share: float
    of_window: float | None


def explain(request: Request, provider: Provider) -> Explanation:
    """Account for every message of `request`, in order, and for every card and layer that made none.

    Its messages are in the format of `provider`.
    """
    costs = Costs(provider.facts(request.model))
    of_messages = [costs.of_message(message) for message in request.messages]
    of_tools = [costs.of_tool(tool) for tool in request.tools]
    of_all = [*of_messages, *of_tools, *([costs.reply] if request.messages else [])]
    estimated = sum(cost.estimated for cost in of_all)
    return Explanation(
        process=request.process,
        layout=request.layout,
        messages=[
            _message_line(message, cost, request)
            for message, cost in zip(request.messages, of_messages, strict=True)
        ],
        tools=[
            ToolLine(tool_name(tool), len(cost.text), cost.tokens, not cost.estimated)
            for tool, cost in zip(request.tools, of_tools, strict=True)
        ],
        left_out=request.left_out,
        layers_left_out=request.layers_left_out,
        tokens=sum(cost.tokens for cost in of_all),
        tokens_exact=not estimated,
        tokens_estimated=estimated,
        tokenizer=costs.tokenizer,
    )


def shares(account: Explanation, window: int | None) -> list[LayerShare]:
    """What each layer takes, in the order of their first messages, the tools last.

    `window` is how many tokens the model holds, None where that is not known.
    """
    groups: dict[str, list[MessageLine | ToolLine]] = {}
    for line in account.messages:
        groups.setdefault(line.layer, []).append(line)
    for tool in account.tools:
        groups.setdefault(TOOLS, []).append(tool)
    return [_share(layer, lines, account.tokens, window) for layer, lines in groups.items()]


def whole_shares(account: Explanation, window: int | None) -> list[LayerShare]:
    """`shares`, and behind them the beginning of the reply: together all that the request costs."""
    found = shares(account, window)
    reply = account.tokens - sum(share.tokens for share in found)
    # It is estimated where all is.
    exact = account.tokens_exact or any(share.tokens_exact for share in found)
    return [*found, _share_of(REPLY, 0, 0, (reply, exact), account.tokens, window)] if reply else found


def _message_line(message: Message, cost: Cost, request: Request) -> MessageLine:
    place = request.places.get(message.card_id or "")
    return MessageLine(
        layer=message.layer,
        role=str(message.body.get("role")),
        card_id=message.card_id,
        box_id=None if place is None else place.box_id,
        position=None if place is None else place.slot.position,
        rule=None if place is None else place.rule,
        made_of=[] if message.card_id is not None else request.makers.get(message.layer, []),
        characters=len(cost.text),
        tokens=cost.tokens,
        tokens_exact=not cost.estimated,
        preview=cost.text,
    )


def _share(layer: str, lines: list[MessageLine | ToolLine], of_all: int, window: int | None) -> LayerShare:
    tokens = sum(line.tokens for line in lines), all(line.tokens_exact for line in lines)
    return _share_of(layer, len(lines), sum(line.characters for line in lines), tokens, of_all, window)


def _share_of(
    layer: str, messages: int, characters: int, counted: tuple[int, bool], of_all: int, window: int | None
) -> LayerShare:
    tokens, exact = counted
    return LayerShare(
        layer=layer,
        messages=messages,
        characters=characters,
        tokens=tokens,
        tokens_exact=exact,
        share=round(tokens / of_all, 4) if of_all else 0.0,
        of_window=round(tokens / window, 4) if window else None,
    )
