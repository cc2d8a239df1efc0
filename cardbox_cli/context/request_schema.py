"""Tables of the fields of requests, made from the providers' own packages, and the check of a request by
them.

`make schemas` writes a table, `request_schema.json`, into the provider's package. It has the package with its
version (`sdk`), the type of a whole request (`request`), and all `types` by name, with a value per key. A key
that ends in `?` is optional, `*` is any other key. A type with the key `!` has exactly one of its keys. With
`proto_json`, keys may be in snake_case, and one of some values in any case or as a number. A value:

- `"text"`, `"integer"`, `"number"`, `"boolean"`, `"null"`, `"object"`, `"any"`: a value of this plain type.
- `"Name"`: an object of this type. `[T, U]`: one or the other.
- `{"in": […]}`: one of these values. `{"each": T}`: a list of T. `{"map": T}`: an object with values of T.
- `{"is": "text", "like": "a+"}`: a value of this plain type, of this pattern.

`each` and `is` may have a `least` and a `most`: bounds of a number, or of a length.

Pure, except that the table is read once. Lint rules check what types cannot express.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any, Literal, TypeAlias

import msgspec

from cardbox_cli.text.error_messages import json_type

# The mistakes: in the request's own keys, in keys within it, in the type of a value, in a choice of values,
# or in a bound.
Sort: TypeAlias = Literal[
    "parameter-unknown", "key-unknown", "key-missing", "value-invalid", "value-unknown", "value-out-of-range"
]
# The types of mistakes that a newer version of the provider's package may allow.
UNKNOWN = ("parameter-unknown", "key-unknown", "value-unknown")
Place: TypeAlias = tuple[str | int, ...]
_Type: TypeAlias = Any

_NUMBER = (int, float, Decimal)
# The plain types: their classes, and their names in sentences.
_PLAIN: dict[str, tuple[tuple[type, ...], str]] = {
    "text": ((str,), "a text"),
    "integer": ((int,), "an integer"),
    "number": (_NUMBER, "a number"),
    "boolean": ((bool,), "true or false"),
    "null": ((type(None),), "null"),
    "object": ((dict,), "an object"),
    "any": ((object,), "anything"),
}
# The keys that name the type of an object.
_TAGS = ("type", "role")


class Misfit(msgspec.Struct, frozen=True):
    """A value that does not match the table: its place, and a description of the mistake."""

    place: Place
    sort: Sort
    what: str


class Schema:
    """A provider's table. `sdk` is its package with the version. `keys` are those of a request in any case,
    `names` as the table has them, `required` the mandatory ones."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        self.sdk: str = table["sdk"]
        self._types: Mapping[str, Mapping[str, _Type]] = table["types"]
        self._request: str = table["request"]
        self._is_proto = bool(table.get("proto_json"))
        self._key_cases = (str, _snake) if self._is_proto else (str,)
        self._known = {name: self._keys(keys) for name, keys in self._types.items()}
        self._required = {
            name: [key for key in keys if key[-1:] not in ("?", "*", "!")]
            for name, keys in self._types.items()
        }
        self.keys = frozenset(self._known[self._request])
        self.names = frozenset(key.rstrip("?") for key in self._types[self._request])
        self.required = frozenset(self._required[self._request])

    def _keys(self, keys: Mapping[str, _Type]) -> dict[str, _Type]:
        """Return the values of a type's keys, in each case that the keys may have."""
        return {
            convert(key.rstrip("?")): each
            for key, each in keys.items()
            if key != "!"
            for convert in self._key_cases
        }

    def misfits(self, request: Mapping[str, Any]) -> Iterator[Misfit]:
        """Yield the misfits of a whole request: first missing keys, then the misfits of the present keys."""
        for found in self._check_object(request, self._request, ()):
            is_own = found.sort == "key-unknown" and len(found.place) == 1
            yield Misfit(found.place, "parameter-unknown", found.what) if is_own else found

    def misfits_of_item(self, key: str, number: int, value: Any) -> Iterator[Misfit]:
        wanted = self._known[self._request][key]
        wanted = wanted if isinstance(wanted, list) else [wanted]
        lists = (each["each"] for each in wanted if isinstance(each, dict) and "each" in each)
        return self._check(value, next(lists), (key, number))

    def misfits_of_value(self, key: str, value: Any) -> Iterator[Misfit]:
        return self._check(value, self._known[self._request][key], (key,))

    def _check(self, value: Any, wanted: _Type, place: Place) -> Iterator[Misfit]:
        if isinstance(wanted, list):
            yield from self._check_alternatives(value, wanted, place)
        elif not self._fits(value, wanted):
            yield self._type_misfit(value, [wanted], place)
        elif isinstance(wanted, str):
            if wanted in self._types:
                yield from self._check_object(value, wanted, place)
        elif "map" in wanted:
            for key, item in value.items():
                yield from self._check(item, wanted["map"], (*place, key))
        elif "in" not in wanted:
            yield from _check_bounds(value, wanted, place)
            for number, item in enumerate(value if "each" in wanted else ()):
                yield from self._check(item, wanted["each"], (*place, number))

    def _is_one_of(self, value: Any, values: Sequence[Any]) -> bool:
        if self._is_proto and not isinstance(value, bool):
            return isinstance(value, int) or (isinstance(value, str) and value.upper() in values)
        return value in values and isinstance(value, bool) == isinstance(values[0], bool)

    def _check_object(self, value: Mapping[str, Any], name: str, place: Place) -> Iterator[Misfit]:
        known = self._known[name]
        for key in self._required[name]:
            if not any(convert(key) in value for convert in self._key_cases):
                yield Misfit((*place, key), "key-missing", "missing")
        if "!" in self._types[name] and len(value.keys() & known.keys()) != 1:
            words = f"an object, and not one with exactly one of the keys {', '.join(known)}"
            yield Misfit(place, "value-invalid", words)
        others = known.get("*")
        for key, item in value.items():
            if key in known and key != "*":
                yield from self._check(item, known[key], (*place, key))
            elif others is None:
                near = [f" (near: {name})" for name in get_close_matches(key, known, 1)]
                yield Misfit((*place, key), "key-unknown", f"unknown{''.join(near)}")
            else:
                yield from self._check(item, others, (*place, key))

    def _check_alternatives(self, value: Any, wanted: Sequence[_Type], place: Place) -> Iterator[Misfit]:
        """Yield the misfits by the alternative that an object's type or role names, else by the nearest
        one."""
        fitting = [each for each in wanted if self._fits(value, each)]
        if not fitting:
            yield self._type_misfit(value, wanted, place)
            return
        if isinstance(value, dict) and len(fitting) > 1:
            fitting = self._tagged(value, fitting) or fitting
            if isinstance(fitting[0], Misfit):
                yield msgspec.structs.replace(fitting[0], place=(*place, *fitting[0].place))
                return
        # The fewest misfits: what comes nearest to one of them.
        yield from min((list(self._check(value, each, place)) for each in fitting), key=len)

    def _fits(self, value: Any, wanted: _Type) -> bool:
        """Return whether a value has the wanted type; its contents are not checked."""
        if isinstance(wanted, str):
            return isinstance(value, dict) if wanted in self._types else _has_type(value, wanted)
        if "in" in wanted:
            return self._is_one_of(value, wanted["in"])
        if "is" in wanted:
            return _has_type(value, wanted["is"])
        return isinstance(value, list if "each" in wanted else dict)

    def _type_misfit(self, value: Any, wanted: Sequence[_Type], place: Place) -> Misfit:
        """Return the misfit of a value that has none of the wanted types, or none of the allowed values."""
        values = [item for each in wanted for item in _values(each)]
        is_choice = bool(values) and len(wanted) == 1
        if is_choice or any(type(value) is type(item) for item in values):
            return Misfit(place, "value-unknown", f"{describe(value)}, none of {_list_values(values)}")
        kinds = " or ".join(dict.fromkeys(_type_name(each, self._types) for each in wanted))
        return Misfit(place, "value-invalid", f"{describe(value)}, and not {kinds}")

    def _tagged(self, value: dict[str, Any], types: list[_Type]) -> list[Any]:
        """Return those of the types that the value's tags name; a misfit if they name another."""
        for tag in _TAGS:
            tagged = {each: self._known[each].get(tag) for each in types if each in self._known}
            tagged = {each: known for each, known in tagged.items() if isinstance(known, (dict, list))}
            if not tagged:
                continue
            if tag not in value:
                free = [each for each in types if tag not in self._required.get(each, ())]
                return free or [Misfit((tag,), "key-missing", "missing")]
            named = [each for each, known in tagged.items() if not list(self._check(value[tag], known, ()))]
            if named or len(tagged) < len(types):
                return named or [each for each in types if each not in tagged]
            every = [item for known in tagged.values() for item in _values(known)]
            words = f"{describe(value[tag])}, none of {_list_values(list(dict.fromkeys(every)))}"
            return [Misfit((tag,), "value-unknown", words)]
        return []


@cache
def schema_of(package: str) -> Schema:
    return Schema(msgspec.json.decode(files(package).joinpath("request_schema.json").read_bytes()))


def place_text(place: Place) -> str:
    """Format a place as people write it: `tools[0].function.name`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
    return text.removeprefix(".")


def describe(value: Any) -> str:
    """Describe a value in a sentence: a short string or number itself, else its type."""
    is_shown = isinstance(value, (str, *_NUMBER)) and not isinstance(value, bool)
    if is_shown and len(str(value)) <= 60:
        return repr(value) if isinstance(value, str) else str(value)
    return json_type(value)


def _check_bounds(value: Any, wanted: Mapping[str, Any], place: Place) -> Iterator[Misfit]:
    """Yield the misfit of a value outside of its bounds, or not of its pattern."""
    is_sized = isinstance(value, str | list)
    size, least, most = len(value) if is_sized else value, wanted.get("least"), wanted.get("most")
    if (least is not None and size < least) or (most is not None and size > most):
        bounds = f"{least or 0} or more" if most is None else f"from {least or 0} to {most}"
        yield Misfit(place, "value-out-of-range", f"{size}{' long' if is_sized else ''}, not {bounds}")
    elif "like" in wanted and not re.fullmatch(wanted["like"], value):
        yield Misfit(place, "value-out-of-range", f"{describe(value)}, which is not like {wanted['like']}")


def _snake(key: str) -> str:
    return re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", key)


def _has_type(value: Any, kind: str) -> bool:
    if isinstance(value, bool) and kind not in ("boolean", "any"):
        return False
    if kind == "integer" and isinstance(value, float | Decimal):
        return value == int(value)
    return isinstance(value, _PLAIN[kind][0])


def _type_name(wanted: _Type, types: Mapping[str, Any]) -> str:
    if isinstance(wanted, str):
        return "an object" if wanted in types else _PLAIN[wanted][1]
    if "in" in wanted:
        return _list_values(wanted["in"])
    if "is" in wanted:
        return _PLAIN[wanted["is"]][1]
    return "a list" if "each" in wanted else "an object"


def _values(wanted: _Type) -> list[Any]:
    alternatives = wanted if isinstance(wanted, list) else [wanted]
    return [value for each in alternatives if isinstance(each, dict) for value in each.get("in", [])]


def _list_values(values: Sequence[Any]) -> str:
    return ", ".join(map(describe, values))
