"""The costs of a series of requests by step, layer, card type, tool and card, and the savings by a cache.

Pure. A source of requests (a turn, an agent, the answers in a box) passes a list of `Sent`. Requests of one
source share their message objects, so that each message is examined once. `context/explain` counts the
tokens, so the sums over the steps are the tokens of the requests. A prefix cache holds the beginning that a
request shares with the previous request, tools first.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Literal, get_args, overload

import msgspec

from cardbox_cli.context.composer import add_missing_layers
from cardbox_cli.context.cost.usage import Usage, find_usage
from cardbox_cli.context.explain import REPLY, TOOLS, Cost, TokenCosts
from cardbox_cli.context.messages import Message
from cardbox_cli.context.parts import tool_name
from cardbox_cli.context.provider import Provider
from cardbox_cli.context.request import Request
from cardbox_cli.model.card_types import TOOLS as TOOLS_TYPE
from cardbox_cli.model.cards import Card, card_text
from cardbox_cli.model.layers import CHECKPOINT
from cardbox_cli.model.pairing import ToolNames


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """A request of a series in `provider`'s format, and the step of a turn that sent it, if any. `behind` has
    the messages that follow its history in the box. `usage` is what the provider reported."""

    request: Request
    provider: Provider
    agent_turn_id: str | None = None
    step_id: str | None = None
    behind: Sequence[Message] = ()
    usage: Usage | None = None


class SeriesChange(msgspec.Struct, frozen=True, kw_only=True):
    """The change from one request of a series to the next.

    `kept` is the number of messages at the shared beginning. `gone` has the rest of the earlier request,
    `added` the rest of the later one. If `same_frame`, model, tools and parameters are the same. If `breaks`,
    a cache loses more than the layers that follow every history.
    """

    kept: int
    gone: Sequence[Message]
    added: Sequence[Message]
    same_frame: bool
    breaks: bool


def series_changes(series: Iterable[Sent]) -> Iterable[SeriesChange]:
    """Yield the change that each request of a series makes. The first request adds all its messages."""
    before: Request | None = None
    for sent in series:
        yield _series_change(before, sent.request)
        before = sent.request


def answered_requests(request: Request, provider: Provider) -> Sequence[Sent]:
    """Return the requests that led to the answers in a request's history, each with the request's layers. An
    answer is a run of assistant messages. Unless the history ends in one, `request` itself is the last."""
    start, end = history_of(request.messages)
    roles = [message.body.get("role") for message in request.messages[start:end]]
    # The places at which an answer begins.
    asked = [at for at in range(1, len(roles)) if roles[at] == "assistant" and roles[at - 1] != "assistant"]
    if not asked or roles[-1] != "assistant":
        asked.append(len(roles))
    return _AskedRequests(request, provider, [start + length for length in asked], end)


class _AskedRequests(Sequence[Sent]):
    """Requests with a beginning of a request's history, up to one of `places`, and its layers. Each is made
    on access, because the memory for all would be quadratic."""

    def __init__(self, request: Request, provider: Provider, places: Sequence[int], end: int) -> None:
        self._request, self._provider = request, provider
        self._places, self._end = places, end

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, at: int) -> Sent: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Sent]: ...

    def __getitem__(self, at: int | slice) -> Sent | Sequence[Sent]:
        if isinstance(at, slice):
            return _AskedRequests(self._request, self._provider, self._places[at], self._end)
        messages, place = self._request.messages, self._places[at]
        asked = msgspec.structs.replace(self._request, messages=[*messages[:place], *messages[self._end :]])
        behind = messages[place : self._end]
        usage = _answered_usage(self._request, behind)
        return Sent(provider=self._provider, request=asked, behind=behind, usage=usage)


def _answered_usage(request: Request, messages: Sequence[Message]) -> Usage | None:
    """Return the usage that the file of an imported answer has: the answer begins these messages."""
    for message in takewhile(lambda each: each.body.get("role") == "assistant", messages):
        place = request.places.get(message.card_id or "")
        card = None if place is None else place.slot.card
        if card is not None and (usage := find_usage(card.metadata)) is not None:
            return usage
    return None


def history_of(messages: Sequence[Message]) -> tuple[int, int]:
    """Return the start and the end index of the history. Both are the number of messages if it is empty."""
    start = 0
    while start < len(messages) and messages[start].layer != CHECKPOINT:
        start += 1
    end = len(messages)
    while end > start and messages[end - 1].layer != CHECKPOINT:
        end -= 1
    return start, end


def _series_change(before: Request | None, request: Request) -> SeriesChange:
    messages = request.messages
    if before is None:
        return SeriesChange(kept=0, gone=(), added=messages, same_frame=False, breaks=False)
    kept = count_common(before.messages, messages)
    gone, added = before.messages[kept:], messages[kept:]
    same_model = before.model == request.model
    same_frame = same_model and (before.tools, before.config) == (request.tools, request.config)
    goes_on = same_frame and before.lost_layers == request.lost_layers and _moves(gone, added)
    return SeriesChange(kept=kept, gone=gone, added=added, same_frame=same_frame, breaks=not goes_on)


def _moves(gone: Sequence[Message], added: Sequence[Message]) -> bool:
    """Return whether `gone` has only layers after the history, and the end of `added` repeats them."""
    behind = added[len(added) - len(gone) :]
    return len(gone) <= len(added) and all(
        one.layer != CHECKPOINT and one.body == other.body for one, other in zip(gone, behind, strict=True)
    )


def count_common(ones: Sequence[Message], others: Sequence[Message]) -> int:
    shorter = min(len(ones), len(others))
    if ones[:shorter] == others[:shorter]:
        return shorter
    return next((place for place in range(shorter) if ones[place].body != others[place].body), shorter)


def kept_before_lost(before: Request, request: Request) -> int:
    """Return the number of messages before the first layer without a known text whose hashes differ."""
    start, _ = history_of(request.messages)
    names = before.lost_layers.keys() | request.lost_layers.keys()
    texts = {name: "" for name in names if before.lost_layers.get(name) != request.lost_layers.get(name)}
    if not texts:
        return len(request.messages)
    placed = add_missing_layers(request.messages[: start + 1], texts, request.layout)
    return next(place for place, message in enumerate(placed) if message.layer in texts)


Grouping = Literal["layer", "type", "tool", "card"]
GROUPINGS: tuple[Grouping, ...] = get_args(Grouping)

# The name in tables for messages without a card or a tool.
NONE = "-"


class SentPart(msgspec.Struct, kw_only=True, gc=False):
    """A message of a series. `sends` is the number of requests with it, `first` the index of the first such
    request. `type` is the type of its card, `tool` the tool of its call or result; `-` means none."""

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
        return self.message.card_id or (None if self.card is None else self.card.card_id)

    @property
    def total(self) -> int:
        return self.tokens * self.sends

    @property
    def again(self) -> int:
        return self.tokens * max(self.sends - 1, 0)


class SentTool(msgspec.Struct, kw_only=True):
    name: str
    tokens: int
    sends: int = 0


class StepCost(msgspec.Struct, frozen=True, kw_only=True):
    """One request and its tokens as `render --explain` counts them.

    `estimated` tokens are not exact. A prefix cache with the previous request holds `kept` tokens; the model
    must read the `new` ones. `layers` has the tokens of each layer, of the tools and of the beginning of the
    reply. If `breaks`, the request does not continue the previous one. `reported` and `reported_output` are
    the provider's counts of the request and the answer, if known.
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
    reported: int | None = None
    reported_output: int | None = None


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of one layer, type or tool in all requests, their share, and those of the `last` request."""

    name: str
    tokens: int
    share: float
    last: int


def share_of(tokens: int, of_all: int) -> float:
    return round(tokens / of_all, 4) if of_all else 0.0


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """The account of a series. `parts` are its messages in the order in which they were first sent."""

    series: Sequence[Sent]
    changes: Sequence[SeriesChange]
    steps: list[StepCost]
    parts: list[SentPart]
    tools: list[SentTool]
    by: dict[Grouping, list[Share]]
    tokenizer: str

    @property
    def tokens(self) -> int:
        return sum(step.tokens for step in self.steps)

    @property
    def cached_tokens(self) -> int:
        """The tokens of all requests that a prefix cache would have held."""
        return sum(step.kept for step in self.steps)

    @property
    def reported(self) -> list[StepCost]:
        """The requests for which a provider reported the number of tokens."""
        return [step for step in self.steps if step.reported is not None]

    @property
    def exact(self) -> bool:
        return not any(step.estimated for step in self.steps)


def account_of(series: Sequence[Sent]) -> Account:
    """Account for a series. The tokens of each request are counted for its own model."""
    ledger = _Ledger()
    found = list(series_changes(series))
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
    """The costs of requests. They are entered in order, and each entry examines only the changed messages."""

    def __init__(self) -> None:
        self.steps: list[StepCost] = []
        self.tools: dict[str, SentTool] = {}
        self.tokenizer = ""
        self._costs: dict[str | None, TokenCosts] = {}
        self._parts: list[SentPart] = []
        self._now: list[SentPart] = []
        self._names = ToolNames()
        self._estimated = 0
        self._present: dict[str, Counter[str]] = {name: Counter() for name in ("layer", "type", "tool")}
        self._sums: dict[str, Counter[str]] = {name: Counter() for name in self._present}

    def enter(self, sent: Sent, change: SeriesChange, before: Sent | None) -> None:
        request = sent.request
        if request.model not in self._costs:
            self._costs[request.model] = TokenCosts(sent.provider.facts(request.model))
        costs = self._costs[request.model]
        self.tokenizer = costs.tokenizer
        if before is not None and before.request.model != request.model:
            # Models have separate tokenizers and caches.
            gone, added = before.request.messages, request.messages
            change = SeriesChange(kept=0, gone=gone, added=added, same_frame=False, breaks=True)
        for part in self._dropped_parts(len(self._now) - len(change.gone)):
            self._count(part, -1)
        cached_tokens = self._cached_tokens(before, request)
        for message in change.added:
            part = self._part(message, costs.message_cost(message), request)
            self._parts.append(part)
            self._now.append(part)
            self._count(part, 1)
        self._close(sent, change, costs, cached_tokens)

    def _cached_tokens(self, before: Sent | None, request: Request) -> int:
        """Return the tokens of the messages that a prefix cache holds."""
        if before is None:
            return 0
        length = min(len(self._now), kept_before_lost(before.request, request))
        if length == len(self._now):
            return self._present["layer"].total()
        return sum(part.tokens for part in self._now[:length])

    def _dropped_parts(self, length: int) -> list[SentPart]:
        """Remove and return the messages after the first `length`. The next request lacks them."""
        ended = self._now[length:]
        del self._now[length:]
        for part in ended:
            part.sends += len(self.steps) - part.first
        return ended

    def _count(self, part: SentPart, sign: int) -> None:
        for grouping, name in (("layer", part.layer), ("type", part.type), ("tool", part.tool)):
            self._present[grouping][name] += sign * part.tokens
        self._estimated += sign * part.estimated

    def _part(self, message: Message, cost: Cost, request: Request) -> SentPart:
        place = request.places.get(message.card_id or "")
        if place is None:
            place = next(map(request.places.get, request.makers.get(message.layer, ())), None)
        card = None if place is None else place.slot.card
        return SentPart(
            message=message,
            card=card,
            box_id=None if place is None else place.box_id or None,
            position=None if place is None else place.slot.position,
            layer=message.layer,
            type=NONE if card is None else card.type,
            tool=NONE if card is None else self._names.tool_names(card) or NONE,
            tokens=cost.tokens,
            estimated=cost.estimated,
            first=len(self.steps),
        )

    def _close(self, sent: Sent, change: SeriesChange, costs: TokenCosts, cached_tokens: int) -> None:
        request = sent.request
        of_tools = [(tool_name(tool) or NONE, costs.tool_cost(tool)) for tool in request.tools]
        reply = costs.reply if request.messages else Cost("", 0, 0)
        tool_tokens = sum(cost.tokens for _, cost in of_tools)
        tokens = self._present["layer"].total() + tool_tokens + reply.tokens
        kept = cached_tokens + tool_tokens if self.steps and change.same_frame else 0
        beside = self._other_counts(of_tools, reply)
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
                reported=None if sent.usage is None else sent.usage.input,
                reported_output=None if sent.usage is None else sent.usage.output,
            )
        )

    def _other_counts(self, of_tools: Iterable[tuple[str, Cost]], reply: Cost) -> dict[str, Counter[str]]:
        """Return the tokens of tool definitions and of the beginning of the reply, by grouping and name."""
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
        self._dropped_parts(0)
        return self._parts

    def shares(self, grouping: Grouping) -> list[Share]:
        """Return the shares of a grouping, largest first."""
        sums = self._sums[grouping]
        of_all = sums.total()
        return [
            Share(name=name, tokens=tokens, share=share_of(tokens, of_all), last=self._last[grouping][name])
            for name, tokens in sums.most_common()
            if tokens
        ]


# --- what each card takes


class CardShare(msgspec.Struct, frozen=True, kw_only=True):
    """The share of a card. `tokens` counts it once, `sends` is the number of requests with it, and `total`
    counts it in all of them."""

    card_id: str | None
    box_id: str | None
    position: int | None
    layer: str
    type: str
    tool: str
    tokens: int
    tokens_exact: bool
    sends: int
    total: int
    share: float
    preview: str


def card_shares(account: Account) -> list[CardShare]:
    """Return the share of each card, largest first. The text of a layer counts for its first card. All
    requests with a card count together, including requests after a break."""
    of_all = account.tokens
    sends: Counter[tuple[object, ...]] = Counter()
    for part in account.parts:
        sends[_card_key(part)] += part.sends
    shares = [
        CardShare(
            card_id=part.card_id,
            box_id=part.box_id,
            position=part.position,
            layer=part.layer,
            type=part.type,
            tool=part.tool,
            tokens=part.tokens,
            tokens_exact=not part.estimated,
            sends=sent,
            total=part.tokens * sent,
            share=share_of(part.tokens * sent, of_all),
            preview=_preview(part),
        )
        for part in {_card_key(part): part for part in reversed(account.parts)}.values()
        for sent in [sends[_card_key(part)]]
    ]
    return sorted(shares, key=lambda share: -share.total)


def _card_key(part: SentPart) -> tuple[object, ...]:
    """Return a key that is the same for all messages of one card, and unique for a message without a card."""
    return (part.card_id, part.layer, part.tokens) if part.card_id else (id(part),)


def _preview(part: SentPart) -> str:
    content = part.message.body.get("content")
    text = content if isinstance(content, str) else ""
    return (text or ("" if part.card is None else card_text(part.card.content)))[:200]
