"""The page of a request: what its layers and messages take, how it grew, what the lint finds where."""

from collections.abc import Mapping, Sequence

import msgspec

from cardbox_cli.context.explain import TOOLS, Explanation, LayerShare, MessageLine, shares
from cardbox_cli.context.lint.rule import LintFinding
from cardbox_cli.model.ids import short_id
from cardbox_cli.model.text.quantities import count
from cardbox_cli.pictures.page import (
    Child,
    Element,
    box,
    element,
    facts,
    folded,
    page,
    section,
    svg,
    swatch,
    table,
)
from cardbox_cli.pictures.steps import DrawnCard, DrawnStep, colours_of, of_steps, told

# Units of a drawing, and characters of a message that are shown at once.
_WIDTH, _ROW, _SHOWN = 100.0, 6.0, 600


class StepPicture(msgspec.Struct, frozen=True, kw_only=True):
    """A step and what was asked in it."""

    name: str
    account: Explanation


class RequestPicture(msgspec.Struct, frozen=True, kw_only=True):
    """What is drawn of a request. `window` is how many tokens its model holds, `steps` those of its turn."""

    name: str
    model: str | None
    window: int | None
    account: Explanation
    findings: Sequence[LintFinding]
    steps: Sequence[StepPicture] = ()


def request_page(picture: RequestPicture) -> str:
    """The page of a request."""
    account = picture.account
    layers = shares(account, picture.window)
    colours = request_colours(layers, [step.account for step in picture.steps])
    whole = [found for found in picture.findings if found.card_id is None]
    return page(
        f"Request of {picture.name}",
        _facts(picture),
        section("Layers", layers_bar(layers, account, colours), _layers(layers, colours)),
        section("Messages by tokens", icicle(account, colours)),
        *of_steps([drawn_step(step) for step in picture.steps], colours),
        *([section("Findings", _findings(whole))] if whole else []),
        section("Messages", *_messages(picture, colours)),
    )


def request_colours(layers: Sequence[LayerShare], others: Sequence[Explanation] = ()) -> Mapping[str, str]:
    """The class of each layer of a request, and of other requests that are drawn beside it."""
    names = [layer.layer for layer in layers]
    names += [line.layer for account in others for line in account.messages]
    return colours_of([*names, TOOLS])


def _facts(picture: RequestPicture) -> Element:
    account = picture.account
    taken = f", {account.tokens / picture.window:.1%} of {picture.window:,}" if picture.window else ""
    errors = sum(found.severity == "error" for found in picture.findings)
    pairs = {
        "model": picture.model or "unknown",
        "tokens": told(account.tokens, account.tokens_exact) + taken,
        "messages": f"{len(account.messages)}, and {len(account.tools)} tools",
        "findings": f"{count(errors, 'error')}, {count(len(picture.findings) - errors, 'warning')}",
    }
    return facts(pairs)


def layers_bar(layers: Sequence[LayerShare], account: Explanation, colours: Mapping[str, str]) -> Element:
    """A bar in which each layer is as wide as its share."""
    boxes, x = [], 0.0
    for layer in layers:
        width = _WIDTH * layer.tokens / (account.tokens or 1)
        tip = f"{layer.layer}: {layer.tokens:,} tokens, {layer.share:.1%}"
        boxes.append(box(x, 0, width, _ROW, colours[layer.layer], tip))
        x += width
    return svg("The share of each layer, as in the table below", _WIDTH, _ROW, *boxes)


def _layers(layers: Sequence[LayerShare], colours: Mapping[str, str]) -> Element:
    numbers = ("Tokens", "Share", "Messages")
    rows: list[list[Child]] = [
        [
            element("span", swatch(colours[each.layer]), f" {each.layer}"),
            told(each.tokens, each.tokens_exact),
            f"{each.share:.1%}",
            f"{each.messages:,}",
        ]
        for each in layers
    ]
    return table("Layers", ("Layer", *numbers), rows, numbers=numbers)


def icicle(account: Explanation, colours: Mapping[str, str]) -> Element:
    """The request, its layers in their order below it, and their messages below them."""
    unit = _WIDTH / (account.tokens or 1)
    boxes = [box(0, 0, _WIDTH, _ROW, "l7", f"all: {account.tokens:,} tokens")]
    x = start = 0.0
    lines = [
        (line.layer, line.tokens, _name(number, line)) for number, line in enumerate(account.messages, 1)
    ]
    lines += [(TOOLS, tool.tokens, f"tool {tool.name}") for tool in account.tools]
    for index, (layer, tokens, name) in enumerate(lines):
        boxes.append(box(x, 2 * _ROW, tokens * unit, _ROW, colours[layer], f"{name}: {tokens:,} tokens"))
        x += tokens * unit
        if index + 1 == len(lines) or lines[index + 1][0] != layer:
            boxes.append(box(start, _ROW, x - start, _ROW, colours[layer], layer))
            start = x
    return svg("The request, its layers and its messages, as wide as their tokens", _WIDTH, 3 * _ROW, *boxes)


def _name(number: int, line: MessageLine) -> str:
    return f"#{number} {line.role}" + (f", card {short_id(line.card_id)}" if line.card_id else "")


def drawn_step(step: StepPicture) -> DrawnStep:
    """A step as the drawings of a series have it."""
    account = step.account
    return DrawnStep(
        name=step.name,
        messages=len(account.messages),
        tokens=account.tokens,
        exact=account.tokens_exact,
        layers=[(layer.layer, layer.tokens) for layer in shares(account, None)],
        cards=[
            DrawnCard(card_id=line.card_id, about=line.role, layer=line.layer, tokens=line.tokens)
            for line in account.messages
            if line.card_id is not None
        ],
    )


def _messages(picture: RequestPicture, colours: Mapping[str, str]) -> list[Child]:
    of_card: dict[str, list[LintFinding]] = {}
    for found in picture.findings:
        of_card.setdefault(found.card_id or "", []).append(found)
    articles: list[Child] = []
    for number, line in enumerate(picture.account.messages, 1):
        about = f"{line.layer}, {told(line.tokens, line.tokens_exact)} tokens"
        here = of_card.get(line.card_id, []) if line.card_id else []
        articles.append(
            element(
                "article",
                element("h3", swatch(colours[line.layer]), " " + _name(number, line)),
                element("p", about, class_="about"),
                _findings(here) if here else None,
                folded(line.preview, _SHOWN),
            )
        )
    return articles


def _findings(found: Sequence[LintFinding]) -> Element:
    return element(
        "ul",
        *(
            element(
                "li",
                element("strong", f"{each.severity}: {each.rule}", class_=each.severity),
                f" {each.message}",
            )
            for each in found
        ),
    )
