"""Tables without lines: choose columns and order, and divide a terminal's width among the columns.

The columns are defined in `list_columns.py`, or in the module that prints the table.
"""

import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, Literal, NamedTuple

from cardbox_cli.cli.session import session, session_or_none
from cardbox_cli.errors import UsageError
from cardbox_cli.settings import NO_COLOR, TERM
from cardbox_cli.text.error_messages import conflict_message, did_you_mean, invalid_message
from cardbox_cli.text.escaping import escape_line

NOTHING = "-"


def text_or_nothing(value: object) -> str:
    """Return the text of a value, or a dash for None."""
    return NOTHING if value is None else str(value)


# The number of spaces between columns, and the minimum width of a text that is cut or folded.
_GAP = 2
_MIN_TEXT = 12
# The minimum width of the last text before another column is dropped.
_MIN_LAST_TEXT = 24
# The minimum width to fold a text next to other columns.
_MIN_FOLD = 40


class Column(NamedTuple):
    """A column of a table: its name, and the text of an item in it.

    `right` aligns numbers to the right. `extra` columns need `--columns` or `-o wide`. On a narrow terminal,
    the column with the highest `spare` is dropped first; a column with 0 is never dropped. `overflow` is the
    treatment of a long text at the end of a row: fold it, cut it, or print it whole so that it can be copied.
    Sorting compares `key`. `paint` colours the text. `raw` is the value in CSV and TSV. The default of `key`
    and `raw` is the text.
    """

    name: str
    text: Callable[[Any], str]
    right: bool = False
    extra: bool = False
    spare: int = 0
    overflow: Literal["fold", "cut", "whole"] = "fold"
    key: Callable[[Any], Any] | None = None
    paint: Callable[[str], str] | None = None
    raw: Callable[[Any], Any] | None = None


class Rows(NamedTuple):
    columns: Sequence[Column]
    cells: list[list[str]]


def rows_of(columns: Sequence[Column], items: Iterable[Any]) -> Rows:
    return Rows(columns, _cells(columns, items))


def print_table(columns: Sequence[Column], items: Iterable[Any]) -> None:
    print_rows(rows_of(columns, items))


def print_rows(rows: Rows) -> None:
    """Print a table. It is fitted to the terminal's width, except in a pipe and with `-o wide`."""
    columns, body = _drop_columns(*rows)
    widths = _narrow_columns(columns, body)
    if (here := session_or_none()) is None or not here.no_header:
        names = [column.name for column in columns]
        plain = [column._replace(paint=None) for column in columns]
        sys.stdout.write("".join(paint("bold", line) + "\n" for line in _lines(plain, names, widths)))
    for cells in body:
        sys.stdout.write("".join(line + "\n" for line in _lines(columns, cells, widths)))


def print_below(columns: Sequence[Column], items: Sequence[Any]) -> None:
    """Print an empty line and a table. Print nothing without items."""
    if items:
        sys.stdout.write("\n")
        print_table(columns, items)


def room_beside(columns: Sequence[Column], items: Iterable[Any]) -> int:
    """Return the number of cells left for a further column. In a pipe, it is very large."""
    return max(_room(_widths(columns, _cells(columns, items))), _MIN_TEXT)


def clip_line(line: str, columns: int) -> str:
    from rich.cells import set_cell_size

    bold = line.startswith(_BOLD)
    text = (line.removeprefix(_BOLD).removesuffix(_PLAIN) if bold else line).expandtabs()
    fitting = text if cell_width(text) <= columns else set_cell_size(text, columns)
    return f"{_BOLD}{fitting}{_PLAIN}" if bold else fitting


_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


def fold_text(text: str, width: int) -> list[str]:
    """Fold a text into lines of at most `width` cells, between words if they are short enough."""
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


def fold_to_terminal(text: str) -> str:
    """Fold a text between words at the terminal's width. In a pipe it stays one line."""
    width = _width()
    return text if cell_width(text) <= width else "\n".join(fold_text(text, width))


def _cells(columns: Sequence[Column], items: Iterable[Any]) -> list[list[str]]:
    return [[escape_line(column.text(item)) for column in columns] for item in items]


def _drop_columns(
    columns: Sequence[Column], body: list[list[str]]
) -> tuple[Sequence[Column], Sequence[Sequence[str]]]:
    widths = _widths(columns, body)
    places = list(range(len(columns)))
    while places:
        *before, last = places
        if _room([widths[place] for place in before]) >= min(widths[last], _MIN_LAST_TEXT):
            break
        spared = max(places, key=lambda place: columns[place].spare)
        if not columns[spared].spare:
            break
        places.remove(spared)
    if len(places) == len(columns):
        return columns, body
    return [columns[place] for place in places], [[cells[place] for place in places] for cells in body]


def _narrow_columns(columns: Sequence[Column], body: Sequence[Sequence[str]]) -> list[int]:
    """Return the widths of the columns. Some are narrowed if the columns before the last one do not fit."""
    widths = _widths(columns, body)
    for place in sorted(range(len(widths) - 1), key=lambda place: -widths[place]):
        lacking = -_room(widths[:-1])
        if lacking > 0:
            words = [word for cells in body for word in cells[place].split(" ")]
            least = max(len(columns[place].name), _MIN_TEXT, *map(len, words))
            widths[place] = min(widths[place], max(widths[place] - lacking, least))
    return widths


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    names = [column.name for column in columns]
    return [max(map(cell_width, texts)) for texts in zip(names, *rows, strict=True)]


def _room(widths: Sequence[int]) -> int:
    return _width() - sum(width + _GAP for width in widths)


def _width() -> int:
    here = session_or_none()
    if not sys.stdout.isatty() or (here is not None and here.output == "wide"):
        return sys.maxsize
    return shutil.get_terminal_size().columns


def _lines(columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    """Yield the lines of a row. There is one line, unless a text is folded or continues below."""
    room = _room(widths[:-1])
    beside, below = _last(columns[-1], cells[-1], room)
    before = [
        fold_text(cell, width) if cell_width(cell) > width else [cell]
        for cell, width in zip(cells[:-1], widths[:-1], strict=True)
    ]
    for texts in zip_longest(*before, beside, fillvalue=""):
        aligned = map(_align, columns, texts, widths)
        yield (" " * _GAP).join(aligned).rstrip()
    for text in below:
        yield " " * 2 * _GAP + text


def _last(column: Column, text: str, room: int) -> tuple[list[str], list[str]]:
    """Split a row's last text into the lines next to the other columns and the lines below them."""
    if cell_width(text) <= room:
        return [text], []
    if column.overflow == "cut":
        least = max(room, _MIN_TEXT)
        from rich.cells import set_cell_size

        return [text if cell_width(text) <= least else set_cell_size(text, least - 1) + "…"], []
    if column.overflow == "whole":
        return [""], [text]
    return (fold_text(text, room), []) if room >= _MIN_FOLD else ([""], fold_text(text, _width() - 2 * _GAP))


def _align(column: Column, text: str, width: int) -> str:
    padding = " " * (width - cell_width(text))
    painted = column.paint(text) if column.paint else text
    return padding + painted if column.right else painted + padding


# --- the order of --sort


_NUMBER = re.compile(r"(\d+)")


class Order(NamedTuple):
    column: Column
    descending: bool

    def sorted(self, items: Iterable[Any]) -> list[Any]:
        """Return the items in this order. The sort is stable, and items without a key are last."""
        keyed = [(_key(self.column, item), item) for item in items]
        known = [(key, item) for key, item in keyed if key is not None]
        known.sort(key=lambda pair: pair[0], reverse=self.descending)
        return [item for _, item in known] + [item for key, item in keyed if key is None]


def _key(column: Column, item: Any) -> Any:
    if column.key is not None:
        return column.key(item)
    text = column.text(item)
    return None if text == NOTHING else _natural(text)


def _natural(text: str) -> list[str | int]:
    """Return a sort key: case-folded text, with every second part a number."""
    pieces = _NUMBER.split(text.casefold())
    return [int(piece) if place % 2 else piece for place, piece in enumerate(pieces)]


# --- the chosen columns and order


Columns = Sequence[Column]


class Shown(NamedTuple):
    """The columns of a list to show, and the order of its items if one was requested."""

    columns: Columns
    order: Order | None = None

    def arranged(self, items: Iterable[Any]) -> Iterable[Any]:
        return items if self.order is None else self.order.sorted(items)

    def replace_texts(self, **texts: Callable[[Any], str]) -> "Shown":
        return self._replace(
            columns=[column._replace(text=texts.get(column.name, column.text)) for column in self.columns]
        )


def choose_columns(columns: Columns, given: str | None) -> Shown:
    """Return the columns of `--columns`, else the config file's, else the format's. Raises UsageError."""
    here = session()
    if given is not None and not here.format.has_columns:
        raise UsageError(
            conflict_message("--columns", f"-o {here.output}"),
            hint="select keys of -o json with jq, or print only ids with -o id",
        )
    return Shown(_choose(columns, given), _order(columns, here.sort))


def _choose(columns: Columns, given: str | None) -> Columns:
    if given is not None:
        return _find_columns(columns, given, "--columns")
    if session().format.shows_all:
        return columns
    if (configured := session().configured_columns()) is not None:
        return _find_columns(columns, configured.value, configured.place)
    return [column for column in columns if not column.extra]


def _find_columns(columns: Columns, names: str, place: str) -> Columns:
    # Columns that are requested are never dropped.
    return [_find_column(columns, name, place)._replace(spare=0) for name in names.split(",")]


def _order(columns: Columns, given: str | None) -> Order | None:
    if given is None:
        return None
    name, _, direction = given.partition(":")
    if direction not in ("", "asc", "desc"):
        raise UsageError(
            f"--sort: {invalid_message('order', direction)}", hint=f"use {name}:asc or {name}:desc"
        )
    return Order(_find_column(columns, name, "--sort"), direction == "desc")


def _find_column(columns: Columns, given: str, place: str) -> Column:
    known = {_plain(column.name): column for column in columns}
    if _plain(given) not in known:
        names = [name.replace(" ", "-") for name in known]
        guess = did_you_mean(_plain(given).replace(" ", "-"), names)
        raise UsageError(
            f"{place}: unknown column {given.strip()!r}{guess}", hint=f"columns are {', '.join(names)}"
        )
    return known[_plain(given)]


def pick_columns(columns: Columns, *names: str) -> Columns:
    known = {column.name: column for column in columns}
    return [known[name] for name in names]


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", " ").replace("_", " ")


# --- colours, and widths in cells

_CODES = {"bold": 1, "red": 31, "green": 32, "cyan": 36}


def uses_colours() -> bool:
    """Return whether to use colours: by --color, or by default on terminals that support them."""
    here = session_or_none()
    if here is not None and here.color != "auto":
        return here.color == "always"
    return sys.stdout.isatty() and not NO_COLOR.text() and TERM.text() != "dumb"


def paint(colour: str, text: str) -> str:
    """Return `text` in a colour (red, green, cyan, bold, or "" for none) if colours are used."""
    if not colour or not uses_colours():
        return text
    # Colour each line, because pagers reset the colour at the end of a line.
    return "\n".join(f"\x1b[{_CODES[colour]}m{line}\x1b[0m" if line else "" for line in text.split("\n"))


def cell_width(text: str) -> int:
    """Return the cells of a text without control characters. A wide character has 2, a combining one 0."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
