"""JSON without loss, and the checks that JSONB would make only after a round trip.

A number that a float cannot represent exactly (1.10, 1e400) becomes a Decimal, so that values are written as
they were read. The one loss is that JSONB has no negative zero, so `-0.0` becomes `0.0`. This module also
makes the canonical form for digests and ids, refuses values that JSONB cannot store, and replaces such text.
"""

import json
import re
from collections import Counter
from decimal import Decimal, InvalidOperation
from typing import Any, Generic, TypeVar

import msgspec

from cardbox_cli.limits import NUMBER_GROWTH

# The maximum number of digits that cbx writes. JSONB prints numbers without an exponent, and a float has at
# most a third of this. Postgres stores up to 147,455 digits, which cbx can read.
MAX_DIGITS = 1000

# Python refuses to read a longer integer as int, so it becomes a Decimal (`sys.int_info`).
_INT_DIGITS = 4300


def parse_number(text: str) -> float | Decimal:
    """Parse a number as a float if that prints the same text, or else as a Decimal.

    Raises ValueError if the number is too large.
    """
    number = float(text)
    if repr(number) == text:
        return number
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError(f"the number {text[:40]} is too large for JSONB") from None


def parse_integer(text: str) -> int | Decimal:
    """Parse an integer as an int, or as a Decimal if it has more digits than Python reads as an int."""
    return int(text) if len(text) <= _INT_DIGITS else Decimal(text)


# --- values that JSONB can store: the check before a write, which names the path


_TOO_MANY_DIGITS = f"is a number of more than {MAX_DIGITS} digits, written out without an exponent"

# The maximum levels of lists and objects: far more than people write, far fewer than a parser's stack allows.
MAX_DEPTH = 400


class Unstorable(ValueError):
    """A value that JSONB cannot store at `path`, for example "metadata.tags[2]"."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path}: {what}" if path else what)
        self.path = path
        self.what = what


class BadText(Unstorable):
    """A NUL character or a lone surrogate."""


def check_storable(value: Any, path: str = "") -> None:
    """Raise `Unstorable` if JSONB cannot store `value`, which is JSON or a struct. Names the first bad part.

    Also raises it if the numbers of the value become too long in JSONB's format.
    """
    if not is_simple(value):
        _Check().value(value, (None, path), 0)


_SIMPLE_INT = 1 << 53
_SIMPLE_DEPTH = 40


def is_simple(value: Any) -> bool:
    """Return True if a fast check proves that JSONB can store a value: it has no floats or large integers."""
    level = [value]
    for _ in range(_SIMPLE_DEPTH):
        below: list[Any] = []
        for each in level:
            kind = type(each)
            if kind is dict:
                for key, item in each.items():
                    if type(key) is not str or not key.isascii() or "\x00" in key:
                        return False
                    if type(item) is not str or not item.isascii():
                        below.append(item)
                    elif "\x00" in item:
                        return False
            elif kind is list:
                below += each
            elif kind is str:
                if "\x00" in each or not (each.isascii() or _is_encodable(each)):
                    return False
            elif kind is int:
                if not -_SIMPLE_INT < each < _SIMPLE_INT:
                    return False
            elif not (each is None or kind is bool):
                return False
        if not below:
            return True
        level = below
    return False


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# The path to a part of a value, last key or index first. Keys may be long, so only errors format it.
_ReversedPath = tuple["_ReversedPath | None", str | int]

_MAX_KEY_CHARACTERS = 200
_TOO_LARGE_INTEGER = 10**MAX_DIGITS
# Matches the text of a float that has an exponent, or is nan or inf.
_EXPONENT_OR_NONE = re.compile("[en]")


class _Check:
    def __init__(self) -> None:
        self._growth = 0

    def value(self, value: Any, way: _ReversedPath, depth: int) -> None:
        if depth > MAX_DEPTH:
            top = _format_path(way).split("[")[0].split(".")[0]
            raise Unstorable(top, f"is nested more than {MAX_DEPTH} levels deep")
        kind = type(value)
        if kind is str:
            _check_text(value, way)
        elif kind is dict:
            for key, item in value.items():
                if type(key) is not str:
                    raise Unstorable(_format_path(way), f"has the key {key!r}, but JSON keys must be strings")
                if not _is_plain(key):
                    _check_text(key, way, key=key)
                if not _is_plain(item):
                    self.value(item, (way, key), depth + 1)
        elif kind is list:
            for index, item in enumerate(value):
                if not _is_plain(item):
                    self.value(item, (way, index), depth + 1)
        elif kind is float or kind is Decimal:
            self._number(value, way)
        elif isinstance(value, msgspec.Struct):
            for name in value.__struct_fields__:
                item = getattr(value, name)
                if not _is_plain(item):
                    self.value(item, (way, name), depth + 1)
        elif kind is int:
            if abs(value) >= _TOO_LARGE_INTEGER:
                raise Unstorable(_format_path(way), _TOO_MANY_DIGITS)
        elif not (value is None or value is msgspec.UNSET or kind is bool):
            raise Unstorable(_format_path(way), f"is a {kind.__name__}, which is not a JSON value")

    def _number(self, number: float | Decimal, way: _ReversedPath) -> None:
        growth = _growth(number, way)
        self._growth += growth
        if growth and self._growth > NUMBER_GROWTH.value:
            what = f"makes the numbers of the value grow by more than {NUMBER_GROWTH} without exponents"
            raise Unstorable(_format_path(way), what)


def _format_path(way: _ReversedPath, key: str | None = None) -> str:
    """Format a path for people. If `key` is given, it is the last part. Long keys are cut."""
    steps = [] if key is None else [f".{key[:_MAX_KEY_CHARACTERS]!r}"]
    before, step = way
    while before is not None:
        steps.append(f"[{step}]" if isinstance(step, int) else f".{step[:_MAX_KEY_CHARACTERS]}")
        before, step = before
    path = "".join(reversed(steps))
    return f"{step}{path}" if step else path.removeprefix(".")


def _is_plain(value: Any) -> bool:
    """Return whether a value needs no further check, because it is None or an ASCII string, as most are."""
    return value is None or (type(value) is str and value.isascii() and "\x00" not in value)


def _check_text(text: str, way: _ReversedPath, *, key: str | None = None) -> None:
    if "\x00" in text:
        raise BadText(_format_path(way, key), f"holds a NUL character at offset {text.index(chr(0))}")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as exc:
            raise BadText(_format_path(way, key), f"holds a lone surrogate at offset {exc.start}") from None


def _growth(number: float | Decimal, way: _ReversedPath) -> int:
    """Return the number of characters by which JSONB's format of a number is longer than its JSON."""
    text = str(number)
    if type(number) is float and not _EXPONENT_OR_NONE.search(text):
        return 0
    exact = Decimal(text)
    if not exact.is_finite():
        raise Unstorable(_format_path(way), f"is {number}, which JSON cannot represent")
    integer_digits = max(exact.adjusted() + 1, 1)
    fraction_digits = max(-int(exact.as_tuple().exponent), 0)
    if integer_digits + fraction_digits > MAX_DIGITS:
        raise Unstorable(_format_path(way), _TOO_MANY_DIGITS)
    return max(integer_digits + fraction_digits - len(text), 0)


# --- text that JSONB cannot store: NUL characters and lone surrogates, and their replacement


_BAD_TEXT = "[\x00\ud800-\udfff]"


def replace_unstorable(text: str) -> str:
    """Return `text` with U+FFFD for each character that JSONB cannot store."""
    return re.sub(_BAD_TEXT, "\ufffd", text)


def is_storable_text(text: str) -> bool:
    """Return whether a database can store the text: it has no NUL and no lone surrogate."""
    return re.search(_BAD_TEXT, text) is None


def replace_bad_text(value: Any) -> tuple[Any, int]:
    """Return the JSON `value` with U+FFFD for each NUL and lone surrogate, and their number.

    Raises Unstorable if that would make two keys of an object equal.
    """
    if isinstance(value, str):
        return re.subn(_BAD_TEXT, "\ufffd", value)
    if isinstance(value, list):
        items = [replace_bad_text(item) for item in value]
        return [item for item, _ in items], sum(count for _, count in items)
    if isinstance(value, dict):
        pairs = [(replace_bad_text(key), replace_bad_text(item)) for key, item in value.items()]
        replaced = {key: item for (key, _), (item, _) in pairs}
        if len(replaced) < len(value):
            raise Unstorable("", "has two keys that differ only in characters that JSONB cannot store")
        return replaced, sum(in_key + in_item for (_, in_key), (_, in_item) in pairs)
    return value, 0


# --- writing JSON: unchanged, and in the canonical form for digests and ids


_encoder = msgspec.json.Encoder(decimal_format="number")
_sorted_encoder = msgspec.json.Encoder(order="sorted", decimal_format="number")


def encode(value: Any) -> bytes:
    """Encode as compact UTF-8 JSON. The value must come from JSON or have passed `check_storable`."""
    return _encoder.encode(value)


def canonical(text: bytes) -> bytes:
    """Return the canonical form of JSON: keys sorted by code point, no spaces, numbers in JSONB's format.

    A JSON text and JSONB's version of it have the same canonical form.
    """
    try:
        value = _canonical_decoder.decode(text)
    except msgspec.ValidationError:
        value = json.loads(text, parse_float=_printed, parse_int=_printed)
    return _sorted_encoder.encode(value)


def canonical_of_simple(value: Any) -> bytes:
    return _sorted_encoder.encode(value)


def canonical_text(value: Any) -> str:
    if is_simple(value):
        return _sorted_encoder.encode(value).decode()
    return canonical(_encoder.encode(value)).decode()


def are_equal(one: Any, other: Any) -> bool:
    """Return whether two storable values have the same canonical form. In contrast to `==`, True is not 1."""
    # Most compared values have equal JSON and need no canonical form.
    if _sorted_encoder.encode(one) == _sorted_encoder.encode(other):
        return True
    return _are_same(one, other)


def _are_same(one: Any, other: Any) -> bool:
    kind = type(one)
    if kind in _NUMBERS and type(other) in _NUMBERS:
        return canonical(_encoder.encode(one)) == canonical(_encoder.encode(other))
    if kind is not type(other):
        return False
    if kind is dict:
        if len(one) != len(other):
            return False
        return all(key in other and _are_same(item, other[key]) for key, item in one.items())
    if kind is list:
        return len(one) == len(other) and all(map(_are_same, one, other))
    return bool(one == other)


_NUMBERS = (int, float, Decimal)


def _printed(text: str) -> msgspec.Raw:
    """Format a number as JSONB does: without an exponent, zero without a sign."""
    number = Decimal(text)
    return msgspec.Raw(format(abs(number) if number.is_zero() else number, "f").encode())


_canonical_decoder = msgspec.json.Decoder(float_hook=_printed)


# --- reading JSON, which comes from the database or cbx, or from people and other programs


_Value = TypeVar("_Value")
_decoder = msgspec.json.Decoder(float_hook=parse_number)


def decode(text: bytes | str) -> Any:
    """Decode JSON from a database or cbx. Raises `msgspec.DecodeError` for anything else."""
    try:
        return _decoder.decode(text)
    except msgspec.ValidationError:
        # msgspec refuses only one valid JSON value: an integer with very many digits.
        return json.loads(text, parse_float=parse_number, parse_int=parse_integer)


# The errors that decoders raise for JSON of JSONB: for very long integers, and for very deep nesting.
DECODE_ERRORS = (msgspec.ValidationError, RecursionError)


def decode_stored(text: bytes | str) -> Any:
    """Decode JSON that any program may have stored. Too deeply nested values become their JSON text."""
    try:
        return decode(text)
    except RecursionError:
        return decode(_cut(text.decode() if isinstance(text, bytes) else text))


# The quantifiers are possessive, because backtracking would store a state for each character.
_STRING_OR_BRACKET = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[][{}]')


def _cut(text: str) -> str:
    """Replace each list or object in JSON `text` that is nested too deeply by a string with its JSON."""
    pieces, depth, begin = [], 0, 0
    for match in _STRING_OR_BRACKET.finditer(text):
        if match[0] in ("[", "{"):
            if depth == MAX_DEPTH:
                pieces.append(text[begin : match.start()])
                begin = match.start()
            depth += 1
        elif match[0] in ("]", "}"):
            depth -= 1
            if depth == MAX_DEPTH:
                pieces.append(encode(text[begin : match.end()]).decode())
                begin = match.end()
    return "".join([*pieces, text[begin:]])


class Decoder(Generic[_Value]):
    """A decoder of stored JSON to values of one type. Numbers are exact, and nesting may have any depth."""

    def __init__(self, kind: type[_Value]) -> None:
        self._kind = kind
        self._decoder = msgspec.json.Decoder(kind, float_hook=parse_number)

    def decode(self, text: bytes | str) -> _Value:
        """Return the value. Raises `msgspec.ValidationError` if the JSON does not have this type."""
        try:
            return self._decoder.decode(text)
        except DECODE_ERRORS:
            return msgspec.convert(decode_stored(text), self._kind)


# Decodes JSON from people or other programs. It accepts NaN, Infinity and lone surrogates, which `decode`
# refuses, so that `check_storable` can name their paths afterwards.
reader = json.JSONDecoder(parse_float=parse_number, parse_int=parse_integer)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"an object has the key {twice[:80]!r} twice")
    return values


# Like `reader`, but raises ValueError if a key repeats. `reader` uses the last value of a repeated key.
strict_reader = json.JSONDecoder(
    parse_float=parse_number, parse_int=parse_integer, object_pairs_hook=_unique_keys
)
Malformed = json.JSONDecodeError


def read(text: str, decoder: json.JSONDecoder = reader) -> Any:
    """Decode JSON with `reader` or another decoder. Raises Malformed, a ValueError with line and column."""
    try:
        return decoder.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_fast(text: str) -> Any:
    """Decode as `read` does, but faster for ordinary JSON."""
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return read(text)
