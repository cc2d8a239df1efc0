"""The account of a request: the source and tokens of each message, and the cards and layers left out.

The model's tokenizer counts texts if it is installed. Some models document the overhead of a plain message.
The format of tool calls, results, parts and definitions in a prompt is not documented, so their tokens are
always an estimate.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from cardbox_cli.context.composer import LayerLeftOut
from cardbox_cli.context.messages import Message
from cardbox_cli.context.parts import json_text, tool_name
from cardbox_cli.context.provider import ModelFacts, Provider
from cardbox_cli.context.request import Omitted, Request

# The tokens added for a message, for a name, and for the beginning of the reply. Source: OpenAI Cookbook, How
# to count tokens with tiktoken. For models without such a document these numbers are an estimate.
_PER_MESSAGE, _PER_NAME, _REPLY = 3, 1, 3
# The estimate for an image or a file in base64. Providers count pixels or pages, which cbx does not decode.
# OpenAI docs, Images and vision: 765 for 1024 x 1024. Anthropic docs, Vision: up to 1,600.
_TOKENS_PER_MEDIUM = 1_000
_MEDIUM = re.compile(r'"data:[^",]*;base64,[^"]*"|(?<="data":)"[A-Za-z0-9+/=]{100,}"')
_PLAIN_ROLES = ("system", "user", "assistant")
_PLAIN_KEYS = frozenset({"role", "content", "name"})


class Cost(NamedTuple):
    """The text of a part and its tokens. `estimated` is the number of tokens that are not exact."""

    text: str
    tokens: int
    estimated: int


class TokenCosts:
    """The costs of the parts of requests to a model. `tokenizer` is the name of its tokenizer."""

    def __init__(self, facts: ModelFacts) -> None:
        self._tokenizer = facts.counter
        self._documented = self._tokenizer.exact and facts.documents_overhead is True
        self._of_roles: dict[str, int] = {}
        self.tokenizer = self._tokenizer.name

    @property
    def reply(self) -> Cost:
        """The beginning of the reply, which counts as part of the request."""
        return Cost("", _REPLY, 0 if self._documented else _REPLY)

    def message_cost(self, message: Message) -> Cost:
        """Return the cost of a message: content (parts as JSON), tool calls and overhead. A message with a
        `group` is sent as a part of a larger message, so its overhead is an estimate."""
        body = message.body
        count = self._tokenizer.count
        role, name, content = body.get("role"), body.get("name"), body.get("content")
        text = content if isinstance(content, str) else ""
        others = [content if content != text else None, body.get("tool_calls"), body.get("function_call")]
        rest = "".join(json_text(value) for value in others if value)
        of_text = count(text)
        named = _PER_NAME + count(name) if isinstance(name, str) else 0
        words, media = _MEDIUM.subn('""', rest)
        of_rest = count(words) + media * _TOKENS_PER_MEDIUM
        tokens = _PER_MESSAGE + self._role_tokens(str(role)) + named + of_text + of_rest
        if not self._tokenizer.exact or role not in _PLAIN_ROLES:
            estimated = tokens
        elif self._documented and message.group is None and not rest and body.keys() <= _PLAIN_KEYS:
            estimated = 0
        else:
            estimated = tokens - of_text
        return Cost(text + rest, tokens, estimated)

    def _role_tokens(self, role: str) -> int:
        if role not in self._of_roles:
            self._of_roles[role] = self._tokenizer.count(role)
        return self._of_roles[role]

    def tool_cost(self, tool: dict[str, Any]) -> Cost:
        text = json_text(tool)
        tokens = self._tokenizer.count(text)
        return Cost(text, tokens, tokens)


# --- the account of a request


# The names of the shares of the tools and of the beginning of the reply, next to the names of layers.
TOOLS, REPLY = "tools", "reply"


class MessageLine(msgspec.Struct, frozen=True, kw_only=True):
    """The account of a message. `characters` counts its content and tool calls; `tokens` includes the
    overhead. `card_id` is set for a message of the history, `made_of` has the cards of a layer's text."""

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
    name: str | None
    characters: int
    tokens: int
    tokens_exact: bool


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The account of a request. `tokens` includes the tools and the beginning of the reply.
    `tokens_estimated` is the number of tokens that are not exact."""

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
    """A layer's part of a request. `share` is its fraction of the request's tokens. `of_window` is its
    fraction of the context window, if known. For the tools, `messages` is the number of tools."""

    layer: str
    messages: int
    characters: int
    tokens: int
    tokens_exact: bool
    share: float
    of_window: float | None


def explain(request: Request, provider: Provider) -> Explanation:
    """Account for every message of `request` in order, and for every card and layer that made no message.
    The messages of `request` are in the format of `provider`."""
    costs = TokenCosts(provider.facts(request.model))
    of_messages = [costs.message_cost(message) for message in request.messages]
    of_tools = [costs.tool_cost(tool) for tool in request.tools]
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
    """Return the share of each layer in the order of their first messages, the tools last. `window` is the
    model's context window in tokens, None if unknown."""
    groups: dict[str, list[MessageLine | ToolLine]] = {}
    for line in account.messages:
        groups.setdefault(line.layer, []).append(line)
    for tool in account.tools:
        groups.setdefault(TOOLS, []).append(tool)
    return [_share(layer, lines, account.tokens, window) for layer, lines in groups.items()]


def whole_shares(account: Explanation, window: int | None) -> list[LayerShare]:
    """Return `shares` and a share for the beginning of the reply, which add up to the whole request."""
    found = shares(account, window)
    reply = account.tokens - sum(share.tokens for share in found)
    # The reply's share is an estimate if every other share is one.
    exact = account.tokens_exact or any(share.tokens_exact for share in found)
    share = _share(REPLY, [ToolLine(None, 0, reply, exact)], account.tokens, window)
    return [*found, msgspec.structs.replace(share, messages=0)] if reply else found


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


def _share(
    layer: str, lines: Sequence[MessageLine | ToolLine], of_all: int, window: int | None
) -> LayerShare:
    tokens = sum(line.tokens for line in lines)
    return LayerShare(
        layer=layer,
        messages=len(lines),
        characters=sum(line.characters for line in lines),
        tokens=tokens,
        tokens_exact=all(line.tokens_exact for line in lines),
        share=round(tokens / of_all, 4) if of_all else 0.0,
        of_window=round(tokens / window, 4) if window else None,
    )
