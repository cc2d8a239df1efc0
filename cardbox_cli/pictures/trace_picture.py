"""The turns of a trace over time: a drawing with a bar for each turn, and a page with the drawing."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from cardbox_cli.pictures.page_elements import (
    Element,
    box,
    drawing,
    element,
    page,
    scroll_area,
    section,
    svg,
    table,
)
from cardbox_cli.text.times import format_duration

if TYPE_CHECKING:
    from cardbox_cli.inspect.turns import Branch


_WIDTH, _LINE, _LEFT = 800.0, 26.0, 8.0
_COLOURS = {"success": "l2", "failed": "l1", "timeout": "l1", "canceled": "l7", "partial": "l5"}
_RUNNING = "l0"


def trace_page(trace_id: str | None, tops: "Sequence[Branch]") -> str:
    rows = [
        [f"{'· ' * depth}{turn.agent_id}", _outcome(turn), _took(turn), turn.agent_turn_id]
        for depth, turn in _lines(tops)
    ]
    return page(
        f"Trace {trace_id or 'unknown'}",
        section("Turns over time", scroll_area("Turns over time", draw_timeline(tops))),
        section("Turns", table("Turns", ("Agent", "Outcome", "Took", "Turn"), rows, numbers=("Took",))),
    )


def trace_drawing(tops: "Sequence[Branch]") -> str:
    return drawing(draw_timeline(tops))


def draw_timeline(tops: "Sequence[Branch]") -> Element:
    lines = list(_lines(tops))
    starts = [turn.created_at for _, turn in lines if turn.created_at is not None]
    ends = [turn.ended_at for _, turn in lines if turn.ended_at is not None]
    first, last = min(starts, default=None), max([*starts, *ends], default=None)
    seconds = (last - first).total_seconds() if first and last else 0.0
    parts = [
        part
        for row, (depth, turn) in enumerate(lines)
        for part in _bar(turn, row, depth, first, seconds or 1.0)
    ]
    drawn = svg("Turns from their beginning to their end", _WIDTH, max(_LINE * len(lines), _LINE), *parts)
    drawn.set("preserveAspectRatio", "xMinYMin meet")
    return drawn


def _bar(turn: "Branch", row: int, depth: int, first: datetime | None, seconds: float) -> Iterator[Element]:
    """Draw the bar of a turn, with its name above it. A running turn extends to the end."""
    width = _WIDTH - 2 * _LEFT
    begin = (turn.created_at - first).total_seconds() if turn.created_at and first else 0.0
    end = (turn.ended_at - first).total_seconds() if turn.ended_at and first else seconds
    x, y = _LEFT + width * begin / seconds, row * _LINE
    tip = f"{turn.agent_turn_id}, {turn.agent_id}: {_outcome(turn)}, {_took(turn)}"
    colour = _COLOURS.get(turn.end_status or "", _RUNNING)
    yield box(x, y + 18, max(width * (end - begin) / seconds, 2), 5, colour, tip)
    name = f"{'· ' * depth}{turn.agent_id} ({_outcome(turn)})"
    yield element("text", name, x=f"{_LEFT:g}", y=f"{y + 14:g}")


def _lines(tops: "Sequence[Branch]") -> "Iterator[tuple[int, Branch]]":
    """Yield all turns in the order of the tree, with their depth, without recursion."""
    waiting = [(0, top) for top in reversed(tops)]
    while waiting:
        depth, turn = waiting.pop()
        yield depth, turn
        waiting += [(depth + 1, child) for child in reversed(turn.children)]


def _outcome(turn: "Branch") -> str:
    return " ".join(part for part in (turn.status, turn.end_status) if part)


def _took(turn: "Branch") -> str:
    return format_duration(turn.ended_at - turn.created_at) if turn.created_at and turn.ended_at else "-"
