"""The page of a request: what its layers and messages take, how it grew, what the lint finds where."""

from collections.abc import Mapping, Sequence

import msgspec

from cardbox_cli.cli.pictures.page import Child, Element, box, element, folded, page, section, svg, table
from cardbox_cli.context.inspection.explain import TOOLS, Explanation, LayerShare, MessageLine, shares
from cardbox_cli.context.lint.rule import LintFinding
from cardbox_cli.model.ids import short_id

# Layers are told apart by so many colours; the next ones share the last.
_COLOURS = 8
# Units of a drawing, and characters of a message that are shown at once.
_WIDTH, _ROW, _SHOWN = 100.0, 6.0, 600
# Cards of the heat map at most: those that took the most over all steps.
_MOST = 60


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
    colours = _colours(layers, picture.steps)
    whole = [found for found in picture.findings if found.card_id is None]
    return page(
        f"Request of {picture.name}",
        _facts(picture),
        section("Layers", _bar(layers, account, colours), _layers(layers, colours)),
        section("Messages by tokens", _icicle(account, colours)),
        *([section("Growth over the steps", _growth(picture.steps, colours))] if picture.steps else []),
        *([section("What persisted", _heat(picture.steps, colours))] if picture.steps else []),
        *([section("Findings", _findings(whole))] if whole else []),
        section("Messages", *_messages(picture, colours)),
    )


def _colours(layers: Sequence[LayerShare], steps: Sequence[StepPicture]) -> Mapping[str, str]:
    """The class of each layer."""
    names = [layer.layer for layer in layers]
    names += [line.layer for step in steps for line in step.account.messages]
    ordered = dict.fromkeys([*names, TOOLS])
    return {name: f"l{min(index, _COLOURS - 1)}" for index, name in enumerate(ordered)}


def _facts(picture: RequestPicture) -> Element:
    account = picture.account
    taken = f", {account.tokens / picture.window:.1%} of {picture.window:,}" if picture.window else ""
    errors = sum(found.severity == "error" for found in picture.findings)
    pairs = {
        "model": picture.model or "unknown",
        "tokens": _tokens(account.tokens, account.tokens_exact) + taken,
        "messages": f"{len(account.messages)}, and {len(account.tools)} tools",
        "findings": f"{errors} errors, {len(picture.findings) - errors} warnings",
    }
    return element("dl", *(each for pair in pairs.items() for each in _pair(*pair)))


def _pair(name: str, value: str) -> list[Element]:
    return [element("dt", name), element("dd", value)]


def _tokens(tokens: int, exact: bool) -> str:
    return f"{'' if exact else '~'}{tokens:,}"


def _bar(layers: Sequence[LayerShare], account: Explanation, colours: Mapping[str, str]) -> Element:
    boxes, x = [], 0.0
    for layer in layers:
        width = _WIDTH * layer.tokens / (account.tokens or 1)
        tip = f"{layer.layer}: {layer.tokens:,} tokens, {layer.share:.1%}"
        boxes.append(box(x, 0, width, _ROW, colours[layer.layer], tip))
        x += width
    return svg("The share of each layer, as in the table below", _WIDTH, _ROW, *boxes)


def _layers(layers: Sequence[LayerShare], colours: Mapping[str, str]) -> Element:
    rows: list[list[Child]] = [
        [
            element("span", _swatch(colours[each.layer]), f" {each.layer}"),
            _tokens(each.tokens, each.tokens_exact),
            f"{each.share:.1%}",
            f"{each.messages:,}",
        ]
        for each in layers
    ]
    return table("Layers", ("Layer", "Tokens", "Share", "Messages"), rows)


def _swatch(colour: str) -> Element:
    square = element("rect", class_=colour, width=10, height=10)
    return element("svg", square, viewBox="0 0 10 10", class_="swatch", aria_hidden="true")


def _icicle(account: Explanation, colours: Mapping[str, str]) -> Element:
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


def _growth(steps: Sequence[StepPicture], colours: Mapping[str, str]) -> Element:
    """A column for each step, its layers upon each other."""
    most = max((step.account.tokens for step in steps), default=0) or 1
    wide, high = _WIDTH / len(steps), 40.0
    boxes = []
    for index, step in enumerate(steps):
        y = high
        for layer in shares(step.account, None):
            height = high * layer.tokens / most
            y -= height
            tip = f"{step.name}, {layer.layer}: {layer.tokens:,} of {step.account.tokens:,} tokens"
            boxes.append(box(index * wide, y, wide * 0.9, height, colours[layer.layer], tip))
    drawn = svg(f"Tokens of {len(steps)} steps by layer, up to {most:,}", _WIDTH, high, *boxes)
    drawn.set("class", "drawing tall")
    rows = [
        [
            step.name,
            f"{len(step.account.messages):,}",
            _tokens(step.account.tokens, step.account.tokens_exact),
        ]
        for step in steps
    ]
    return element("div", drawn, table("Steps", ("Step", "Messages", "Tokens"), rows))


def _heat(steps: Sequence[StepPicture], colours: Mapping[str, str]) -> Element:
    """A row for each card, a column for each step: full where a card is new, pale where it was sent again."""
    seen: dict[str, dict[int, MessageLine]] = {}
    for index, step in enumerate(steps):
        for line in step.account.messages:
            if line.card_id is not None:
                seen.setdefault(line.card_id, {})[index] = line
    dearest = sorted(seen, key=lambda card_id: -sum(line.tokens for line in seen[card_id].values()))[:_MOST]
    shown = [card_id for card_id in seen if card_id in set(dearest)]
    wide, boxes = _WIDTH / len(steps), []
    for row, card_id in enumerate(shown):
        first = min(seen[card_id])
        for index, line in seen[card_id].items():
            class_ = colours[line.layer] + ("" if index == first else " again")
            tip = f"card {short_id(card_id)}, {line.role}, {steps[index].name}: {line.tokens:,} tokens"
            boxes.append(box(index * wide, row * 2, wide, 2, class_, tip))
    about = f"{len(shown)} of {len(seen)} cards: full where a card is new, pale where it is sent again."
    drawn = svg("Which cards were sent in which step", _WIDTH, max(2 * len(shown), 2), *boxes)
    drawn.set("class", "drawing tall")
    return element("div", element("p", about, class_="about"), drawn)


def _messages(picture: RequestPicture, colours: Mapping[str, str]) -> list[Child]:
    of_card: dict[str, list[LintFinding]] = {}
    for found in picture.findings:
        of_card.setdefault(found.card_id or "", []).append(found)
    articles: list[Child] = []
    for number, line in enumerate(picture.account.messages, 1):
        about = f"{line.layer}, {_tokens(line.tokens, line.tokens_exact)} tokens"
        here = of_card.get(line.card_id, []) if line.card_id else []
        articles.append(
            element(
                "article",
                element("h3", _swatch(colours[line.layer]), " " + _name(number, line)),
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
