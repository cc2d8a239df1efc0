"""All rendering: the answer of a command as a table, JSON, JSON lines, YAML or bare ids, on stdout.

Commands hand over values; how they look is decided here. On a terminal nothing in the data can act on it;
in a pipe the bytes are the data's own. Tables have no colour in a pipe, and are never cut there.
"""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from cardbox_cli.cli.session import announce, session
from cardbox_cli.cli.terminal import flat, json_safe, printable
from cardbox_cli.model import exact_json

if TYPE_CHECKING:
    from rich.console import Console

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
    match session().output:
        case "table":
            rows = [row(item) for item in items]
            if rows:
                print_table(columns, rows)
            else:
                announce(empty)
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


def say(text: str = "") -> None:
    """Print text for people to read, with nothing in it that could act on a terminal."""
    sys.stdout.write(printable(text) + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Row]) -> None:
    """A table without lines, each row on one. On a terminal the last column alone is cut to fit the width.

    Coloured on a terminal unless NO_COLOR or TERM=dumb forbid it; in a pipe without colour and never cut.
    """
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    body = [[printable(flat(cell)) for cell in row] for row in rows]
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for name in columns:
        table.add_column(name, no_wrap=name != columns[-1], justify="right" if name in _NUMERIC else "left")
    for cells in body:
        table.add_row(*(Text(cell, no_wrap=True, overflow="ellipsis") for cell in cells))
    uncut = [max(map(cell_len, column)) + _GAP for column in zip(columns, *body, strict=True)][:-1]
    console = _console()
    console.width = max(console.width, sum(uncut) + _LEAST)
    with console.capture() as captured:
        console.print(table)
    lines = captured.get().split("\n")
    sys.stdout.write("\n".join(line.rstrip() for line in lines))


_NUMERIC = frozenset({"#", "CARDS", "NEW", "SIZE", "TOKENS", "CHARS", "AGE"})
# Spaces between columns, and what is left of the last one on a terminal that is too narrow for the others.
_GAP = 2
_LEAST = 12


def _console() -> "Console":
    from rich.console import Console

    terminal = sys.stdout.isatty()
    plain = not terminal or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return Console(
        file=sys.stdout,
        width=None if terminal else 100_000,
        no_color=plain,
        force_terminal=terminal and not plain,
        highlight=False,
        markup=False,
        emoji=False,
    )


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


def _yaml(value: Any) -> str:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Numbers that no float can spell are written as they are."""

    Dumper.add_representer(
        Decimal, lambda dumper, number: dumper.represent_scalar("tag:yaml.org,2002:float", str(number))
    )
    plain = exact_json.decode(exact_json.encode(value))
    return yaml.dump(plain, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100)
