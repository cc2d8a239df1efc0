"""What is drawn of requests that were sent one after the other: how they grew, and which cards persisted."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from cardbox_cli.context.explain import TOOLS, Explanation, LayerShare, MessageLine, shares
from cardbox_cli.context.lint.rule import LintFinding
from cardbox_cli.model import layers
from cardbox_cli.model.ids import short_id
from cardbox_cli.pictures.page_elements import (
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
from cardbox_cli.text import format_count

# The colour of each layer, on every page the same. Those that are seldom beside each other share one, and all
# others the last.
_COLOURS = {
    layers.SYSTEM_PROMPT: 0,
    layers.CHECKPOINT: 1,
    layers.QUERY: 2,
    layers.KNOWLEDGE: 3,
    layers.EXPERIENCE: 4,
    layers.PERSONA: 4,
    layers.TODO: 5,
    layers.MEMORY: 5,
    TOOLS: 6,
}
_OTHERS = 7
# Units of a drawing.
_STEPS_WIDTH = 100.0
# Cards of the heat map at most: those that took the most over all steps.
_MOST = 60


class DrawnCard(msgspec.Struct, frozen=True, kw_only=True):
    """A card in a request: what else is said `about` it, its layer, its tokens there."""

    card_id: str
    about: str
    layer: str
    tokens: int


class DrawnStep(msgspec.Struct, frozen=True, kw_only=True):
    """A request: its name, the tokens of its layers, the lowest first, and the cards in it."""

    name: str
    messages: int
    tokens: int
    exact: bool
    layers: Sequence[tuple[str, int]]
    cards: Sequence[DrawnCard]


def colours_of(names: Iterable[str]) -> Mapping[str, str]:
    """The class of each layer."""
    return {name: f"l{_COLOURS.get(name, _OTHERS)}" for name in names}


def told(tokens: int, exact: bool) -> str:
    """A number of tokens; an estimate is marked."""
    return f"{'' if exact else '~'}{tokens:,}"


def of_steps(steps: Sequence[DrawnStep], colours: Mapping[str, str]) -> list[Element]:
    """The sections of a page that tell of steps; none without a step."""
    if not steps:
        return []
    return [
        section("Growth over the steps", growth(steps, colours), _numbers(steps)),
        section("What persisted", heat(steps, colours)),
    ]


def growth(steps: Sequence[DrawnStep], colours: Mapping[str, str]) -> Element:
    """A column for each step, its layers upon each other."""
    most = max(step.tokens for step in steps) or 1
    wide, high = _STEPS_WIDTH / len(steps), 40.0
    boxes = []
    for index, step in enumerate(steps):
        y = high
        for layer, tokens in step.layers:
            height = high * tokens / most
            y -= height
            tip = f"{step.name}, {layer}: {tokens:,} of {step.tokens:,} tokens"
            boxes.append(box(index * wide, y, wide * 0.9, height, colours[layer], tip))
    drawn = svg(f"Tokens of {len(steps)} steps by layer, up to {most:,}", _STEPS_WIDTH, high, *boxes)
    drawn.set("class", "drawing tall")
    return drawn


def _numbers(steps: Sequence[DrawnStep]) -> Element:
    rows = [[step.name, f"{step.messages:,}", told(step.tokens, step.exact)] for step in steps]
    numbers = ("Messages", "Tokens")
    return table("Steps", ("Step", *numbers), rows, numbers=numbers)


def heat(steps: Sequence[DrawnStep], colours: Mapping[str, str]) -> Element:
    """A row for each card, a column for each step: full where a card is new, pale where it was sent again."""
    seen: dict[str, dict[int, DrawnCard]] = {}
    for index, step in enumerate(steps):
        for card in step.cards:
            seen.setdefault(card.card_id, {})[index] = card
    dearest = sorted(seen, key=lambda card_id: -sum(card.tokens for card in seen[card_id].values()))[:_MOST]
    shown = [card_id for card_id in seen if card_id in set(dearest)]
    wide, boxes = _STEPS_WIDTH / len(steps), []
    for row, card_id in enumerate(shown):
        first = min(seen[card_id])
        for index, card in seen[card_id].items():
            class_ = colours[card.layer] + ("" if index == first else " again")
            tip = f"card {short_id(card_id)}, {card.about}, {steps[index].name}: {card.tokens:,} tokens"
            boxes.append(box(index * wide, row * 2, wide, 2, class_, tip))
    about = f"{len(shown)} of {len(seen)} cards: full where a card is new, pale where it is sent again."
    drawn = svg("Which cards were sent in which step", _STEPS_WIDTH, max(2 * len(shown), 2), *boxes)
    drawn.set("class", "drawing tall")
    return element("div", element("p", about, class_="about"), drawn)


# The page of a request: what its layers and messages take, how it grew, what the lint finds where.


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
    warnings = len(picture.findings) - errors
    pairs = {
        "model": picture.model or "unknown",
        "tokens": told(account.tokens, account.tokens_exact) + taken,
        "messages": f"{len(account.messages)}, and {len(account.tools)} tools",
        "findings": f"{format_count(errors, 'error')}, {format_count(warnings, 'warning')}",
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
