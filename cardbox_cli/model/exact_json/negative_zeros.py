"""Negative zeros, whose sign JSONB does not hold: where a value has some, and the value with them again.

A place is the way to a number: keys, and indexes of lists.
"""

import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

import msgspec

Place = list[str | int]

_SPELLED = re.compile(rb"-0(?![0-9])")


def may_be_in(text: bytes) -> bool:
    """Whether a JSON text may have one: -0.5, and what looks like one in a string, count too."""
    return _SPELLED.search(text) is not None


def places(value: Any) -> list[Place]:
    """The places of the negative zeros in a value, JSON or a struct, in its order."""
    return [list(place) for place in _places(value, ())]


def _places(value: Any, way: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _places(item, (*way, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _places(item, (*way, index))
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from _places(getattr(value, name), (*way, name))
    elif isinstance(value, float | Decimal) and value == 0 and str(value).startswith("-"):
        yield way


def restore(value: Any, found: Iterable[Any]) -> None:
    """Give the zeros at these places of a value, which is JSON, their sign. Passes over what is no place."""
    for place in found:
        if isinstance(place, list) and place:
            _restore(value, place)


def _restore(value: Any, place: list[Any]) -> None:
    *way, last = place
    for step in way:
        value = _item(value, step)
    number = _item(value, last)
    if type(number) in (int, float, Decimal) and number == 0:
        value[last] = -number if type(number) is float else Decimal(number).copy_negate()


def _item(value: Any, step: Any) -> Any:
    """What stands at a key, or at an index; None where nothing does."""
    if isinstance(value, dict):
        return value.get(step) if isinstance(step, str) else None
    is_index = isinstance(value, list) and type(step) is int and 0 <= step < len(value)
    return value[step] if is_index else None
