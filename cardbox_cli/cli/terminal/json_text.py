"""The JSON of answers as text, in pieces where it is too long to hold: together they are the whole."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from cardbox_cli.model import exact_json

# So many bytes of a list are formatted together, or one item of it that has more.
_AT_ONCE = 64 * 1024

# The keys and values of an object. A value that is an iterator is a list, read as it is written.
Members = Iterable[tuple[str, Any]]


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
