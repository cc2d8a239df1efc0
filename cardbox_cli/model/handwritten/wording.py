"""The words in which cbx speaks of values that people wrote: what was found, where, and what was meant.

Owns phrases alone, so that every error about recipes, profiles and arguments sounds the same. Decides
nothing.
"""

import re
from collections.abc import Iterable
from decimal import Decimal
from typing import TypeAlias

Where: TypeAlias = tuple[str | int, ...]
"""The way from the top of a value to one of its parts: keys and list positions."""

_WIDTH = 60
_BARE_KEY = re.compile(r"[\w-]+")


def shown(text: str) -> str:
    """`repr(text)`, with its middle left out when it is long."""
    quoted = repr(text)
    return quoted if len(quoted) <= _WIDTH else f"{quoted[: _WIDTH - 20]}…{quoted[-19:]}"


def found(value: object) -> str:
    """What a value is, to be read after "found": "the string 'yes'", "a list"."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f"the string {shown(value)}"
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case int() | float() | Decimal():
            return f"the number {str(value)[:_WIDTH]}"
        case _:
            return f"a {type(value).__name__}"


def json_kind(value: object) -> str:
    """What a JSON value is, as a person would say it: "a string", "null", "a list"…"""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    for kind, name in ((str, "a string"), (dict, "an object"), ((list, tuple), "a list")):
        if isinstance(value, kind):
            return name
    return "a number"


def dotted(where: Where) -> str:
    """A path as people write it: `context_packing_config.pack_arguments[1].arg_key`."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{_key(step)}" for step in where)
    return "".join(steps).removeprefix(".")


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) and len(key) <= _WIDTH else shown(key)


def closest(word: str, known: Iterable[str]) -> str | None:
    """The one of `known` that `word` is most likely a slip of, or None."""
    import difflib  # needed only once something went wrong

    return next(iter(difflib.get_close_matches(word, list(known), n=1)), None)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The words "; did you mean 'arg_key'?", or none when nothing in `known` is close to `word`."""
    match = closest(word, known)
    return f"; did you mean {match!r}?" if match else ""
