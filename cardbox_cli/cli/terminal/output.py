"""All rendering: the answer of a command as a table, JSON, JSON lines, YAML or bare ids, on stdout.

Commands hand over values; how they look is decided here, and in `table_layout.py`. On a terminal nothing in
the data can act on it; in a pipe the bytes are the data's own.
"""

import csv
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal.table_layout import NOTHING, Columns, Shown, coloured, painted, print_table
from cardbox_cli.errors import InvalidInput
from cardbox_cli.model import exact_json
from cardbox_cli.text import breaks_line, flat, json_safe, printable

if TYPE_CHECKING:
    from cardbox_cli.model.diff import Piece

# The keys and values of an object. A value that is an iterator is a list, read as it is written.
Members = Iterable[tuple[str, Any]]


def emit(value: Any, *, table: Callable[[], None], ids: Sequence[str] = ()) -> None:
    """Print one answer: `value` for programs, what `table` prints for people, `ids` for the next command."""
    match session().output:
        case "table" | "wide":
            table()
        case "json":
            write(pretty(value))
        case "jsonl":
            write(compact(value))
        case "yaml":
            write(_yaml(value), end="")
        case "id":
            for item in ids:
                write_id(item)


def emit_list(items: Iterable[Any], *, columns: Shown, item_id: Callable[[Any], str], empty: str) -> None:
    """Print a list, item by item where the format allows. `empty` goes to stderr when a table has no rows."""
    arranged = columns.arranged(items)
    if session().format.delimiter is not None:
        write_rows(columns.columns, arranged)
        return

    def table() -> None:
        rows = list(arranged)
        if rows:
            print_table(columns.columns, rows)
        else:
            announce(empty)

    emit_items(arranged, table=table, item_id=item_id)


def emit_items(items: Iterable[Any], *, table: Callable[[], None], item_id: Callable[[Any], str]) -> None:
    """Print a list as `emit_list` does, with what `table` prints for people."""
    match session().output:
        case "table" | "wide":
            table()
        case "json":
            _write_array(items)
        case "jsonl":
            for item in items:
                write(compact(item))
        case "yaml":
            write(_yaml(list(items)), end="")
        case "id":
            for item in items:
                write_id(item_id(item))


def write_rows(columns: Columns, items: Iterable[Any]) -> None:
    """Write a row of values for each item, for `-o csv` and `-o tsv`: empty where there is nothing."""
    rows = csv.writer(_Answer(), delimiter=session().format.delimiter or ",", lineterminator="\n")
    if not session().no_header:
        rows.writerow([column.name.lower().replace(" ", "_") for column in columns])
    for item in items:
        texts = (column.text(item) for column in columns)
        rows.writerow(["" if text == NOTHING else text for text in texts])


class _Answer:
    """Where rows are written to."""

    def write(self, text: str) -> None:
        """As `write` does, which makes texts harmless on a terminal."""
        write(text, end="")


def emit_document(value: Any) -> None:
    """Print an answer that is JSON even where people read it, such as a request body."""
    match session().output:
        case "jsonl":
            write(compact(value))
        case "yaml":
            write(_yaml(value), end="")
        case _:
            write(pretty(value))


def emit_members(members: Members) -> None:
    """`emit_document` of an object whose lists may be too long to hold."""
    match session().output:
        case "jsonl":
            write_pieces(compact_pieces(members))
        case "yaml":
            write(_yaml(whole(members)), end="")
        case _:
            write_pieces(pretty_pieces(members))


def _write_array(items: Iterable[Any]) -> None:
    lead = "["
    for item in items:
        write(lead + "\n  " + deeper(pretty(item)), end="")
        lead = ","
    write("[]" if lead == "[" else "\n]")


def write(text: str, *, end: str = "\n") -> None:
    """Write data: as it is in a pipe, JSON-escaped where it could act on a terminal."""
    sys.stdout.write((json_safe(text) if sys.stdout.isatty() else text) + end)


def write_id(text: str) -> None:
    """Write an id for the next command. Raises InvalidInput for one that would be read as two."""
    if session().null:
        write(text, end="\0")
    else:
        write(on_a_line(text))


def on_a_line(text: str) -> str:
    """An id that a line can be. Raises InvalidInput for one that breaks it."""
    if breaks_line(text):
        hint = "-o json prints it whole, and -o id -0 ends each id by NUL"
        raise InvalidInput(f"the id {text[:80]!r} does not fit on a line", hint=hint)
    return text


def write_pieces(pieces: Iterable[str]) -> None:
    """`write` a text that is too long to hold, piece by piece."""
    for piece in pieces:
        write(piece, end="")
    write("")


def print_text(text: str = "") -> None:
    """Print text for people to read, with nothing in it that could act on a terminal."""
    sys.stdout.write(printable(text) + "\n")


def print_lines(lines: Iterable[str]) -> None:
    """Print texts as `print_text` does, a line each."""
    for line in lines:
        print_text(line)


def print_painted(pieces: Iterable[tuple[str, str]]) -> None:
    """Print text as `print_text` does, in pieces of a colour, as of `painted`, and a text."""
    shown = "".join(painted(colour, printable(text)) for colour, text in pieces)
    sys.stdout.write(shown + "\n")


def facts(*pairs: tuple[str, str | None]) -> None:
    """Print name and value, a line each, further lines of a value under its first; None is skipped."""
    shown = [(flat(name), value) for name, value in pairs if value is not None]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        first, *others = value.rstrip("\n").split("\n")
        print_text(f"{name.ljust(width)}  {first}")
        for line in others:
            print_text(f"{'':{width}}  {line}" if line else "")


# --- JSON, in chunks if it is too long to hold, and YAML

# So many bytes of a list are formatted together, or one item of it that has more.
_AT_ONCE = 64 * 1024


def pretty(value: Any) -> str:
    """A value as people read it."""
    return _formatted(exact_json.encode(value))


def compact(value: Any) -> str:
    """A value on one line."""
    return exact_json.encode(value).decode()


def pretty_pieces(members: Members) -> Iterator[str]:
    """`pretty` of an object."""
    lead = "{"
    for name, value in members:
        yield f"{lead}\n  {compact(name)}: "
        if isinstance(value, Iterator):
            yield from map(deeper, _pretty_list(value))
        else:
            yield deeper(pretty(value))
        lead = ","
    yield "{}" if lead == "{" else "\n}"


def compact_pieces(members: Members) -> Iterator[str]:
    """`compact` of an object."""
    lead = "{"
    for name, value in members:
        yield f"{lead}{compact(name)}:"
        if isinstance(value, Iterator):
            yield from _compact_list(value)
        else:
            yield compact(value)
        lead = ","
    yield "{}" if lead == "{" else "}"


def whole(members: Members) -> dict[str, Any]:
    """The object, held."""
    return {name: list(value) if isinstance(value, Iterator) else value for name, value in members}


def _pretty_list(items: Iterator[Any]) -> Iterator[str]:
    lead = "["
    for chunk in _chunks(items):
        yield lead + _formatted(chunk)[1:-2]
        lead = ","
    yield "[]" if lead == "[" else "\n]"


def _compact_list(items: Iterator[Any]) -> Iterator[str]:
    lead = "["
    for chunk in _chunks(items):
        yield lead + chunk.decode()[1:-1]
        lead = ","
    yield "[]" if lead == "[" else "]"


def _chunks(items: Iterator[Any]) -> Iterator[bytes]:
    """The items in JSON lists, none of which is empty, nor much longer than it must be."""
    held: list[bytes] = []
    size = 0
    for item in map(exact_json.encode, items):
        held.append(item)
        size += len(item)
        if size >= _AT_ONCE:
            yield b"[" + b",".join(held) + b"]"
            held, size = [], 0
    if held:
        yield b"[" + b",".join(held) + b"]"


def _formatted(text: bytes) -> str:
    return msgspec.json.format(text, indent=2).decode()


def deeper(text: str) -> str:
    """JSON text as it stands within an object or a list; no string in it has a line break."""
    return text.replace("\n", "\n  ")


_YAML_TEXT = "tag:yaml.org,2002:str"
_JSON_EXPONENT = re.compile(r"-?[0-9]+(\.[0-9]+)?[eE][-+]?[0-9]+")


def _yaml(value: Any) -> str:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Numbers that no float can represent are written as they are."""

    # Without quotes, or in single ones, U+0085 is a line break, and comes back as a space.
    Dumper.add_representer(
        str,
        lambda dumper, text: dumper.represent_scalar(_YAML_TEXT, text, style='"' if "\x85" in text else None),
    )
    Dumper.add_representer(
        Decimal, lambda dumper, number: dumper.represent_scalar("tag:yaml.org,2002:float", str(number))
    )
    # Texts that readers of JSON's numbers take for one, though YAML 1.1 does not, are quoted.
    Dumper.add_implicit_resolver("tag:yaml.org,2002:float", _JSON_EXPONENT, list("-0123456789"))
    plain = exact_json.decode(exact_json.encode(value))
    try:
        return yaml.dump(plain, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100)
    except RecursionError:
        raise InvalidInput("the answer is nested too deeply for YAML", hint="-o json prints it") from None


# --- two texts compared word by word, in colours or in the marks of git's `--word-diff`

INDENT = "    "


def compared(before: str, after: str, *, full: bool = False) -> list[tuple[str, str]]:
    """What differs between two texts, as painted pieces; with `full` what is far from any change, too."""
    from cardbox_cli.model.diff import abridged, text_diff

    pieces = text_diff(before, after)
    return [("", INDENT), *(_painted(piece) for piece in (pieces if full else abridged(pieces)))]


def indented(text: str) -> str:
    """A text below the line that it belongs to."""
    return INDENT + text.replace("\n", f"\n{INDENT}")


def _painted(piece: "Piece") -> tuple[str, str]:
    text = indented(piece.text)[len(INDENT) :]
    if piece.kind == "same":
        return "", text
    removed = piece.kind == "removed"
    if coloured():
        return ("red" if removed else "green"), text
    return "", f"[-{text}-]" if removed else f"{{+{text}+}}"
