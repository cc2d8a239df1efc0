"""What tokens cost in money, by the prices that somebody gives: cbx knows none itself."""

from collections.abc import Mapping, Sequence
from decimal import Decimal

import msgspec

from cardbox_cli.context.cost.account import StepCost
from cardbox_cli.model.tokens import bare_name

_MILLION = 1_000_000


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """The prices of a model for a million tokens; `cached` for those that its prefix cache holds, by default
    as any others."""

    input: Decimal
    cached: Decimal | None = None


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """The prices of models, by their names, in one currency."""

    currency: str
    models: Mapping[str, Price]

    @classmethod
    def of_models(cls, currency: str, models: Mapping[str, tuple[Decimal, Decimal | None]]) -> "Prices":
        """The prices of these models: of any tokens, and of those in a cache where that is less."""
        known = {name: Price(input=each, cached=cached) for name, (each, cached) in models.items()}
        return cls(currency=currency, models=known)

    def of(self, model: str | None) -> Price | None:
        """The price of a model: of its whole name, else of that without what a gateway puts before it."""
        return self.models.get(model or "") or self.models.get(bare_name(model))


class Money(msgspec.Struct, frozen=True, kw_only=True):
    """What requests cost: `amount` with what a prefix cache keeps, `without_cache` otherwise.

    `unpriced` are the models of which no price is known: their requests are in neither, and both are None
    where there is no other.
    """

    currency: str
    amount: Decimal | None
    without_cache: Decimal | None
    unpriced: list[str]


def money(steps: Sequence[StepCost], prices: Prices) -> Money:
    """What these requests cost; what a model answers is not among it."""
    amount = whole = Decimal(0)
    unpriced: dict[str, None] = {}
    is_priced = not steps
    for step in steps:
        price = prices.of(step.model)
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
