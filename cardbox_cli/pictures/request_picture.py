"""The page of a request: its layers and messages, lint findings, and how the requests before it grew."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from cardbox_cli.context.explain import TOOLS, Explanation, LayerShare, MessageLine, shares
from cardbox_cli.context.lint.rule import LintFinding
from cardbox_cli.model import layers
from cardbox_cli.model.ids import short_id, unique
from cardbox_cli.pictures.page_elements import (
    Child,
    Element,
    box,
    element,
    facts,
    folded_text,
    page,
    section,
    svg,
    swatch,
    table,
)
from cardbox_cli.text.quantities import format_count

# The colour of each layer, the same on all pages. Layers that rarely occur together share a colour, and all
# other layers have the last one.
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
# The width of a drawing of steps, in units.
_STEPS_WIDTH = 100.0
# The maximum number of cards in the heat map: those with the most tokens over all steps.
_MAX_CARDS = 60


class DrawnCard(msgspec.Struct, frozen=True, kw_only=True):
    card_id: str
    about: str
    layer: str
    tokens: int


class DrawnStep(msgspec.Struct, frozen=True, kw_only=True):
    """A request: its name, the tokens of its layers from bottom to top, and its cards."""

    name: str
    messages: int
    tokens: int
    exact: bool
    layers: Sequence[tuple[str, int]]
    cards: Sequence[DrawnCard]


def layer_colours(names: Iterable[str]) -> Mapping[str, str]:
    return {name: f"l{_COLOURS.get(name, _OTHERS)}" for name in names}


def token_label(tokens: int, exact: bool) -> str:
    return f"{'' if exact else '~'}{tokens:,}"


def step_sections(steps: Sequence[DrawnStep], colours: Mapping[str, str]) -> list[Element]:
    """Return the sections of a page about steps; none if there are no steps."""
    if not steps:
        return []
    return [
        section("Growth over the steps", draw_growth(steps, colours), _numbers(steps)),
        section("Cards over the steps", draw_heat_map(steps, colours)),
    ]


def draw_growth(steps: Sequence[DrawnStep], colours: Mapping[str, str]) -> Element:
    """Draw a column of stacked layers for each step."""
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
    label = f"Tokens of {len(steps)} steps by layer, up to {most:,}"
    drawn = svg(label, _STEPS_WIDTH, high, *boxes, class_="drawing tall")
    names = unique(layer for step in steps for layer, _ in step.layers)
    return _chart(drawn, steps, (f"{most:,} tokens", "0"), names, colours)


def _chart(
    drawn: Element,
    steps: Sequence[DrawnStep],
    ends: tuple[str, str],
    names: Sequence[str],
    colours: Mapping[str, str],
) -> Element:
    """Add axes and a legend to a drawing of steps. `ends` are the two ends of the vertical axis.

    The labels are outside of the drawing, whose width and height are stretched.
    """
    first, last = steps[0].name, steps[-1].name
    legend = [element("span", swatch(colours[name]), f" {name}") for name in names]
    return element(
        "div",
        element("div", *(element("span", end) for end in ends), class_="axis-y"),
        drawn,
        element("div", *(element("span", name) for name in unique([first, last])), class_="axis-x"),
        element("div", *legend, class_="legend"),
        class_="chart",
    )


def _numbers(steps: Sequence[DrawnStep]) -> Element:
    rows = [[step.name, f"{step.messages:,}", token_label(step.tokens, step.exact)] for step in steps]
    numbers = ("Messages", "Tokens")
    return table("Steps", ("Step", *numbers), rows, numbers=numbers)


def draw_heat_map(steps: Sequence[DrawnStep], colours: Mapping[str, str]) -> Element:
    """Draw a row for each card and a column for each step: solid if the card is new, else pale."""
    seen: dict[str, dict[int, DrawnCard]] = {}
    for index, step in enumerate(steps):
        for card in step.cards:
            seen.setdefault(card.card_id, {})[index] = card
    by_tokens = sorted(seen, key=lambda card_id: -sum(card.tokens for card in seen[card_id].values()))
    shown = [card_id for card_id in seen if card_id in set(by_tokens[:_MAX_CARDS])]
    wide, boxes = _STEPS_WIDTH / len(steps), []
    for row, card_id in enumerate(shown):
        first = min(seen[card_id])
        for index, card in seen[card_id].items():
            class_ = colours[card.layer] + ("" if index == first else " again")
            tip = f"card {short_id(card_id)}, {card.about}, {steps[index].name}: {card.tokens:,} tokens"
            boxes.append(box(index * wide, row * 2, wide, 2, class_, tip))
    about = f"{len(shown)} of {len(seen)} cards: solid if a card is new, pale if it is sent again."
    label, height = "Which cards were sent in which step", max(2 * len(shown), 2)
    drawn = svg(label, _STEPS_WIDTH, height, *boxes, class_="drawing tall")
    names = unique(card.layer for card_id in shown for card in seen[card_id].values())
    ends = ("first card", f"card {len(shown)}")
    return element("div", element("p", about, class_="about"), _chart(drawn, steps, ends, names, colours))


# --- the history by card type and tool: it is often nearly all of a request

# The maximum number of types and tools with a colour of their own, and the group of the others.
_MAX_GROUPS = 5
_OTHER_HISTORY = "history: other"
# The colours of the history, in the order in which free ones are taken.
_HISTORY_COLOURS = (1, 2, 3, 4, 5, 6, 0)


def history_groups(tokens: Mapping[tuple[str, str], int]) -> Mapping[tuple[str, str], str]:
    """Return the group of each pair of a card type and a tool in a history, by their tokens.

    The pairs with the most tokens have groups of their own.
    """
    ranked = sorted(tokens, key=lambda pair: -tokens[pair])
    return {
        pair: f"history: {' '.join(filter(None, pair))}" if place < _MAX_GROUPS else _OTHER_HISTORY
        for place, pair in enumerate(ranked)
    }


def group_colours(names: Iterable[str]) -> Mapping[str, str]:
    """Return the CSS class of each layer, and of each group of the history: first unused colours."""
    names = unique(names)
    groups = [name for name in names if name.startswith("history: ")]
    fixed = layer_colours(name for name in names if name not in groups)
    used = set(fixed.values())
    free = sorted(_HISTORY_COLOURS, key=lambda number: f"l{number}" in used)
    colours = {name: f"l{free[place % len(free)]}" for place, name in enumerate(groups)}
    return {**fixed, **colours, **({_OTHER_HISTORY: f"l{_OTHERS}"} if _OTHER_HISTORY in groups else {})}


# The width and the row height of a drawing in units, and the length in characters of a folded message.
_WIDTH, _ROW, _FOLDED = 100.0, 6.0, 600


class StepPicture(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    account: Explanation


class RequestPicture(msgspec.Struct, frozen=True, kw_only=True):
    """A request. `window` is the context window of its model in tokens, `steps` are the steps of its turn."""

    name: str
    model: str | None
    window: int | None
    account: Explanation
    findings: Sequence[LintFinding]
    steps: Sequence[StepPicture] = ()


def request_page(picture: RequestPicture) -> str:
    account = picture.account
    layers = shares(account, picture.window)
    colours = request_colours(layers, [step.account for step in picture.steps])
    whole = [found for found in picture.findings if found.card_id is None]
    return page(
        f"Request of {picture.name}",
        _facts(picture),
        section("Layers", draw_layers(layers, account, colours), _layers(layers, colours)),
        section("Messages by tokens", draw_icicle(account, colours)),
        *step_sections([drawn_step(step) for step in picture.steps], colours),
        *([section("Findings", _findings(whole))] if whole else []),
        section("Messages", *_messages(picture, colours)),
    )


def request_colours(layers: Sequence[LayerShare], others: Sequence[Explanation] = ()) -> Mapping[str, str]:
    """Return the CSS class of each layer of a request, and of other requests on the same page."""
    names = [layer.layer for layer in layers]
    names += [line.layer for account in others for line in account.messages]
    return layer_colours([*names, TOOLS])


def _facts(picture: RequestPicture) -> Element:
    account = picture.account
    taken = f", {account.tokens / picture.window:.1%} of {picture.window:,}" if picture.window else ""
    errors = sum(found.severity == "error" for found in picture.findings)
    warnings = len(picture.findings) - errors
    pairs = {
        "model": picture.model or "unknown",
        "tokens": token_label(account.tokens, account.tokens_exact) + taken,
        "messages": f"{len(account.messages)}, and {len(account.tools)} tools",
        "findings": f"{format_count(errors, 'error')}, {format_count(warnings, 'warning')}",
    }
    return facts(pairs)


def draw_layers(layers: Sequence[LayerShare], account: Explanation, colours: Mapping[str, str]) -> Element:
    """Draw a bar in which the width of each layer is its share of the tokens."""
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
            token_label(each.tokens, each.tokens_exact),
            f"{each.share:.1%}",
            f"{each.messages:,}",
        ]
        for each in layers
    ]
    return table("Layers", ("Layer", *numbers), rows, numbers=numbers)


def draw_icicle(account: Explanation, colours: Mapping[str, str]) -> Element:
    """Draw the request, below it its layers in order, and below them their messages."""
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
        about = f"{line.layer}, {token_label(line.tokens, line.tokens_exact)} tokens"
        here = of_card.get(line.card_id, []) if line.card_id else []
        articles.append(
            element(
                "article",
                element("h3", swatch(colours[line.layer]), " " + _name(number, line)),
                element("p", about, class_="about"),
                _findings(here) if here else None,
                folded_text(line.preview, _FOLDED),
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
