"""Tables without lines: what a column is, and how columns share the width of a terminal.

Knows no kind of item: which columns there are stands in `columns.py`, or where the table is printed.
"""

import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from cardbox_cli.cli.escaping import flat, printable
from cardbox_cli.cli.terminal.colours import painted

NOTHING = "-"

# Spaces between columns, and what is left of the last one on a terminal that is too narrow for the others.
_GAP = 2
_LEAST = 12
# How much room lets a text be read beside other columns.
_ENOUGH = 40


class Column(NamedTuple):
    """A column of a table: its name, and the text of an item in it.

    `right`: aligned to the right, as numbers are. `extra`: shown only where `--columns` names it.
    """

    name: str
    text: Callable[[Any], str]
    right: bool = False
    extra: bool = False


def print_table(columns: Sequence[Column], items: Iterable[Any], *, whole: bool = False) -> None:
    """Print a row for each item. On a terminal the last column alone is cut to fit the width.

    Where it is the answer, `whole` lets it go on below instead. In a pipe nothing is cut.
    """
    body = _cells(columns, items)
    widths = _widths(columns, body)
    room = _room(widths[:-1])
    header = _line(columns, [column.name for column in columns], widths, room)
    sys.stdout.write(painted("bold", header) + "\n")
    for cells in body:
        sys.stdout.write(_line(columns, cells, widths, room, whole=whole) + "\n")


def print_below(columns: Sequence[Column], items: Sequence[Any], *, whole: bool = False) -> None:
    """Print a table as `print_table` does, behind an empty line; nothing where there are no items."""
    if items:
        sys.stdout.write("\n")
        print_table(columns, items, whole=whole)


def room_beside(columns: Sequence[Column], items: Iterable[Any]) -> int:
    """How many cells a further column of a table has before it is cut; in a pipe more than anybody needs."""
    return max(_room(_widths(columns, _cells(columns, items))), _LEAST)


def clipped(line: str, columns: int) -> str:
    """A line of what was printed, cut to the width of a terminal."""
    from rich.cells import cell_len, set_cell_size

    bold = line.startswith(_BOLD)
    text = (line.removeprefix(_BOLD).removesuffix(_PLAIN) if bold else line).expandtabs()
    fitting = text if cell_len(text) <= columns else set_cell_size(text, columns)
    return f"{_BOLD}{fitting}{_PLAIN}" if bold else fitting


_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


def _cells(columns: Sequence[Column], items: Iterable[Any]) -> list[list[str]]:
    return [[printable(flat(column.text(item))) for column in columns] for item in items]


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    from rich.cells import cell_len

    names = [column.name for column in columns]
    return [max(map(cell_len, column)) for column in zip(names, *rows, strict=True)]


def _room(widths: Sequence[int]) -> int:
    return _width() - sum(width + _GAP for width in widths)


def _width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize


def _line(
    columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int], room: int, *, whole: bool = False
) -> str:
    from rich.cells import cell_len, set_cell_size

    *fixed, last = (
        " " * (width - cell_len(cell)) + cell if column.right else set_cell_size(cell, width)
        for column, cell, width in zip(columns, cells, widths, strict=True)
    )
    last = last.rstrip()
    if whole and cell_len(last) > room:
        return _folded((" " * _GAP).join(fixed), last, room)
    if cell_len(last) > max(room, _LEAST):
        last = set_cell_size(last, max(room, _LEAST) - 1) + "…"
    return (" " * _GAP).join([*fixed, last]).rstrip()


def _folded(before: str, text: str, room: int) -> str:
    """A row whose last text goes on below: beside the other columns, or under them where room is little."""
    beside = room >= _ENOUGH
    indent = " " * (_width() - room if beside else 2 * _GAP)
    lead = before.ljust(len(indent)) if beside else indent
    text = textwrap.fill(text, _width(), initial_indent=lead, subsequent_indent=indent)
    return text if beside else f"{before.rstrip()}\n{text}"
