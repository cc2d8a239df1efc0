"""What programs are told of costs: the contract of `cbx cost -o json`, wherever it is asked for. Pure."""

from collections.abc import Sequence
from typing import Any

import msgspec

from cardbox_cli.context.cost.account import Account, StepCost
from cardbox_cli.context.cost.check import check
from cardbox_cli.context.cost.finding import CostFinding
from cardbox_cli.context.cost.prefix import Break, first_break
from cardbox_cli.context.cost.prices import Money, Prices, money
from cardbox_cli.context.cost.shares import CardShare, card_shares
from cardbox_cli.context.cost.subject import ChatSubject, Subject


class Costs(msgspec.Struct, frozen=True):
    """An account, and what follows from it: cards by what they take, findings, the first break, money."""

    account: Account
    cards: list[CardShare]
    findings: list[CostFinding]
    broken: Break | None
    money: Money | None


class CostAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer. `by` has the shares by layer, type, tool and card, a finding's `fix` is a command."""

    kind: str
    id: str
    tokenizer: str
    tokens: int
    tokens_exact: bool
    kept: int
    new: int
    greatest: int | None
    of_window: float | None
    steps: Sequence[StepCost]
    by: dict[str, list[Any]]
    breaks: list[int]
    first_break: Break | None
    findings: list[dict[str, Any]]
    money: Money | None


def costs_of(
    account: Account,
    *,
    profile: str | None = None,
    chat: ChatSubject | None = None,
    prices: Prices | None = None,
) -> Costs:
    """What follows from an account. Without prices there is no money."""
    return Costs(
        account,
        card_shares(account),
        check(Subject(account, profile=profile, chat=chat)),
        first_break(account),
        None if prices is None else money(account.steps, prices),
    )


def cost_answer(
    kind: str, name: str, costs: Costs, *, top: int, project_option: Sequence[str] = ()
) -> CostAnswer:
    """The answer about what costs so much. `project_option` is what commands name besides, if anything."""
    account, steps = costs.account, costs.account.steps
    greatest = max(steps, key=lambda step: step.tokens, default=None)
    return CostAnswer(
        kind=kind,
        id=name,
        tokenizer=account.tokenizer,
        tokens=account.tokens,
        tokens_exact=account.exact,
        kept=account.kept,
        new=account.tokens - account.kept,
        greatest=None if greatest is None else greatest.number,
        of_window=None if greatest is None else _of_window(account, greatest),
        steps=steps,
        by={**{str(name): list(shares) for name, shares in account.by.items()}, "card": costs.cards[:top]},
        breaks=[step.number for step in steps if step.breaks],
        first_break=costs.broken,
        findings=[
            {
                **msgspec.structs.asdict(each),
                "fix": None if each.mend is None else each.mend.line(*project_option),
            }
            for each in costs.findings
        ],
        money=costs.money,
    )


def _of_window(account: Account, step: StepCost) -> float | None:
    holds = account.series[step.number - 1].provider.facts(step.model).window
    return None if holds is None else round(step.tokens / holds, 4)
