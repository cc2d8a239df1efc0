"""What is drawn of requests that were sent one after the other: how they grew, and which cards persisted."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from cardbox_cli.context.explain import TOOLS
from cardbox_cli.model import layers
from cardbox_cli.model.ids import short_id
from cardbox_cli.pictures.page import Element, box, element, section, svg, table

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
_WIDTH = 100.0
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
    wide, high = _WIDTH / len(steps), 40.0
    boxes = []
    for index, step in enumerate(steps):
        y = high
        for layer, tokens in step.layers:
            height = high * tokens / most
            y -= height
            tip = f"{step.name}, {layer}: {tokens:,} of {step.tokens:,} tokens"
            boxes.append(box(index * wide, y, wide * 0.9, height, colours[layer], tip))
    drawn = svg(f"Tokens of {len(steps)} steps by layer, up to {most:,}", _WIDTH, high, *boxes)
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
    wide, boxes = _WIDTH / len(steps), []
    for row, card_id in enumerate(shown):
        first = min(seen[card_id])
        for index, card in seen[card_id].items():
            class_ = colours[card.layer] + ("" if index == first else " again")
            tip = f"card {short_id(card_id)}, {card.about}, {steps[index].name}: {card.tokens:,} tokens"
            boxes.append(box(index * wide, row * 2, wide, 2, class_, tip))
    about = f"{len(shown)} of {len(seen)} cards: full where a card is new, pale where it is sent again."
    drawn = svg("Which cards were sent in which step", _WIDTH, max(2 * len(shown), 2), *boxes)
    drawn.set("class", "drawing tall")
    return element("div", element("p", about, class_="about"), drawn)
