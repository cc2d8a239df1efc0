"""What keeps a JSON schema from being one that an answer can be held to, as several providers see it."""

from collections.abc import Iterator
from typing import Any

# Where a schema has others in it: by name, in a list, alone.
_NAMED = ("properties", "$defs", "definitions")
_LISTED = ("anyOf", "allOf", "oneOf", "prefixItems")
_ALONE = ("items",)


def strict_problem(schema: dict[str, Any], *, all_required: bool = True) -> str | None:
    """What is wrong with a schema whose objects must be closed, and must have every property required if
    `all_required`; None for a sound one."""
    if "anyOf" in schema and "type" not in schema:
        return "it is anyOf at its top, and no object"
    problems = (_object_problem(each, place, all_required) for place, each in schemas_within(schema, "it"))
    return next((problem for problem in problems if problem is not None), None)


def _object_problem(schema: dict[str, Any], place: str, all_required: bool) -> str | None:
    properties = schema.get("properties")
    kinds = schema.get("type")
    if not isinstance(properties, dict) and kinds != "object":
        return None
    if schema.get("additionalProperties") is not False:
        return f"{place} does not say additionalProperties: false"
    required = schema.get("required")
    listed = required if isinstance(required, list) else []
    absent = [name for name in properties or {} if name not in listed] if all_required else []
    return f"{place} does not require {absent[0]!r}" if absent else None


def schemas_within(schema: Any, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """A schema and those within it, each with its place in words."""
    if not isinstance(schema, dict):
        return
    yield place, schema
    for key in _NAMED:
        named = schema.get(key)
        for name, each in named.items() if isinstance(named, dict) else ():
            yield from schemas_within(each, f"{name!r}")
    for key in _LISTED:
        listed = schema.get(key)
        for each in listed if isinstance(listed, list) else ():
            yield from schemas_within(each, f"an alternative of {place}")
    for key in _ALONE:
        yield from schemas_within(schema.get(key), f"an item of {place}")
