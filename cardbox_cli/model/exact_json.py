"""Numbers as they are spelled: how one is read, and how JSONB prints it."""

import json
import re
from collections import Counter
from decimal import Decimal, InvalidOperation
from typing import Any, Generic, TypeVar

import msgspec

from cardbox_cli.limits import NUMBER_GROWTH

# Digits of a number that is taken in, written out as JSONB prints it, without an exponent. Three times what a
# float needs. Postgres holds up to 147,455, which is what may have to be read.
MAX_DIGITS = 1000

# Python reads no longer integers unless told to. Source: `sys.int_info.default_max_str_digits`.
_INT_DIGITS = 4300


def exact_number(text: str) -> float | Decimal:
    """The number `text` is: a float that prints just so, else a Decimal. ValueError beyond all bounds."""
    number = float(text)
    if repr(number) == text:
        return number
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError(f"the number {text[:40]} is beyond what JSONB can hold") from None


def exact_integer(text: str) -> int | Decimal:
    """The integer that `text` is: a Decimal where it has more digits than Python reads as an int."""
    return int(text) if len(text) <= _INT_DIGITS else Decimal(text)


def printed(text: str) -> str:
    """A number as JSONB prints it: without an exponent, zero without a sign."""
    number = Decimal(text)
    return format(abs(number) if number.is_zero() else number, "f")


# What JSONB can hold: the check of a value before it is sent there, which names the place.


_TOO_LONG = f"is a number of more than {MAX_DIGITS} digits, written out without an exponent"

# Levels of lists and objects: far beyond what is written, well within every reader's stack.
MAX_DEPTH = 400


class Unstorable(ValueError):
    """A value that JSONB cannot hold; `path` is where it stands, as in "metadata.tags[2]"."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path}: {what}" if path else what)
        self.path = path
        self.what = what


class BadText(Unstorable):
    """A NUL character or a lone surrogate."""


def check_storable(value: Any, path: str = "") -> None:
    """Raise `Unstorable` for the first value in `value`, JSON or a struct, that JSONB cannot hold.

    Or where its numbers are together much longer there than as they are spelled.
    """
    if not is_simple(value):
        _Check().value(value, (None, path), 0)


_SIMPLE_INT = 1 << 53
_SIMPLE_DEPTH = 40


def is_simple(value: Any) -> bool:
    """Whether a value is what most JSON is: of nothing that JSONB could not hold or would print otherwise.

    Its numbers are small integers; it is not nested deeply.
    """
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


# The way to a part of a value, from its end: keys and places. It is spelled only where something is wrong:
# a key may be as long as all the rest of the value.
_Way = tuple["_Way | None", str | int]

_SHOWN = 200
_TOO_LARGE = 10**MAX_DIGITS
# In the spelling of a float: an exponent, or what is no number.
_EXPONENT_OR_NONE = re.compile("[en]")


class _Check:
    """One check of a value; it counts what its numbers grow by."""

    def __init__(self) -> None:
        self._growth = 0

    def value(self, value: Any, way: _Way, depth: int) -> None:
        if depth > MAX_DEPTH:
            top = _spelled(way).split("[")[0].split(".")[0]
            raise Unstorable(top, f"is nested more than {MAX_DEPTH} levels deep")
        kind = type(value)
        if kind is str:
            _check_text(value, way)
        elif kind is dict:
            for key, item in value.items():
                if type(key) is not str:
                    raise Unstorable(_spelled(way), f"has the key {key!r}, and JSON keys are strings")
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
            if abs(value) >= _TOO_LARGE:
                raise Unstorable(_spelled(way), _TOO_LONG)
        elif not (value is None or value is msgspec.UNSET or kind is bool):
            raise Unstorable(_spelled(way), f"is a {kind.__name__}, which is no JSON value")

    def _number(self, number: float | Decimal, way: _Way) -> None:
        growth = _growth(number, way)
        self._growth += growth
        if growth and self._growth > NUMBER_GROWTH.value:
            what = f"more than {NUMBER_GROWTH} longer, written out without exponents"
            raise Unstorable(_spelled(way), f"is where the numbers of one value become {what}")


def _spelled(way: _Way, key: str | None = None) -> str:
    """The way as people write it, to the `key` of what it leads to where that is given. Long keys are cut."""
    steps = [] if key is None else [f".{key[:_SHOWN]!r}"]
    before, step = way
    while before is not None:
        steps.append(f"[{step}]" if isinstance(step, int) else f".{step[:_SHOWN]}")
        before, step = before
    path = "".join(reversed(steps))
    return f"{step}{path}" if step else path.removeprefix(".")


def _is_plain(value: Any) -> bool:
    """Whether it is what most values are, storable as it stands, so that nothing need be said of it."""
    return value is None or (type(value) is str and value.isascii() and "\x00" not in value)


def _check_text(text: str, way: _Way, *, key: str | None = None) -> None:
    if "\x00" in text:
        raise BadText(_spelled(way, key), f"holds a NUL character at offset {text.index(chr(0))}")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as exc:
            raise BadText(_spelled(way, key), f"holds a lone surrogate at offset {exc.start}") from None


def _growth(number: float | Decimal, way: _Way) -> int:
    """By how many digits a number is longer as JSONB prints it, without exponent, than as it is spelled."""
    spelled = str(number)
    if type(number) is float and not _EXPONENT_OR_NONE.search(spelled):
        return 0
    exact = Decimal(spelled)
    if not exact.is_finite():
        raise Unstorable(_spelled(way), f"is {number}, which JSON has no spelling for")
    integer_digits = max(exact.adjusted() + 1, 1)
    fraction_digits = max(-int(exact.as_tuple().exponent), 0)
    if integer_digits + fraction_digits > MAX_DIGITS:
        raise Unstorable(_spelled(way), _TOO_LONG)
    return max(integer_digits + fraction_digits - len(spelled), 0)


# What JSONB cannot hold in texts: NUL characters and lone surrogates, and what is put in their place.


_BAD_TEXT = "[\x00\ud800-\udfff]"


def storable_text(text: str) -> str:
    """`text` with U+FFFD for each character that JSONB cannot hold."""
    return re.sub(_BAD_TEXT, "\ufffd", text)


def is_storable_text(text: str) -> bool:
    """Whether a database can hold it: it has no NUL and no lone surrogate."""
    return re.search(_BAD_TEXT, text) is None


def replace_bad_text(value: Any) -> tuple[Any, int]:
    """The JSON `value` with U+FFFD for each NUL and lone surrogate in it, and how many those were.

    Raises Unstorable where that would make two keys of an object one.
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
            raise Unstorable("", "has two keys that differ only in characters that JSONB cannot hold")
        return replaced, sum(in_key + in_item for (_, in_key), (_, in_item) in pairs)
    return value, 0


# Writing JSON: as it is, and in the one form that digests and ids are made of.


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
        return _format_number(one) == _format_number(other)
    if kind is not type(other):
        return False
    if kind is dict:
        if len(one) != len(other):
            return False
        return all(key in other and _are_same(item, other[key]) for key, item in one.items())
    if kind is list:
        return len(one) == len(other) and all(map(_are_same, one, other))
    return bool(one == other)


def _format_number(number: Any) -> bytes:
    return canonical(_encoder.encode(number))


_NUMBERS = (int, float, Decimal)


def _printed(text: str) -> msgspec.Raw:
    return msgspec.Raw(printed(text).encode())


_canonical_decoder = msgspec.json.Decoder(float_hook=_printed)


# Reading JSON: what a database or cbx wrote, and what anybody else did.


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


# JSON without loss, and the checks that JSONB would make only after a round trip.
#
# A number that a float cannot hold exactly (1.10, 1e400) becomes a Decimal, so what is read is what is
# written. The modules: `numbers`, `reading`, `writing` (which has the canonical form that digests and ids are
# made of), `storable` (the refusal of what JSONB cannot hold) and `bad_text` (the replacement of such text).
# None of them knows anything of cards. The one loss: JSONB has no negative zero, so `-0.0` comes back as
# `0.0`.


__all__ = [
    "MAX_DIGITS",
    "ODD",
    "BadText",
    "Decoder",
    "Malformed",
    "Unstorable",
    "are_same",
    "canonical",
    "canonical_of_simple",
    "canonical_text",
    "check_storable",
    "decode",
    "decode_stored",
    "encode",
    "exact_integer",
    "exact_number",
    "is_simple",
    "is_storable_text",
    "read",
    "read_soon",
    "reader",
    "replace_bad_text",
    "storable_text",
    "strict_reader",
]
