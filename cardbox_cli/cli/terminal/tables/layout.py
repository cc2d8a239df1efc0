"""Tables without lines: what a column is, and how columns share the width of a terminal.

Knows no kind of item: which columns there are stands in `columns/`, or where the table is printed.
"""

import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, Literal, NamedTuple

from cardbox_cli.cli.session import session_or_none
from cardbox_cli.cli.terminal.colours import painted
from cardbox_cli.cli.terminal.tables.widths import width as cell_width
from cardbox_cli.text import spelled

NOTHING = "-"

# Spaces between columns, and what is left of a text that is cut where the others need all of the terminal.
_GAP = 2
_LEAST = 12
# What of the last text has room beside the other columns before one of them goes.
_WANTED = 24
# How much room lets a folded text be read beside other columns.
_ENOUGH = 40


class Column(NamedTuple):
    """A column of a table: its name, and the text of an item in it.

    `right`: aligned to the right, as numbers are. `extra`: shown only where `--columns` or `-o wide` asks for
    it. `spare`: where a terminal is too narrow the column with the greatest goes first; one with 0 stays.
    `overflow` is what happens to a text at the end of a row that is too long: it is folded; or cut, as a mere
    beginning can be; or left whole, as a command is that people copy. `key` is what sorting compares, if not
    the text. `paint` colours the text where there are colours.
    """

    name: str
    text: Callable[[Any], str]
    right: bool = False
    extra: bool = False
    spare: int = 0
    overflow: Literal["fold", "cut", "whole"] = "fold"
    key: Callable[[Any], Any] | None = None
    paint: Callable[[str], str] | None = None


class Rows(NamedTuple):
    """The texts of a table: of each item one for each column."""

    columns: Sequence[Column]
    cells: list[list[str]]


def rows_of(columns: Sequence[Column], items: Iterable[Any]) -> Rows:
    """What a table of these items says, none of which is held."""
    return Rows(columns, _cells(columns, items))


def print_table(columns: Sequence[Column], items: Iterable[Any]) -> None:
    """Print a row for each item, as `print_rows` does."""
    print_rows(rows_of(columns, items))


def print_rows(rows: Rows) -> None:
    """Print a table. On a terminal that is too narrow the columns go that can be spared best, and long texts
    go on below. In a pipe, and with `-o wide`, nothing is left out, folded or cut.
    """
    columns, body = _fitting(*rows)
    widths = _narrowed(columns, body)
    if (here := session_or_none()) is None or not here.no_header:
        names = [column.name for column in columns]
        plain = [column._replace(paint=None) for column in columns]
        sys.stdout.write("".join(painted("bold", line) + "\n" for line in _lines(plain, names, widths)))
    for cells in body:
        sys.stdout.write("".join(line + "\n" for line in _lines(columns, cells, widths)))


def print_below(columns: Sequence[Column], items: Sequence[Any]) -> None:
    """Print a table as `print_table` does, behind an empty line; nothing where there are no items."""
    if items:
        sys.stdout.write("\n")
        print_table(columns, items)


def room_beside(columns: Sequence[Column], items: Iterable[Any]) -> int:
    """How many cells a further column has before it is folded; in a pipe more than anybody needs."""
    return max(_room(_widths(columns, _cells(columns, items))), _LEAST)


def clipped(line: str, columns: int) -> str:
    """A line of what was printed, cut to the width of a terminal."""
    from rich.cells import set_cell_size

    bold = line.startswith(_BOLD)
    text = (line.removeprefix(_BOLD).removesuffix(_PLAIN) if bold else line).expandtabs()
    fitting = text if cell_width(text) <= columns else set_cell_size(text, columns)
    return f"{_BOLD}{fitting}{_PLAIN}" if bold else fitting


_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


def folded(text: str, width: int) -> list[str]:
    """A text on lines of so many cells at most, broken between words where words are short enough."""
    from rich.cells import chop_cells

    lines = [""]
    for word in text.split(" "):
        for piece in chop_cells(word, width):
            joined = f"{lines[-1]} {piece}" if lines[-1] else piece
            if cell_width(joined) <= width:
                lines[-1] = joined
            else:
                lines.append(piece)
    return lines


def _cells(columns: Sequence[Column], items: Iterable[Any]) -> list[list[str]]:
    return [[spelled(column.text(item)) for column in columns] for item in items]


def _fitting(
    columns: Sequence[Column], body: list[list[str]]
) -> tuple[Sequence[Column], Sequence[Sequence[str]]]:
    """The columns, and their texts, without those that must go for the others to fit."""
    widths = _widths(columns, body)
    kept = list(range(len(columns)))
    while kept and _room([widths[place] for place in kept[:-1]]) < min(widths[kept[-1]], _WANTED):
        spared = max(kept, key=lambda place: columns[place].spare)
        if not columns[spared].spare:
            break
        kept.remove(spared)
    if len(kept) == len(columns):
        return columns, body
    return [columns[place] for place in kept], [[cells[place] for place in kept] for cells in body]


def _narrowed(columns: Sequence[Column], body: Sequence[Sequence[str]]) -> list[int]:
    """The widths of the columns. Where those before the last do not fit, some are less: words are folded."""
    widths = _widths(columns, body)
    for place in sorted(range(len(widths) - 1), key=lambda place: -widths[place]):
        lacking = -_room(widths[:-1])
        if lacking > 0:
            words = [word for cells in body for word in cells[place].split(" ")]
            least = max(len(columns[place].name), _LEAST, *map(len, words))
            widths[place] = min(widths[place], max(widths[place] - lacking, least))
    return widths


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    names = [column.name for column in columns]
    widths = list(map(cell_width, names))
    for cells in rows:
        for place, text in enumerate(cells):
            widths[place] = max(widths[place], cell_width(text))
    return widths


def _room(widths: Sequence[int]) -> int:
    return _width() - sum(width + _GAP for width in widths)


def _width() -> int:
    here = session_or_none()
    if not sys.stdout.isatty() or (here is not None and here.output == "wide"):
        return sys.maxsize
    return shutil.get_terminal_size().columns


def _lines(columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    """The lines of a row: one, unless a text is folded, or goes on below the others."""
    room = _room(widths[:-1])
    beside, below = _last(columns[-1], cells[-1], room)
    before = [
        folded(cell, width) if cell_width(cell) > width else [cell]
        for cell, width in zip(cells[:-1], widths[:-1], strict=True)
    ]
    for texts in zip_longest(*before, beside, fillvalue=""):
        aligned = map(_aligned, columns, texts, widths)
        yield (" " * _GAP).join(aligned).rstrip()
    for text in below:
        yield " " * 2 * _GAP + text


def _last(column: Column, text: str, room: int) -> tuple[list[str], list[str]]:
    """What of a row's last text stands beside the others, and what below them."""
    if cell_width(text) <= room:
        return [text], []
    if column.overflow == "cut":
        least = max(room, _LEAST)
        from rich.cells import set_cell_size

        return [text if cell_width(text) <= least else set_cell_size(text, least - 1) + "…"], []
    if column.overflow == "whole":
        return [""], [text]
    return (folded(text, room), []) if room >= _ENOUGH else ([""], folded(text, _width() - 2 * _GAP))


def _aligned(column: Column, text: str, width: int) -> str:
    around = " " * (width - cell_width(text))
    shown = column.paint(text) if column.paint else text
    return around + shown if column.right else shown + around
