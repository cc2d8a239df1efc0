"""Conclusions from an account of costs: the contract of `cbx cost -o json`. Pure."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from cardbox_cli.context.cost.account import Account, CardShare, StepCost, card_shares
from cardbox_cli.context.cost.findings import ChatSubject, CostFinding, CostSubject
from cardbox_cli.context.cost.rules import check
from cardbox_cli.context.diff import Piece, diff
from cardbox_cli.model.tokens import bare_name

# --- where a prefix cache first breaks


# The number of characters shown before the first difference, and from the difference on.
_BEFORE, _AFTER = 40, 80


class Break(msgspec.Struct, frozen=True, kw_only=True):
    """The first request that does not continue the previous one. Steps count from 1 in the series.

    `section`, `number`, `layer` and `card_id` identify the piece that differs. Both texts begin with the same
    `character` characters. `before` is the end of these; `a` and `b` are the texts after them. If a text is
    missing or only its hash is known, its side and `character` are None. `lost` is the number of tokens of
    the earlier request from the difference on.
    """

    a_step: int
    b_step: int
    section: str
    number: int
    layer: str | None
    card_id: str | None
    character: int | None
    before: str
    a: str | None
    b: str | None
    lost: int


def first_break(account: Account) -> Break | None:
    """Return the first break of a series, or None if each request continues the previous one."""
    for place, step in enumerate(account.steps):
        if step.breaks:
            one, other = account.series[place - 1], account.series[place]
            parted = diff(one.request, other.request, other.provider)
            if parted.difference is not None:
                return _break(place, parted.difference.a, parted.difference.b, parted.a_after.tokens)
    return None


def _break(place: int, a: Piece | None, b: Piece | None, lost: int) -> Break:
    piece = b or a
    assert piece is not None
    one, other = _text(a), _text(b)
    is_known = one is not None and other is not None
    character = _common(one or "", other or "") if is_known else None
    start = character or 0
    return Break(
        a_step=place,
        b_step=place + 1,
        section=piece.section,
        number=piece.number,
        layer=piece.layer,
        card_id=next(iter(piece.card_ids), None),
        character=character,
        before="" if one is None else one[max(start - _BEFORE, 0) : start],
        a=None if one is None else one[start : start + _AFTER],
        b=None if other is None else other[start : start + _AFTER],
        lost=lost,
    )


def _text(piece: Piece | None) -> str | None:
    return None if piece is None or piece.sha256 is not None else piece.text


def _common(one: str, other: str) -> int:
    shorter = min(len(one), len(other))
    return next((place for place in range(shorter) if one[place] != other[place]), shorter)


# --- the price of tokens; you pass the prices, since cbx has none


_MILLION = 1_000_000


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """The prices of a model for a million tokens. `cached` is the price in a prefix cache, if it differs."""

    input: Decimal
    cached: Decimal | None = None


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    currency: str
    models: Mapping[str, Price]

    @classmethod
    def build(cls, currency: str, models: Mapping[str, tuple[Decimal, Decimal | None]]) -> "Prices":
        """Make prices of pairs of the price of a token and the price of a cached token, if that differs."""
        known = {name: Price(input=each, cached=cached) for name, (each, cached) in models.items()}
        return cls(currency=currency, models=known)

    def find(self, model: str | None) -> Price | None:
        """Return the price of a model by its full name, or else by its name without a gateway's prefix."""
        return self.models.get(model or "") or self.models.get(bare_name(model))


class Money(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of requests, with a prefix cache (`amount`) and without one. Both are None if no request has a
    price. They do not include requests to the `unpriced` models."""

    currency: str
    amount: Decimal | None
    without_cache: Decimal | None
    unpriced: list[str]


def money(steps: Sequence[StepCost], prices: Prices) -> Money:
    """Return the cost of these requests, without the models' answers."""
    amount = whole = Decimal(0)
    unpriced: dict[str, None] = {}
    is_priced = not steps
    for step in steps:
        price = prices.find(step.model)
        if price is None:
            unpriced[step.model or "unknown"] = None
            continue
        is_priced = True
        cached = price.input if price.cached is None else price.cached
        amount += (step.new * price.input + step.kept * cached) / _MILLION
        whole += step.tokens * price.input / _MILLION
    return Money(
        currency=prices.currency,
        amount=amount if is_priced else None,
        without_cache=whole if is_priced else None,
        unpriced=list(unpriced),
    )


# --- the answer


class Costs(msgspec.Struct, frozen=True):
    account: Account
    cards: list[CardShare]
    findings: list[CostFinding]
    broken: Break | None
    money: Money | None


class CostAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer. `by` has the shares by layer, type, tool and card. `fix` of a finding is a command line."""

    kind: str
    id: str
    tokenizer: str
    tokens: int
    tokens_exact: bool
    kept: int
    new: int
    largest_request: int | None
    of_window: float | None
    steps: Sequence[StepCost]
    by: dict[str, list[Any]]
    breaks: list[int]
    first_break: Break | None
    findings: list[dict[str, Any]]
    money: Money | None
    notes: Sequence[str]
    reported: int | None
    reported_requests: int
    reported_estimate: int


def costs_of(
    account: Account,
    *,
    profile: str | None = None,
    chat: ChatSubject | None = None,
    prices: Prices | None = None,
    read_only: frozenset[str] = frozenset(),
) -> Costs:
    return Costs(
        account,
        card_shares(account),
        check(CostSubject(account, profile=profile, chat=chat, read_only=read_only)),
        first_break(account),
        None if prices is None else money(account.steps, prices),
    )


def cost_answer(
    kind: str,
    name: str,
    costs: Costs,
    *,
    top: int,
    project_option: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> CostAnswer:
    """Return the answer for programs. `project_option` is added to the commands of the findings."""
    account, steps = costs.account, costs.account.steps
    greatest = max(steps, key=lambda step: step.tokens, default=None)
    provider = None if greatest is None else account.series[greatest.number - 1].provider
    window = None if greatest is None or provider is None else provider.facts(greatest.model).window
    return CostAnswer(
        kind=kind,
        id=name,
        tokenizer=account.tokenizer,
        tokens=account.tokens,
        tokens_exact=account.exact,
        kept=account.cached_tokens,
        new=account.tokens - account.cached_tokens,
        largest_request=None if greatest is None else greatest.number,
        of_window=None if greatest is None or window is None else round(greatest.tokens / window, 4),
        steps=steps,
        by={**{str(name): list(shares) for name, shares in account.by.items()}, "card": costs.cards[:top]},
        breaks=[step.number for step in steps if step.breaks],
        first_break=costs.broken,
        findings=[
            {**msgspec.structs.asdict(each), "fix": each.mend and each.mend.line(*project_option)}
            for each in costs.findings
        ],
        money=costs.money,
        notes=notes,
        reported=sum(step.reported or 0 for step in account.reported) if account.reported else None,
        reported_requests=len(account.reported),
        reported_estimate=sum(step.tokens for step in account.reported),
    )
