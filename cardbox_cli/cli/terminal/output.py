"""Prints the answer of a command on stdout: a table, JSON, JSON lines, YAML, CSV, TSV or ids.

Commands pass values, which this module and `table_layout.py` format. Control characters are escaped on a
terminal. In a pipe, the data is unchanged.
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
from cardbox_cli.cli.terminal.table_layout import (
    NOTHING,
    Column,
    Columns,
    Shown,
    paint,
    print_table,
    uses_colours,
)
from cardbox_cli.errors import InvalidInput
from cardbox_cli.model import exact_json
from cardbox_cli.text.escaping import breaks_line, escape_invisible, escape_json, flatten

if TYPE_CHECKING:
    from cardbox_cli.model.diff import TextPart

# The keys and values of an object. A value that is an iterator is written as a list while it is read.
Members = Iterable[tuple[str, Any]]


def emit(value: Any, *, table: Callable[[], None], ids: Sequence[str] = ()) -> None:
    """Print one answer: `value` for programs, `table` for people, or `ids` for the next command."""
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
    """Print a list, item by item if the format allows. If a table has no rows, print `empty` on stderr."""
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
    """Print a list as `emit_list` does. For people, call `table`."""
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
    rows = csv.writer(_Answer(), delimiter=session().format.delimiter or ",", lineterminator="\n")
    if not session().no_header:
        rows.writerow([column.name.lower().replace(" ", "_") for column in columns])
    for item in items:
        rows.writerow([_plain_value(column, item) for column in columns])


def _plain_value(column: Column, item: Any) -> Any:
    """Return the value of a cell for programs: a plain number, an RFC 3339 time, an uncut text, or ""."""
    value = column.raw(item) if column.raw is not None else column.text(item)
    if value is None or value == NOTHING:
        return ""
    return _TIME.sub(r"\1T\2", value) if isinstance(value, str) and column.raw is None else value


# An instant as `format_time` writes it.
_TIME = re.compile(r"^(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\dZ)$")


class _Answer:
    def write(self, text: str) -> None:
        write(text, end="")


def emit_document(value: Any) -> None:
    """Print an answer that is JSON even for people, for example a request body."""
    match session().output:
        case "jsonl":
            write(compact(value))
        case "yaml":
            write(_yaml(value), end="")
        case _:
            write(pretty(value))


def emit_members(members: Members) -> None:
    """Print an object as `emit_document` does. Its lists may be too long for memory."""
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
        write(lead + "\n  " + _indent_once(pretty(item)), end="")
        lead = ","
    write("[]" if lead == "[" else "\n]")


def write(text: str, *, end: str = "\n") -> None:
    """Write data: unchanged in a pipe, JSON-escaped on a terminal."""
    sys.stdout.write((escape_json(text) if sys.stdout.isatty() else text) + end)


def write_id(text: str) -> None:
    """Write an id for the next command. Raises InvalidInput for an id with a line break."""
    if session().null:
        write(text, end="\0")
    else:
        write(require_one_line(text))


def require_one_line(text: str) -> str:
    """Return the id. Raises InvalidInput if it contains a line break."""
    if breaks_line(text):
        hint = "use -o json, or -o id -0, which ends each id with NUL"
        raise InvalidInput(f"the id {text[:80]!r} contains a line break", hint=hint)
    return text


def write_pieces(pieces: Iterable[str]) -> None:
    for piece in pieces:
        write(piece, end="")
    write("")


def print_text(text: str = "") -> None:
    """Print text for people, without control characters."""
    sys.stdout.write(escape_invisible(text) + "\n")


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print_text(line)


def print_painted(pieces: Iterable[tuple[str, str]]) -> None:
    """Print parts of a text, each with a colour as in `paint`, without control characters."""
    text_line = "".join(paint(colour, escape_invisible(text)) for colour, text in pieces)
    sys.stdout.write(text_line + "\n")


def facts(*pairs: tuple[str, str | None]) -> None:
    """Print a line per name and value. Further lines of a value are indented. None values are skipped."""
    present = [(flatten(name), value) for name, value in pairs if value is not None]
    width = max((len(name) for name, _ in present), default=0)
    for name, value in present:
        first, *others = value.rstrip("\n").split("\n")
        print_text(f"{name.ljust(width)}  {first}")
        for line in others:
            print_text(f"{'':{width}}  {line}" if line else "")


# --- JSON, in chunks if it is too long to hold, and YAML

# Bytes of a list that are formatted together.
_CHUNK_BYTES = 64 * 1024


def pretty(value: Any) -> str:
    return _format_json(exact_json.encode(value))


def compact(value: Any) -> str:
    return exact_json.encode(value).decode()


def pretty_pieces(members: Members) -> Iterator[str]:
    lead = "{"
    for name, value in members:
        yield f"{lead}\n  {compact(name)}: "
        yield from map(
            _indent_once,
            _list_pieces(value, _format_json) if isinstance(value, Iterator) else [pretty(value)],
        )
        lead = ","
    yield "{}" if lead == "{" else "\n}"


def compact_pieces(members: Members) -> Iterator[str]:
    lead = "{"
    for name, value in members:
        yield f"{lead}{compact(name)}:"
        yield from _list_pieces(value, bytes.decode) if isinstance(value, Iterator) else [compact(value)]
        lead = ","
    yield "{}" if lead == "{" else "}"


def whole(members: Members) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, Iterator) else value for name, value in members}


def _list_pieces(items: Iterator[Any], text: Callable[[bytes], str]) -> Iterator[str]:
    lead, end = "[", "[]"
    for chunk in map(text, _chunks(items)):
        end = "\n]" if chunk.endswith("\n]") else "]"
        yield lead + chunk[1:].removesuffix(end)
        lead = ","
    yield end


def _chunks(items: Iterator[Any]) -> Iterator[bytes]:
    """Yield the items in JSON lists of about `_CHUNK_BYTES`."""
    encoded: list[bytes] = []
    size = 0
    for item in map(exact_json.encode, items):
        encoded.append(item)
        size += len(item)
        if size >= _CHUNK_BYTES:
            yield b"[" + b",".join(encoded) + b"]"
            encoded, size = [], 0
    if encoded:
        yield b"[" + b",".join(encoded) + b"]"


def _format_json(text: bytes) -> str:
    return msgspec.json.format(text, indent=2).decode()


def _indent_once(text: str) -> str:
    return text.replace("\n", "\n  ")


_YAML_TEXT = "tag:yaml.org,2002:str"
_JSON_EXPONENT = re.compile(r"-?[0-9]+(\.[0-9]+)?[eE][-+]?[0-9]+")


def _yaml(value: Any) -> str:
    import yaml

    class Dumper(yaml.SafeDumper):
        """A dumper that writes numbers unchanged even if no float can represent them."""

    # Without double quotes, U+0085 is a line break, which a reader turns into a space.
    Dumper.add_representer(
        str,
        lambda dumper, text: dumper.represent_scalar(_YAML_TEXT, text, style='"' if "\x85" in text else None),
    )
    Dumper.add_representer(
        Decimal, lambda dumper, number: dumper.represent_scalar("tag:yaml.org,2002:float", str(number))
    )
    # Quote texts that are numbers in JSON but not in YAML 1.1, because many readers accept JSON's numbers.
    Dumper.add_implicit_resolver("tag:yaml.org,2002:float", _JSON_EXPONENT, list("-0123456789"))
    plain = exact_json.decode(exact_json.encode(value))
    try:
        return yaml.dump(plain, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100)
    except RecursionError:
        raise InvalidInput("the output is nested too deeply for YAML", hint="use -o json") from None


# --- two texts compared word by word, in colours or in the marks of git's `--word-diff`

INDENT = "    "


def compare_texts(before: str, after: str, *, full: bool = False) -> list[tuple[str, str]]:
    """Return the differences of two texts for `print_painted`. `full` includes text far from any change."""
    from cardbox_cli.model.diff import abridge, text_diff

    pieces = text_diff(before, after)
    return [("", INDENT), *(_paint_part(piece) for piece in (pieces if full else abridge(pieces)))]


def indent_below(text: str) -> str:
    return INDENT + text.replace("\n", f"\n{INDENT}")


def _paint_part(piece: "TextPart") -> tuple[str, str]:
    text = indent_below(piece.text)[len(INDENT) :]
    if piece.kind == "same":
        return "", text
    removed = piece.kind == "removed"
    if uses_colours():
        return ("red" if removed else "green"), text
    return "", f"[-{text}-]" if removed else f"{{+{text}+}}"
