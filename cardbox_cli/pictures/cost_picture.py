"""The page of costs: findings with their commands, growth of the requests, and shares of the tokens."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from cardbox_cli.context.cost.account import NONE, Account, Grouping, SentPart, Share, StepCost
from cardbox_cli.context.cost.findings import CostFinding
from cardbox_cli.model.ids import short_id
from cardbox_cli.model.layers import CHECKPOINT
from cardbox_cli.pictures.page_elements import Child, Element, element, facts, page, section, swatch, table
from cardbox_cli.pictures.request_picture import (
    DrawnCard,
    DrawnStep,
    group_colours,
    history_groups,
    layer_colours,
    step_sections,
    token_label,
)

# The maximum numbers of drawn steps (the last ones), and of findings that are not folded.
_MAX_STEPS = 100
_UNFOLDED = 5


class CostPicture(msgspec.Struct, frozen=True, kw_only=True):
    """A series of requests: its `facts` as text, its account, and its findings with their commands."""

    name: str
    facts: Mapping[str, str]
    account: Account
    findings: Sequence[tuple[CostFinding, str | None]]


def cost_page(picture: CostPicture) -> str:
    account = picture.account
    steps = drawn_account(account)
    colours = cost_colours(account, steps)
    return page(
        f"Costs of {picture.name}",
        facts(picture.facts),
        *([section("Findings", *_findings(picture))] if picture.findings else []),
        *step_sections(steps, colours),
        *([section("By layer", _shares("layer", account, colours))] if account.steps else []),
        *([section("By type", _shares("type", account, {}))] if account.steps else []),
        *([section("By tool", _shares("tool", account, {}))] if account.steps else []),
    )


def drawn_account(account: Account) -> list[DrawnStep]:
    """Return the last requests of a series for drawings, by layer and by group of the history."""
    shown = account.steps[-_MAX_STEPS:]
    begin = len(account.steps) - len(shown)
    groups = _groups(account)
    cards: list[list[DrawnCard]] = [[] for _ in shown]
    histories: list[Counter[str]] = [Counter() for _ in shown]
    for part in account.parts:
        group = part.layer if part.layer != CHECKPOINT else groups[_pair(part)]
        for step in range(max(part.first, begin), part.first + part.sends):
            if part.card_id is not None:
                card = DrawnCard(card_id=part.card_id, about=part.type, layer=group, tokens=part.tokens)
                cards[step - begin].append(card)
            if part.layer == CHECKPOINT:
                histories[step - begin][group] += part.tokens
    order = [share.name for share in account.by["layer"]]
    return [_step(*each, order) for each in zip(shown, cards, histories, strict=True)]


def cost_colours(account: Account, steps: Sequence[DrawnStep]) -> Mapping[str, str]:
    """Return the CSS classes of the layers and of the groups of the history."""
    layers = [share.name for share in account.by["layer"]]
    return {**layer_colours(layers), **group_colours(name for step in steps for name, _ in step.layers)}


def _groups(account: Account) -> Mapping[tuple[str, str], str]:
    tokens: Counter[tuple[str, str]] = Counter()
    for part in account.parts:
        if part.layer == CHECKPOINT:
            tokens[_pair(part)] += part.total
    return history_groups(tokens)


def _pair(part: SentPart) -> tuple[str, str]:
    return part.type, "" if part.tool == NONE else part.tool


def _step(
    step: StepCost, cards: Sequence[DrawnCard], history: Mapping[str, int], order: Sequence[str]
) -> DrawnStep:
    broken = ", cache broken" if step.breaks else ""
    layers: list[tuple[str, int]] = []
    for layer in order:
        if layer == CHECKPOINT:
            layers += sorted(history.items())
        elif layer in step.layers:
            layers.append((layer, step.layers[layer]))
    return DrawnStep(
        name=f"request {step.number}{broken}",
        messages=step.messages,
        tokens=step.tokens,
        exact=not step.estimated,
        layers=layers,
        cards=cards,
    )


def _shares(name: Grouping, account: Account, colours: Mapping[str, str]) -> Element:
    shares: Sequence[Share] = account.by[name]
    rows: list[list[Child]] = [
        [
            element("span", swatch(colours[each.name]), f" {each.name}") if colours else each.name,
            token_label(each.tokens, account.exact),
            f"{each.share:.1%}",
            token_label(each.last, account.exact),
        ]
        for each in shares
    ]
    numbers = ("Total", "Share", "Last request")
    return table(f"By {name}", (name.title(), *numbers), rows, numbers=numbers)


def _findings(picture: CostPicture) -> list[Element]:
    articles = list(_articles(picture))
    more = articles[_UNFOLDED:]
    if not more:
        return articles
    return [*articles[:_UNFOLDED], element("details", element("summary", f"{len(more)} more"), *more)]


def _articles(picture: CostPicture) -> Iterator[Element]:
    for found, command in picture.findings:
        tokens = f"{token_label(found.tokens, picture.account.exact)} tokens, {found.share:.1%} of all"
        cards = ", ".join(short_id(each.card_id) for each in found.evidence[:8] if each.card_id)
        yield element(
            "article",
            element("h3", found.code),
            element("p", found.message),
            element("p", tokens + (f"; cards {cards}" if cards else ""), class_="about"),
            element("p", f"Remedy: {found.remedy}."),
            element("pre", command, tabindex=0) if command else None,
        )
