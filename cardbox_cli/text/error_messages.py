"""Phrases of error messages: values from users, "did you mean", and common situations."""

import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from cardbox_cli.text.quantities import format_count

ValuePath: TypeAlias = tuple[str | int, ...]
"""The path from the top of a value to one of its parts: keys and list positions."""

_WIDTH = 60
_BARE_KEY = re.compile(r"[\w-]+")


def short_repr(text: str) -> str:
    """Return `repr(text)`. If it is long, an ellipsis replaces its middle."""
    whole = repr(text)
    return whole if len(whole) <= _WIDTH else f"{whole[: _WIDTH - 20]}…{whole[-19:]}"


def describe_value(value: object) -> str:
    """Describe a value for a message after the word "found", for example "the string 'yes'" or "a list"."""
    from decimal import Decimal  # needed only for an error

    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f"the string {short_repr(value)}"
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case int() | float() | Decimal():
            return f"the number {str(value)[:_WIDTH]}"
        case _:
            return f"a {type(value).__name__}"


def json_type(value: object) -> str:
    """Return the name of the type of a JSON value, for example "a string" or "null"."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    for kind, name in ((str, "a string"), (dict, "an object"), ((list, tuple), "a list")):
        if isinstance(value, kind):
            return name
    return "a number"


def format_path(where: ValuePath) -> str:
    """Format a path for people, for example `context_packing_config.pack_arguments[1].arg_key`."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{_key(step)}" for step in where)
    return "".join(steps).removeprefix(".")


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) and len(key) <= _WIDTH else short_repr(key)


def closest(word: str, known: Iterable[str]) -> str | None:
    """Return the entry of `known` that `word` most likely misspells, or None."""
    import difflib  # needed only for an error

    return next(iter(difflib.get_close_matches(word, list(known), n=1)), None)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'arg_key'?", or "" if nothing in `known` is close to `word`."""
    match = closest(word, known)
    return f"; did you mean {match!r}?" if match else ""


# --- messages of errors that occur in many places


def conflict_message(*options: str) -> str:
    return f"{' and '.join(options)} cannot be combined"


def required_message(name: str) -> str:
    return f"{name} is required"


def unknown_message(noun: str, name: str, known: Iterable[str] = ()) -> str:
    """Return a message such as "unknown format 'antropic'; did you mean 'anthropic'?"."""
    return f"unknown {noun} {short_repr(name)}{did_you_mean(name, known)}"


def invalid_message(noun: str, value: str) -> str:
    """Return a message such as "invalid duration 'soon'"."""
    return f"invalid {noun} {short_repr(value)}"


def ambiguous_message(given: str, noun: str, matches: Sequence[str], *, more: bool = False) -> str:
    """Return "'0198' is ambiguous; it matches 2 boxes: …". With `more`, there are further matches."""
    number = f"{'more than ' if more else ''}{format_count(len(matches), noun)}"
    return f"{short_repr(given)} is ambiguous; it matches {number}: {', '.join(matches)}"
