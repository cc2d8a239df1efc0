"""All rendering: the answer of a command as a table, JSON, JSON lines, YAML or bare ids, on stdout.

Commands hand over values; how they look is decided here. On a terminal nothing in the data can act on it;
in a pipe the bytes are the data's own. Tables have no colour in a pipe, and are never cut there.
"""

import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from cardbox_cli.cli.session import announce, session
from cardbox_cli.cli.terminal.escaping import flat, json_safe, printable
from cardbox_cli.model import exact_json
from cardbox_cli.settings import NO_COLOR, TERM

Row = Sequence[str]


def emit(value: Any, *, table: Callable[[], None], ids: Sequence[str] = ()) -> None:
    """Print one answer: `value` for programs, what `table` prints for people, `ids` for the next command."""
    match session().output:
        case "table":
            table()
        case "json":
            write(_pretty(value))
        case "jsonl":
            write(exact_json.encode(value).decode())
        case "yaml":
            write(_yaml(value), end="")
        case "id":
            for item in ids:
                write(item)


def emit_list(
    items: Iterable[Any],
    *,
    columns: Sequence[str],
    row: Callable[[Any], Row],
    item_id: Callable[[Any], str],
    empty: str,
) -> None:
    """Print a list, item by item where the format allows. `empty` goes to stderr when a table has no rows."""

    def table() -> None:
        rows = [row(item) for item in items]
        if rows:
            print_table(columns, rows)
        else:
            announce(empty)

    emit_items(items, table=table, item_id=item_id)


def emit_items(items: Iterable[Any], *, table: Callable[[], None], item_id: Callable[[Any], str]) -> None:
    """Print a list as `emit_list` does, with what `table` prints for people."""
    match session().output:
        case "table":
            table()
        case "json":
            _write_array(items)
        case "jsonl":
            for item in items:
                write(exact_json.encode(item).decode())
        case "yaml":
            write(_yaml(list(items)), end="")
        case "id":
            for item in items:
                write(item_id(item))


def emit_document(value: Any) -> None:
    """Print an answer that is JSON even where people read it, such as a request body."""
    match session().output:
        case "jsonl":
            write(exact_json.encode(value).decode())
        case "yaml":
            write(_yaml(value), end="")
        case _:
            write(_pretty(value))


def _write_array(items: Iterable[Any]) -> None:
    lead = "["
    for item in items:
        write(lead + "\n" + _indented(_pretty(item)), end="")
        lead = ","
    write("[]" if lead == "[" else "\n]")


def _indented(text: str) -> str:
    return "\n".join("  " + line for line in text.split("\n"))


def write(text: str, *, end: str = "\n") -> None:
    """Write data: as it is in a pipe, JSON-escaped where it could act on a terminal."""
    sys.stdout.write((json_safe(text) if sys.stdout.isatty() else text) + end)


def write_pieces(pieces: Iterable[str]) -> None:
    """`write` a text that is too long to hold, piece by piece."""
    for piece in pieces:
        write(piece, end="")
    write("")


def say(text: str = "") -> None:
    """Print text for people to read, with nothing in it that could act on a terminal."""
    sys.stdout.write(printable(text) + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Row], *, whole: bool = False) -> None:
    """A table without lines, each row on one. On a terminal the last column alone is cut to fit the width.

    Where it is the answer, `whole` lets it go on below instead. The header is bold on a terminal unless
    NO_COLOR or TERM=dumb forbid it; in a pipe nothing is cut.
    """
    from rich.cells import cell_len, set_cell_size

    body = [[printable(flat(cell)) for cell in row] for row in rows]
    widths = _widths(columns, body)
    room = _room(widths[:-1])

    def line(cells: Row, *, whole: bool = False) -> str:
        *fixed, last = (
            set_cell_size(cell, width) if name not in _NUMERIC else " " * (width - cell_len(cell)) + cell
            for name, cell, width in zip(columns, cells, widths, strict=True)
        )
        last = last.rstrip()
        if whole and cell_len(last) > room:
            return _folded((" " * _GAP).join(fixed), last, room)
        if cell_len(last) > max(room, _LEAST):
            last = set_cell_size(last, max(room, _LEAST) - 1) + "…"
        return (" " * _GAP).join([*fixed, last]).rstrip()

    header = line(columns)
    sys.stdout.write(f"{_BOLD}{header}{_PLAIN}\n" if coloured() else f"{header}\n")
    for cells in body:
        sys.stdout.write(line(cells, whole=whole) + "\n")


def _folded(before: str, text: str, room: int) -> str:
    """A row whose last text goes on below: beside the other columns, or under them where room is little."""
    beside = room >= _ENOUGH
    indent = " " * (_width() - room if beside else 2 * _GAP)
    lead = before.ljust(len(indent)) if beside else indent
    text = textwrap.fill(text, _width(), initial_indent=lead, subsequent_indent=indent)
    return text if beside else f"{before.rstrip()}\n{text}"


def room_beside(columns: Sequence[str], rows: Sequence[Row]) -> int:
    """How many cells a further column of a table has before it is cut; in a pipe more than anybody needs."""
    return max(_room(_widths(columns, rows)), _LEAST)


def _widths(columns: Sequence[str], rows: Sequence[Row]) -> list[int]:
    from rich.cells import cell_len

    return [max(map(cell_len, column)) for column in zip(columns, *rows, strict=True)]


def _room(widths: Sequence[int]) -> int:
    return _width() - sum(width + _GAP for width in widths)


_NUMERIC = frozenset(
    {"#", "CARDS", "NEW", "SIZE", "TOKENS", "CHARS", "AGE", "TOOK", "EPOCH", "TRIES", "DEPTH", "ROWS"}
    | {"INDEXES", "DANGLING", "MESSAGES", "SHARE", "AT"}
)
# Spaces between columns, and what is left of the last one on a terminal that is too narrow for the others.
_GAP = 2
_LEAST = 12
# How much room lets a text be read beside other columns.
_ENOUGH = 40


_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


def clipped(line: str, columns: int) -> str:
    """A line of what was printed here, cut to the width of a terminal."""
    from rich.cells import cell_len, set_cell_size

    bold = line.startswith(_BOLD)
    text = (line.removeprefix(_BOLD).removesuffix(_PLAIN) if bold else line).expandtabs()
    fitting = text if cell_len(text) <= columns else set_cell_size(text, columns)
    return f"{_BOLD}{fitting}{_PLAIN}" if bold else fitting


def _width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize


def say_painted(pieces: Iterable[tuple[str, str]]) -> None:
    """Print text as `say` does, in pieces of a colour (red, green, cyan, bold, or "" for none) and a text."""
    shown = "".join(_painted(colour, printable(text)) for colour, text in pieces)
    sys.stdout.write(shown + "\n")


def _painted(colour: str, text: str) -> str:
    if not colour or not coloured():
        return text
    # Line by line: a pager forgets the colour at the end of one.
    return "\n".join(f"\x1b[{_PAINTS[colour]}m{line}\x1b[0m" if line else "" for line in text.split("\n"))


_PAINTS = {"bold": 1, "red": 31, "green": 32, "cyan": 36}


def coloured() -> bool:
    """Whether colours are shown here."""
    return sys.stdout.isatty() and not NO_COLOR.text() and TERM.text() != "dumb"


def facts(pairs: Iterable[tuple[str, str | None]]) -> None:
    """Print name and value, a line each, further lines of a value under its first; None is skipped."""
    shown = [(name, value) for name, value in pairs if value is not None]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        first, *others = value.rstrip("\n").split("\n")
        say(f"{name.ljust(width)}  {first}")
        for line in others:
            say(f"{'':{width}}  {line}" if line else "")


def _pretty(value: Any) -> str:
    return msgspec.json.format(exact_json.encode(value).decode(), indent=2)


_JSON_EXPONENT = re.compile(r"-?[0-9]+(\.[0-9]+)?[eE][-+]?[0-9]+")


def _yaml(value: Any) -> str:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Numbers that no float can spell are written as they are."""

    Dumper.add_representer(
        Decimal, lambda dumper, number: dumper.represent_scalar("tag:yaml.org,2002:float", str(number))
    )
    # Texts that readers of JSON's numbers take for one, though YAML 1.1 does not, are quoted.
    Dumper.add_implicit_resolver("tag:yaml.org,2002:float", _JSON_EXPONENT, list("-0123456789"))
    plain = exact_json.decode(exact_json.encode(value))
    return yaml.dump(plain, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100)
