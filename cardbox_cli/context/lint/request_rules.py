"""Rules about parameters, tools, images and the size of a request, which several providers have.

Functions that yield hits take each provider's bounds, names and patterns as arguments. They check the body as
it is sent, so that they ignore what a format leaves out.
"""

import base64
import binascii
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from functools import lru_cache, partial
from itertools import takewhile
from typing import Any, NamedTuple

import msgspec

from cardbox_cli.context.composer import PER_CALL
from cardbox_cli.context.lint.rule import Find, HistoryCall, Hit, Logged, Rules, Subject
from cardbox_cli.context.parts import (
    arguments_of,
    dict_at,
    ensure_list,
    list_at,
    text_at,
    texts_in,
    tool_name,
)
from cardbox_cli.context.provider import Provider
from cardbox_cli.context.request import RequestEntry, stored_tools
from cardbox_cli.context.request_schema import Misfit, Schema, Sort, place_text
from cardbox_cli.model.card_types import card_type
from cardbox_cli.model.cards import SYSTEM_ROLES
from cardbox_cli.model.layers import CHECKPOINT
from cardbox_cli.text.error_messages import json_type

# --- images


# The formats that providers take, by how their files begin (RFC 2083; ITU T.81; GIF89a; RFC 9649).
_BEGINNINGS = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
}
IMAGE_FORMATS = tuple(_BEGINNINGS)


def image_problem(data: str) -> str | None:
    """Return why base64 text is not an image in one of IMAGE_FORMATS; None if it is."""
    if not data:
        return "there are no bytes"
    if not is_base64(data):
        return "the bytes are not in base64"
    return None if image_format(data) else "the bytes are not a PNG, JPEG, GIF or WebP image"


def image_format(data: str) -> str | None:
    """Return the media type that the bytes of an image in base64 show; None for any other bytes."""
    try:
        head = base64.b64decode(data[:64])
    except (binascii.Error, ValueError):
        return None
    return next((name for name, beginning in _BEGINNINGS.items() if beginning.match(head)), None)


def is_base64(data: str) -> bool:
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


# --- schemas that an answer can be held to


# The keys of schemas within a schema: by name, and in a list.
_NAMED = ("properties", "$defs", "definitions")
_LISTED = ("anyOf", "allOf", "oneOf", "prefixItems")


def strict_problem(schema: dict[str, Any], *, all_required: bool = True) -> str | None:
    """Return what is wrong with a schema whose objects must be closed, and required; None if nothing."""
    if "anyOf" in schema and "type" not in schema:
        return "its top level is anyOf, not an object"
    problems = (_object_problem(each, place, all_required) for place, each in schemas_within(schema, "it"))
    return next((problem for problem in problems if problem is not None), None)


def _object_problem(schema: dict[str, Any], place: str, all_required: bool) -> str | None:
    properties = schema.get("properties")
    if not isinstance(properties, dict) and schema.get("type") != "object":
        return None
    if schema.get("additionalProperties") is not False:
        return f"{place} does not say additionalProperties: false"
    listed = list_at(schema, "required")
    absent = [name for name in properties or {} if name not in listed] if all_required else []
    return f"{place} does not require {absent[0]!r}" if absent else None


def schemas_within(schema: Any, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a schema and those within it, each with its place in words."""
    if not isinstance(schema, dict):
        return
    yield place, schema
    for key in _NAMED:
        for name, each in dict_at(schema, key).items():
            yield from schemas_within(each, f"{name!r}")
    for key in _LISTED:
        for each in list_at(schema, key):
            yield from schemas_within(each, f"an alternative of {place}")
    yield from schemas_within(schema.get("items"), f"an item of {place}")


# --- schemas of arguments


_SCHEMA_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
# What may say of an array what its items are.
_ITEMS = ("items", "prefixItems", "$ref")
_ALTERNATIVES = ("oneOf", "allOf", "anyOf")


def types_unknown(schema: Any) -> Iterator[str]:
    """Yield the types that JSON Schema does not have."""
    for place, each in schemas_within(schema, "the schema"):
        for name in _schema_types(each):
            if name not in _SCHEMA_TYPES:
                yield f"{place} is of the type {name!r}, which JSON Schema does not have"


def items_missing(schema: Any) -> Iterator[str]:
    """Yield the arrays without a schema of their items; types may be in capitals."""
    for place, each in schemas_within(schema, "the schema"):
        is_array = "array" in map(str.lower, _schema_types(each))
        if is_array and not any(key in each for key in _ITEMS):
            yield f"{place} is an array without items"


def alternatives_at_top(schema: Any) -> Iterator[str]:
    """Yield the keys for alternatives at the top of a schema."""
    for key in _ALTERNATIVES:
        if isinstance(schema, dict) and key in schema:
            yield f"the schema has {key} at its top"


def _schema_types(schema: dict[str, Any]) -> list[str]:
    return [name for name in ensure_list(schema.get("type")) if isinstance(name, str)]


# --- parameters


TEMPERATURE, TOOL_CHOICE = Rules(), Rules()


class Range(NamedTuple):
    """The least and the highest value of a parameter, both included. A nested one has a dotted name."""

    name: str
    least: int | float
    most: int | float = math.inf


def out_of_range(values: Mapping[str, Any], ranges: Iterable[Range]) -> Iterator[Hit]:
    for name, least, most in ranges:
        value = number_of(value_at(values, name))
        if value is not None and not least <= value <= most:
            bounds = f"{least} or more" if most == math.inf else f"from {least} to {most}"
            yield None, f"{name} is {value}, not {bounds}"


def too_many(values: Any, most: int, what: str) -> Iterator[Hit]:
    """Yield a list with more than `most` items; `what` names them."""
    if isinstance(values, list) and len(values) > most:
        yield None, f"there are {len(values)} {what}, not up to {most}"


def find_lonely_parameters(values: Mapping[str, Any], pairs: Iterable[tuple[str, str]]) -> Iterator[Hit]:
    """Yield the parameters that are set while the one that they depend on is missing, false or empty."""
    for name, needed in pairs:
        if values.get(name) is not None and not values.get(needed):
            yield None, f"{name} is set, but {needed} is not set"


def both_set(
    values: Mapping[str, Any],
    pairs: Iterable[tuple[str, str]],
    *,
    is_set: Callable[[Any], bool] = lambda value: value is not None,
) -> Iterator[Hit]:
    """Yield the pairs of parameters that exclude each other and are both set."""
    for one, other in pairs:
        if is_set(values.get(one)) and is_set(values.get(other)):
            yield None, f"{one} and {other} are both set"


def too_long_answer(subject: Subject, names: Iterable[str], most: int | None) -> Iterator[Hit]:
    """Yield the limits of the answer that exceed the model's own limit."""
    for name in names if most is not None else ():
        wanted = number_of(subject.body_without_messages.get(name))
        if wanted is not None and most is not None and wanted > most:
            yield None, f"{name} is {wanted}, and an answer of {subject.request.model} has at most {most}"


def refused_effort(subject: Subject, effort: Any, *, parameter: str = "effort") -> Iterator[Hit]:
    """Yield an effort that the model does not support, if its efforts are known."""
    known, model = subject.facts.efforts, subject.request.model
    if effort is not None and known is not None and effort not in known:
        words = f"knows the efforts {', '.join(known)}" if known else f"does not accept {parameter}"
        yield None, f"{model} {words}; it is {effort!r}"


def not_strict(schemas: Iterable[tuple[str, Any]]) -> Iterator[Hit]:
    """Yield the problems of schemas that must be strict, each with its name."""
    for name, schema in schemas:
        if isinstance(schema, dict) and (problem := strict_problem(schema)) is not None:
            yield None, f"{name} is strict, and {problem}"


def json_unsaid(texts: Iterable[str], what: str) -> Iterator[Hit]:
    """Yield an answer that must be JSON while no text says the word; `what` names the parameter."""
    if not any("json" in text.lower() for text in texts):
        yield None, f"{what} is json_object, and no message says the word JSON"


def value_at(value: Any, name: str) -> Any:
    """Return the value that an object has at a dotted name, or None."""
    for key in name.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def number_of(value: Any) -> int | float | Decimal | None:
    """Return a parameter that is a number; None for any other value."""
    return value if isinstance(value, int | float | Decimal) and not isinstance(value, bool) else None


@TEMPERATURE.error("temperature-out-of-range", remedy="set another temperature in the profile's llm_config")
def _temperature(subject: Subject) -> Iterator[Hit]:
    """A temperature below 0 or above the highest that the provider takes."""
    if not subject.request.config:
        return
    heat = number_of(value_at(subject.body_without_messages, subject.provider.temperature_path))
    most = subject.provider.max_temperature
    if heat is not None and not 0 <= heat <= most:
        yield None, f"the temperature is {heat}, not from 0 to {most}"


@TOOL_CHOICE.error(
    "tool-choice-unknown", remedy="add the tool's definition (a `sys.tools` card), or choose another"
)
def _tool_choice(subject: Subject) -> Iterator[Hit]:
    """A `tool_choice` that names a tool which is not among the request's tools."""
    if "tool_choice" not in subject.request.config:
        return
    choice = subject.body_without_messages.get("tool_choice")
    wanted = tool_name(choice) if text_at(choice, "type") in ("function", "tool") else None
    if wanted is not None and wanted not in {tool_name(tool) for tool in subject.tools}:
        yield None, f"tool_choice wants {wanted!r}, which is not among the request's tools"


# --- names, schemas and arguments of tools


RENAME = "rename the tool in its definition and its calls"
TOO_DEEP = "nested too deeply"
_decode = msgspec.json.Decoder().decode


class NamePattern:
    """The names that a provider allows, and their description; `words` may mark characters as code."""

    def __init__(self, pattern: str, words: str) -> None:
        self._pattern = re.compile(pattern)
        self.words = words.replace("`", "")
        self.finds = f"A tool, called or defined, whose name is not {words}."

    @classmethod
    def up_to(cls, most: int) -> "NamePattern":
        """Return the pattern of 1 to `most` letters, digits, `_` and `-`."""
        return cls(rf"[a-zA-Z0-9_-]{{1,{most}}}", f"1 to {most} letters, digits, `_` and `-`")

    def fits(self, name: str) -> bool:
        return self._pattern.fullmatch(name) is not None

    def problem(self, name: str | None, what: str) -> str | None:
        return _name_problem(self, name, what)


@lru_cache
def _name_problem(allowed: NamePattern, name: str | None, what: str) -> str | None:
    # Names are few, and called often.
    if name is None:
        return f"{what} has no name"
    return None if allowed.fits(name) else f"the name {name!r} of {what} is not {allowed.words}"


def called_functions(subject: Subject) -> Iterator[HistoryCall]:
    return (call for call in subject.history.calls if call.function is not None)


def has_name(tool: dict[str, Any]) -> bool:
    return tool_name(tool) is not None


def invalid_names(
    subject: Subject,
    *,
    allowed: NamePattern,
    calls: Callable[[Subject], Iterable[HistoryCall]] = called_functions,
    is_named: Callable[[dict[str, Any]], bool] = has_name,
    label: str = "the tool",
) -> Iterator[Hit]:
    """Yield the calls, and the tools that must have a name, whose names are not allowed."""
    for call in calls(subject):
        if (problem := allowed.problem(call.name, "the called tool")) is not None:
            yield call.entry, problem
    yield from invalid_tool_names(subject, allowed=allowed, is_named=is_named, label=label)


def invalid_tool_names(
    subject: Subject,
    *,
    allowed: NamePattern,
    is_named: Callable[[dict[str, Any]], bool] = has_name,
    label: str = "the tool",
) -> Iterator[Hit]:
    """Yield the tools that must have a name, and whose names are not allowed."""
    for number, tool in enumerate(subject.offered):
        problem = allowed.problem(tool_name(tool), f"{label} {number}") if is_named(tool) else None
        if problem is not None:
            yield None, problem


def repeated_tools(
    names: Iterable[str | None], what: str = "the tool {} is defined {} times"
) -> Iterator[Hit]:
    for name, number in Counter(name for name in names if name is not None).items():
        if number > 1:
            yield None, what.format(repr(name), number)


def malformed_arguments(
    subject: Subject, *, calls: Callable[[Subject], Iterable[HistoryCall]] = called_functions
) -> Iterator[Hit]:
    """Yield the calls whose arguments are not a JSON object in a string."""
    for call in calls(subject):
        problem = None if call.function is None else arguments_problem(call.function.get("arguments"))
        if problem is not None:
            yield call.entry, f"the arguments of {call.name!r} are {problem}"


def arguments_sent_as_text(subject: Subject) -> Iterator[Hit]:
    """Yield the calls whose arguments are not a JSON object: the model sees them as `{"_raw": text}`."""
    for call in called_functions(subject):
        if call.function is not None and arguments_of(call.function.get("arguments")) is None:
            yield call.entry, f"the arguments of {call.name!r} are sent as text: they are not a JSON object"


def schema_hits(schemas: Iterable[tuple[str, Any]], *checks: Callable[[Any], Iterable[str]]) -> Iterator[Hit]:
    """Yield the problems that some checks find in the schemas of tools, each with its name."""
    for name, schema in schemas:
        for check in checks:
            yield from ((None, f"{name}: {problem}") for problem in check(schema))


def schema_problem(schema: Any, key: str) -> str | None:
    """Return why the value under `key` of a tool is not an object's JSON schema; None if it is."""
    if not isinstance(schema, dict):
        return f"has {json_type(schema)} as its {key}, and no JSON schema"
    if schema.get("type") == "object":
        return None
    return f"has {key} of the type {schema.get('type')!r}, not 'object'"


def arguments_problem(arguments: Any) -> str | None:
    """Return why a call's `arguments` are not a JSON object in a string; None if they are."""
    if not isinstance(arguments, str):
        return "not a string that contains JSON"
    try:
        value = _decode(arguments)
    except RecursionError:
        return TOO_DEEP
    except (msgspec.DecodeError, ValueError) as exc:
        # It refuses numbers of very many digits, too.
        is_large = arguments.strip() != "" and arguments_of(arguments) is not None
        return None if is_large else f"not JSON ({exc})"
    return None if isinstance(value, dict) else "JSON, but not an object"


# --- size and caching


# How far an estimate of tokens may be off. Against tokenizers that are at hand it errs by less on whole
# conversations (`docs/reference/tokens.md`); by how much against others, nobody can measure offline.
_ESTIMATE_ERROR = 0.2

_VOLATILE = {
    "a time": re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d"),
    "a UUID": re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b|\b[0-9a-f]{32}\b", re.IGNORECASE),
    "a counter": re.compile(
        r"\b(?:request|turn|step|run|call|session|attempt|iteration)\s*(?:#|no\.|number)\s*:?\s*\d+",
        re.IGNORECASE,
    ),
}

LIMITS, CACHING = Rules(), Rules()


@LIMITS.error("over-limit", remedy="omit old messages, or replace them with a summary")
def _exceeds_window(subject: Subject) -> Iterator[Hit]:
    """A request that exceeds the model's window even if its estimated tokens are 20 % too high."""
    limit = subject.window
    if limit is not None and _fewest_and_most(subject)[0] > limit:
        yield None, _compare_with_limit(subject, limit)


@LIMITS.warning("near-limit", remedy="omit old messages, or replace them with a summary")
def _near_limit(subject: Subject) -> Iterator[Hit]:
    """A request that may exceed the model's window if its estimated tokens are 20 % too low."""
    limit = subject.window
    if limit is None:
        return
    fewest, most = _fewest_and_most(subject)
    if fewest <= limit < most:
        yield None, _compare_with_limit(subject, limit)


def _fewest_and_most(subject: Subject) -> tuple[float, float]:
    account = subject.explained
    doubt = account.tokens_estimated * _ESTIMATE_ERROR
    return account.tokens - doubt, account.tokens + doubt


def _compare_with_limit(subject: Subject, limit: int) -> str:
    account = subject.explained
    tokens = f"{'' if account.tokens_exact else '~'}{account.tokens}"
    return f"{tokens} tokens, and {subject.request.model} holds {limit}"


@CACHING.warning("volatile-text", remedy="move it to the end, next to the query")
def _volatile_texts(subject: Subject) -> Iterator[Hit]:
    """A time, a UUID or a counter in the system text before the history: each new one makes the provider read
    the whole request again."""
    for message in subject.request.messages:
        if message.body.get("role") not in SYSTEM_ROLES:
            return
        entry = subject.place(message)
        card = None if entry is None else entry.slot.card
        if card is not None and card_type(card.type).names_others:
            continue
        for name, pattern in _VOLATILE.items():
            if match := pattern.search(texts_in(message.body.get("content"))):
                yield entry, f"{name} ({match[0]!r}) is in system text before the history"


@CACHING.warning("tool-order", remedy="put the tools on one card, or in the order of their names")
def _tool_order(subject: Subject) -> Iterator[Hit]:
    """Tools from several cards, not in the order of their names: other orders of the cards change the
    prefix."""
    if len(subject.offered) < 2:
        return
    bringing = [entry for entry, card in subject.cards if stored_tools(card)]
    names = [tool_name(tool) or "" for tool in subject.offered]
    if len(bringing) > 1 and names != sorted(names):
        yield bringing[1], f"{len(bringing)} cards bring the tools, which are not in the order of their names"


@CACHING.warning(
    "layer-before-history",
    remedy="move it next to the query: --layout cache, or `layout: cache` in the profile",
)
def _early_layers(subject: Subject) -> Iterator[Hit]:
    """A layer that changes with each query (experience, knowledge, todo) before the history."""
    messages = subject.request.messages
    early = list(takewhile(lambda message: message.layer != CHECKPOINT, messages))
    for message in early if len(early) < len(messages) else []:
        if message.layer in PER_CALL:
            yield subject.place(message), f"the layer {message.layer} comes before the history"


# --- rules about the shape of a request


_PlacedMisfit = tuple[RequestEntry | None, Misfit]

SHAPE = Rules("the types of the provider's own package")


def _shape_hits(subject: Subject, *, sort: Sort) -> Iterator[Hit]:
    schema = subject.provider.schema
    version = f" to {schema.sdk}" if schema and sort in ("parameter-unknown", "key-unknown") else ""
    for entry, misfit in subject.view(_misfits):
        if misfit.sort == sort:
            # In a message the place begins within it.
            place = place_text(misfit.place if entry is None else misfit.place[2:]) or "the message"
            yield entry, f"{place} is {misfit.what}{version}"


def _enter_rule(sort: Sort, finds: str, remedy: str) -> None:
    find: Find = partial(_shape_hits, sort=sort)
    SHAPE.error(sort, finds=finds, remedy=remedy, yields=True)(find)


_enter_rule(
    "parameter-unknown",
    "A key of the request that the provider's package does not know, in the version that the message names.",
    "leave it out; --allow-unknown is for what is newer than that version",
)
_enter_rule(
    "key-unknown",
    "A key within a message, a tool or a parameter that the provider's package does not know.",
    "leave the key out, or write it as the provider does; --allow-unknown is for what is newer",
)
_enter_rule(
    "key-missing",
    "A request, or a message, a tool or a parameter in it, without a key that it must have.",
    "add the missing key",
)
_enter_rule(
    "value-invalid",
    "A value of another kind than the provider takes there.",
    "write a value that the message allows",
)
_enter_rule(
    "value-out-of-range",
    "A number, a text or a list that is smaller or larger than the provider takes there.",
    "write a value within the bounds in the message",
)
_enter_rule(
    "value-unknown",
    "A value, or the type of a part, that is none of those that there are.",
    "write one of the values in the message",
)


def _misfits(subject: Subject) -> list[_PlacedMisfit]:
    schema = subject.provider.schema
    if schema is None:
        return []
    if subject.logged is None:
        return list(_misfits_of_rendered(subject, schema))
    return list(_misfits_of_logged(subject.logged, subject.provider, schema))


def _misfits_of_logged(logged: Logged, provider: Provider, schema: Schema) -> Iterator[_PlacedMisfit]:
    key = provider.message_keys[-1]
    for number, (entry, message) in enumerate(logged.messages):
        yield from ((entry, misfit) for misfit in schema.misfits_of_item(key, number, message))
    if logged.is_request:
        yield from ((None, misfit) for misfit in schema.misfits({key: [], **logged.beside}))
    else:
        yield from _misfits_of_parameters(schema, logged.beside)


def _misfits_of_rendered(subject: Subject, schema: Schema) -> Iterator[_PlacedMisfit]:
    keys, request = subject.provider.message_keys, subject.request
    if request.config or request.tools:
        beside = {key: value for key, value in subject.body_without_messages.items() if key not in keys}
        yield from _misfits_of_parameters(schema, beside)
    for entry, _, message in subject.history.imported_messages:
        body = subject.provider.body(msgspec.structs.replace(request, messages=[message]))
        for number, item in enumerate(body[keys[-1]]):
            yield from ((entry, misfit) for misfit in schema.misfits_of_item(keys[-1], number, item))


def _misfits_of_parameters(schema: Schema, parameters: Mapping[str, Any]) -> Iterator[_PlacedMisfit]:
    """Yield the misfits of some parameters of a request."""
    for misfit in schema.misfits({key: value for key, value in parameters.items() if key in schema.keys}):
        if misfit.sort != "key-missing" or len(misfit.place) > 1:
            yield None, misfit


def is_request(provider: Provider, beside: Mapping[str, Any]) -> bool:
    """Return whether messages with these other keys are a request to a provider, and not only a list.

    A request has another key that is required; if only the messages are required, any other key of a request.
    """
    schema, messages = provider.schema, {provider.message_keys[-1]}
    if schema is None:
        return False
    return not (schema.required - messages or schema.keys - messages).isdisjoint(beside)
