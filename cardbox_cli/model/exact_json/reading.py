"""Reading JSON: what a database or cbx wrote, and what anybody else did."""

import json
import re
from collections import Counter
from typing import Any, Generic, TypeVar

import msgspec

from cardbox_cli.model.exact_json.numbers import exact_integer, exact_number
from cardbox_cli.model.exact_json.storable import MAX_DEPTH
from cardbox_cli.model.exact_json.writing import encode

_Value = TypeVar("_Value")
_decoder = msgspec.json.Decoder(float_hook=exact_number)


def decode(text: bytes | str) -> Any:
    """Decode JSON that a database or cbx wrote. Raises `msgspec.DecodeError` on anything else."""
    try:
        return _decoder.decode(text)
    except msgspec.ValidationError:
        # The one thing in JSON that msgspec does not take: an integer of very many digits.
        return json.loads(text, parse_float=exact_number, parse_int=exact_integer)


# What decoders raise of JSON that JSONB holds: for integers of very many digits, and for very deep nesting.
ODD = (msgspec.ValidationError, RecursionError)


def decode_stored(text: bytes | str) -> Any:
    """Decode JSON of a row, whoever wrote it. What is nested too deeply to read stands as its JSON."""
    try:
        return decode(text)
    except RecursionError:
        return decode(_cut(text.decode() if isinstance(text, bytes) else text))


# Possessive: a way back would be kept for each character of a string, which may be hundreds of millions.
_STRING_OR_BRACKET = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[][{}]')


def _cut(text: str) -> str:
    """JSON `text` with a string in place of each list or object that is nested too deeply: its JSON."""
    pieces, depth, begin = [], 0, 0
    for found in _STRING_OR_BRACKET.finditer(text):
        if found[0] in ("[", "{"):
            if depth == MAX_DEPTH:
                pieces.append(text[begin : found.start()])
                begin = found.start()
            depth += 1
        elif found[0] in ("]", "}"):
            depth -= 1
            if depth == MAX_DEPTH:
                pieces.append(encode(text[begin : found.end()]).decode())
                begin = found.end()
    return "".join([*pieces, text[begin:]])


class Decoder(Generic[_Value]):
    """Decodes JSON of rows as values of one kind, whatever numbers are in it, and however deep it is."""

    def __init__(self, kind: type[_Value]) -> None:
        self._kind = kind
        self._decoder = msgspec.json.Decoder(kind, float_hook=exact_number)

    def decode(self, text: bytes | str) -> _Value:
        """The value. Raises `msgspec.ValidationError` where the JSON is none of this kind."""
        try:
            return self._decoder.decode(text)
        except ODD:
            return msgspec.convert(decode_stored(text), self._kind)


# Reads JSON that a person or another program wrote. More lenient than `decode`: NaN, Infinity and lone
# surrogates are let in, so that the check that follows can say where they stand.
reader = json.JSONDecoder(parse_float=exact_number, parse_int=exact_integer)


def _of_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        twice = next(key for key, count in counts.items() if count > 1)
        raise ValueError(f"the key {twice[:80]!r} stands twice in an object")
    return found


# Reads as `reader` does, which keeps the last of two equal keys; this raises a ValueError.
strict_reader = json.JSONDecoder(
    parse_float=exact_number, parse_int=exact_integer, object_pairs_hook=_of_pairs
)
Malformed = json.JSONDecodeError


def read(text: str, decoder: json.JSONDecoder = reader) -> Any:
    """Read with `reader`, or another. Raises Malformed, a ValueError with line and column."""
    try:
        return decoder.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_soon(text: str) -> Any:
    """`read`, sooner where nothing is odd."""
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return read(text)
