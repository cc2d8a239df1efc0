"""What JSONB can hold: the check of a value before it is sent there, which names the place."""

import re
from decimal import Decimal
from typing import Any

import msgspec

from cardbox_cli.limits import NUMBER_GROWTH
from cardbox_cli.model.exact_json.numbers import MAX_DIGITS

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
