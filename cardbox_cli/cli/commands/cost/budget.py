"""The budget of `--fail-over`: so many tokens, or a share of the window of a request's model."""

import re
from typing import Any, NamedTuple

import click

from cardbox_cli.context.cost.account import Account, StepCost
from cardbox_cli.errors import Findings, InvalidInput, UsageError
from cardbox_cli.model.text.quantities import token_count
from cardbox_cli.providers.models import window

_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]+)?)%")


class Budget(NamedTuple):
    """What no request may be over: `tokens`, or a `share` of what its model holds."""

    tokens: int | None = None
    share: float | None = None

    def check(self, account: Account) -> None:
        """Raise Findings where a request is over, InvalidInput where nobody knows what its model holds."""
        over = [step for step in account.steps if step.tokens > self._most(step)]
        if over:
            step = max(over, key=lambda step: step.tokens)
            tokens = token_count(step.tokens, exact=not step.estimated)
            raise Findings(
                f"request {step.number} has {tokens} tokens: over the budget of {self._said(step)}"
            )

    def _most(self, step: StepCost) -> float:
        if self.share is None:
            return self.tokens or 0
        holds = window(step.model)
        if holds is None:
            raise InvalidInput(
                f"--fail-over: nobody knows how many tokens the model {step.model or 'unknown'!r} holds",
                hint="name one with --model, or give the budget in tokens",
            )
        return self.share * holds

    def _said(self, step: StepCost) -> str:
        if self.share is None:
            return f"{self.tokens}"
        return f"{self._most(step):.0f}, {self.share * 100:g}% of what {step.model} holds"


class _BudgetType(click.ParamType[Budget]):
    name = "TOKENS|SHARE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Budget:
        """The budget. Raises UsageError for what is none."""
        if isinstance(value, Budget):
            return value
        percent = _PERCENT.fullmatch(value)
        if percent is not None and 0 < float(percent[1]) <= 100:
            return Budget(share=float(percent[1]) / 100)
        if value.isascii() and value.isdecimal() and 0 < len(value) <= 12:
            return Budget(tokens=int(value))
        raise UsageError(
            f"--fail-over: {value!r} is no budget", hint="give tokens, as in 60000, or a share, as in 60%"
        )


BUDGET = _BudgetType()
