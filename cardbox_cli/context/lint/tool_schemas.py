"""What is wrong within the JSON schema of a tool's arguments, as several providers see it."""

from collections.abc import Iterator
from typing import Any

from cardbox_cli.context.lint.strict_schemas import schemas_within

_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
# What may say of an array what its items are.
_ITEMS = ("items", "prefixItems", "$ref")
_ALTERNATIVES = ("oneOf", "allOf", "anyOf")


def types_unknown(schema: Any) -> Iterator[str]:
    """The types that JSON Schema does not have."""
    for place, each in schemas_within(schema, "the schema"):
        for name in _types(each):
            if name not in _TYPES:
                yield f"{place} is of the type {name!r}, which JSON Schema does not have"


def items_missing(schema: Any) -> Iterator[str]:
    """The arrays that do not say what their items are; types may be written in capitals."""
    for place, each in schemas_within(schema, "the schema"):
        is_array = "array" in map(str.lower, _types(each))
        if is_array and not any(key in each for key in _ITEMS):
            yield f"{place} is an array without items"


def alternatives_at_top(schema: Any) -> Iterator[str]:
    """The words for one of several schemas at the top of this."""
    for key in _ALTERNATIVES:
        if isinstance(schema, dict) and key in schema:
            yield f"the schema has {key} at its top"


def _types(schema: dict[str, Any]) -> list[str]:
    named = schema.get("type")
    names = named if isinstance(named, list) else [named]
    return [name for name in names if isinstance(name, str)]
