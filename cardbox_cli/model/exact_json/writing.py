"""Writing JSON: as it is, and in the one form that digests and ids are made of."""

import json
from decimal import Decimal
from typing import Any

import msgspec

from cardbox_cli.model.exact_json.numbers import printed
from cardbox_cli.model.exact_json.storable import is_simple

_encoder = msgspec.json.Encoder(decimal_format="number")
_sorted_encoder = msgspec.json.Encoder(order="sorted", decimal_format="number")


def encode(value: Any) -> bytes:
    """Encode as compact UTF-8 JSON. The value must have passed `check_storable`, or have come from JSON."""
    return _encoder.encode(value)


def canonical(text: bytes) -> bytes:
    """The one form of a JSON text: keys sorted by code point, no spaces, numbers as JSONB prints them.

    Equal for a text and for what JSONB makes of it.
    """
    try:
        value = _canonical_decoder.decode(text)
    except msgspec.ValidationError:
        value = json.loads(text, parse_float=_printed, parse_int=_printed)
    return _sorted_encoder.encode(value)


def canonical_of_simple(value: Any) -> bytes:
    """The canonical form of a value that `is_simple`."""
    return _sorted_encoder.encode(value)


def canonical_text(value: Any) -> str:
    """The canonical form of a value that can be stored, as text."""
    if is_simple(value):
        return _sorted_encoder.encode(value).decode()
    return canonical(_encoder.encode(value)).decode()


def are_same(one: Any, other: Any) -> bool:
    """Whether two values that can be stored are the same JSON: of one canonical form.

    Python's `==` takes True for 1, and 1.0 for 1.
    """
    # What is spelled alike is the same, which most values that are compared are.
    if _sorted_encoder.encode(one) == _sorted_encoder.encode(other):
        return True
    return _are_same(one, other)


def _are_same(one: Any, other: Any) -> bool:
    kind = type(one)
    if kind in _NUMBERS and type(other) in _NUMBERS:
        return _spelled(one) == _spelled(other)
    if kind is not type(other):
        return False
    if kind is dict:
        if len(one) != len(other):
            return False
        return all(key in other and _are_same(item, other[key]) for key, item in one.items())
    if kind is list:
        return len(one) == len(other) and all(map(_are_same, one, other))
    return bool(one == other)


def _spelled(number: Any) -> bytes:
    return canonical(_encoder.encode(number))


_NUMBERS = (int, float, Decimal)


def _printed(text: str) -> msgspec.Raw:
    return msgspec.Raw(printed(text).encode())


_canonical_decoder = msgspec.json.Decoder(float_hook=_printed)
