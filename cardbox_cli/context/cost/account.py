"""What a series of requests cost: by step, layer, card type, tool and card, and what a prefix cache keeps.

Pure. The tokens are those of `inspection/explain`, counted once for each message: the sums over the steps are
the tokens of the very requests. A cache keeps what a request and the one before begin with, tools first.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

import msgspec

from cardbox_cli.context.cost.series import Change, Sent, changes, kept_before_lost
from cardbox_cli.context.inspection.costs import Cost, Costs
from cardbox_cli.context.inspection.explain import REPLY, TOOLS
from cardbox_cli.context.messages import Message
from cardbox_cli.context.parts import tool_name
from cardbox_cli.context.request import Request
from cardbox_cli.model.card_types import TOOLS as TOOLS_TYPE
from cardbox_cli.model.cards import Card
from cardbox_cli.model.pairing import ToolNames

Grouping = Literal["layer", "type", "tool", "card"]
GROUPINGS: tuple[Grouping, ...] = get_args(Grouping)

# The line of what belongs to no card, or to no tool.
NONE = "-"


class SentPart(msgspec.Struct, kw_only=True, gc=False):
    """A message of a series: how many tokens it has, in how many requests it was sent, the first and the
    last of them, by their places in the series. `gone`: requests after it went without it.

    The types of its cards, and the tool that it calls or answers for, are `-` where it has none.
    """

    message: Message
    card: Card | None
    box_id: str | None
    position: int | None
    layer: str
    type: str
    tool: str
    tokens: int
    estimated: int
    first: int
    sends: int = 0

    @property
    def card_id(self) -> str | None:
        """The card of the message, or the one that made its layer."""
        return self.message.card_id or (None if self.card is None else self.card.card_id)

    @property
    def total(self) -> int:
        """The tokens of all its sendings."""
        return self.tokens * self.sends

    @property
    def again(self) -> int:
        """The tokens of all its sendings but the first."""
        return self.tokens * max(self.sends - 1, 0)


class SentTool(msgspec.Struct, kw_only=True):
    """The definition of a tool: its tokens, and in how many requests it was sent."""

    name: str
    tokens: int
    sends: int = 0


class StepCost(msgspec.Struct, frozen=True, kw_only=True):
    """One request: its tokens as `render --explain` counts them, `estimated` of them by an estimate.

    A prefix cache that has the request before holds `kept` of them, `new` are read anew. `layers` are the
    tokens of each layer, the tools and the beginning of the reply among them. `breaks`: it does not go on
    from the one before.
    """

    number: int
    agent_turn_id: str | None
    step_id: str | None
    model: str | None
    messages: int
    tokens: int
    estimated: int
    kept: int
    new: int
    breaks: bool
    layers: dict[str, int]


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What one layer, type or tool takes: tokens in all requests, `share` of them, and in the last one."""

    name: str
    tokens: int
    share: float
    last: int


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """The account of a series. `parts` are its messages in the order in which they were first sent."""

    series: Sequence[Sent]
    changes: Sequence[Change]
    steps: list[StepCost]
    parts: list[SentPart]
    tools: list[SentTool]
    by: dict[Grouping, list[Share]]
    tokenizer: str

    @property
    def tokens(self) -> int:
        """The tokens of all requests."""
        return sum(step.tokens for step in self.steps)

    @property
    def kept(self) -> int:
        """How many of them a prefix cache would have kept."""
        return sum(step.kept for step in self.steps)

    @property
    def exact(self) -> bool:
        """Whether none of them is an estimate."""
        return not any(step.estimated for step in self.steps)


def account_of(series: Sequence[Sent]) -> Account:
    """The account of a series; each request costs what its model makes of it."""
    ledger = _Ledger()
    found = list(changes(series))
    before: Sent | None = None
    for sent, change in zip(series, found, strict=True):
        ledger.enter(sent, change, before)
        before = sent
    return Account(
        series=series,
        changes=found,
        steps=ledger.steps,
        parts=ledger.closed(),
        tools=list(ledger.tools.values()),
        by={name: ledger.shares(name) for name in ("layer", "type", "tool")},
        tokenizer=ledger.tokenizer,
    )


class _Ledger:
    """What requests cost, entered one after the other: each looks only at what its change brings."""

    def __init__(self) -> None:
        self.steps: list[StepCost] = []
        self.tools: dict[str, SentTool] = {}
        self.tokenizer = ""
        self._costs: dict[str | None, Costs] = {}
        self._parts: list[SentPart] = []
        self._now: list[SentPart] = []
        self._names = ToolNames()
        self._estimated = 0
        self._present: dict[str, Counter[str]] = {name: Counter() for name in ("layer", "type", "tool")}
        self._sums: dict[str, Counter[str]] = {name: Counter() for name in self._present}

    def enter(self, sent: Sent, change: Change, before: Sent | None) -> None:
        """Enter the next request of the series."""
        request = sent.request
        costs = self._costs_of(sent)
        self.tokenizer = costs.tokenizer
        if before is not None and before.request.model != request.model:
            change = _all_anew(before.request, request)
        self._leave(len(self._now) - len(change.gone))
        beginning = len(self._now)
        kept_of = self._beginning(beginning, change, before, request)
        for message in change.added:
            self._take(message, costs.of_message(message), request)
        self._close(sent, change, costs, kept_of)

    def _costs_of(self, sent: Sent) -> Costs:
        model = sent.request.model
        if model not in self._costs:
            self._costs[model] = Costs(sent.provider.facts(model))
        return self._costs[model]

    def _beginning(self, length: int, change: Change, before: Sent | None, request: Request) -> int:
        """The tokens of the messages that a prefix cache holds."""
        if before is None or not length:
            return 0
        length = min(length, kept_before_lost(before.request, request))
        return sum(part.tokens for part in self._now[:length]) if length < len(self._now) else self._held

    @property
    def _held(self) -> int:
        return self._present["layer"].total()

    def _leave(self, length: int) -> None:
        for part in self._ended(length):
            self._count(part, -1)

    def _ended(self, length: int) -> list[SentPart]:
        """The messages behind the first so many, which the next request goes without."""
        ended = self._now[length:]
        del self._now[length:]
        for part in ended:
            part.sends += len(self.steps) - part.first
        return ended

    def _take(self, message: Message, cost: Cost, request: Request) -> None:
        part = self._part(message, cost, request)
        self._parts.append(part)
        self._now.append(part)
        self._count(part, 1)

    def _count(self, part: SentPart, sign: int) -> None:
        self._present["layer"][part.layer] += sign * part.tokens
        self._present["type"][part.type] += sign * part.tokens
        self._present["tool"][part.tool] += sign * part.tokens
        self._estimated += sign * part.estimated

    def _part(self, message: Message, cost: Cost, request: Request) -> SentPart:
        place = request.places.get(message.card_id or "")
        if place is None:
            place = next(map(request.places.get, request.makers.get(message.layer, ())), None)
        card = None if place is None else place.slot.card
        return SentPart(
            message=message,
            card=card,
            box_id=None if place is None else place.box_id,
            position=None if place is None else place.slot.position,
            layer=message.layer,
            type=NONE if card is None else card.type,
            tool=NONE if card is None else self._names.of(card) or NONE,
            tokens=cost.tokens,
            estimated=cost.estimated,
            first=len(self.steps),
        )

    def _close(self, sent: Sent, change: Change, costs: Costs, kept_of_messages: int) -> None:
        request = sent.request
        of_tools = [(tool_name(tool) or NONE, costs.of_tool(tool)) for tool in request.tools]
        reply = costs.reply if request.messages else Cost("", 0, 0)
        tool_tokens = sum(cost.tokens for _, cost in of_tools)
        tokens = self._held + tool_tokens + reply.tokens
        kept = kept_of_messages + tool_tokens if self.steps and change.same_frame else 0
        beside = self._beside(of_tools, reply)
        for name, present in self._present.items():
            self._sums[name].update(present)
            self._sums[name].update(beside[name])
        self._last = {name: present + beside[name] for name, present in self._present.items()}
        self.steps.append(
            StepCost(
                number=len(self.steps) + 1,
                agent_turn_id=sent.agent_turn_id,
                step_id=sent.step_id,
                model=request.model,
                messages=len(request.messages),
                tokens=tokens,
                estimated=self._estimated + sum(cost.estimated for _, cost in of_tools) + reply.estimated,
                kept=kept,
                new=tokens - kept,
                breaks=change.breaks,
                layers={name: number for name, number in self._last["layer"].items() if number},
            )
        )

    def _beside(self, of_tools: Iterable[tuple[str, Cost]], reply: Cost) -> dict[str, Counter[str]]:
        """What is counted beside the messages: the definitions of tools, and the beginning of the reply."""
        beside: dict[str, Counter[str]] = {name: Counter() for name in self._present}
        for name, cost in of_tools:
            known = self.tools.setdefault(name, SentTool(name=name, tokens=cost.tokens))
            known.tokens, known.sends = max(known.tokens, cost.tokens), known.sends + 1
            for grouping, line in (("layer", TOOLS), ("type", TOOLS_TYPE), ("tool", name)):
                beside[grouping][line] += cost.tokens
        for grouping in beside:
            beside[grouping][REPLY] += reply.tokens
        return beside

    def closed(self) -> list[SentPart]:
        """The messages of the whole series, each with all its sendings."""
        self._ended(0)
        return self._parts

    def shares(self, grouping: Grouping) -> list[Share]:
        """What each of a grouping takes, the greatest first."""
        sums = self._sums[grouping]
        of_all = sums.total()
        return [
            Share(
                name=name,
                tokens=tokens,
                share=round(tokens / of_all, 4) if of_all else 0.0,
                last=self._last[grouping][name],
            )
            for name, tokens in sums.most_common()
            if tokens
        ]


def _all_anew(before: Request, request: Request) -> Change:
    """The change between requests to two models, which count and cache apart."""
    return Change(kept=0, gone=before.messages, added=request.messages, same_frame=False, breaks=True)
