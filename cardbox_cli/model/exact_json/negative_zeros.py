"""Negative zeros, whose sign JSONB does not hold: where a value has some, and the value with them again.

A place is the way to a number: keys, and indexes of lists. How many there may be says `storable`.
"""

import re
from collections.abc import Iterable
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
    found: list[Place] = []
    _gather(value, [], found)
    return found


def _gather(value: Any, way: Place, found: list[Place]) -> None:
    if isinstance(value, float | Decimal):
        if value == 0 and str(value).startswith("-"):
            found.append([*way])
        return
    for step, item in _parts(value):
        if not (item is None or isinstance(item, str | int)):
            way.append(step)
            _gather(item, way, found)
            way.pop()


def _parts(value: Any) -> Iterable[tuple[str | int, Any]]:
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, list):
        return enumerate(value)
    if isinstance(value, msgspec.Struct):
        return ((name, getattr(value, name)) for name in value.__struct_fields__)
    return ()


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
