"""Parameters that are copied under the name that they have: those whose value only another provider takes.

Providers have names in common, and not always what stands there: `metadata` is any texts or a user's id. What
no provider takes is copied all the same, as a mistake that the lint finds.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from cardbox_cli.context.lint.schema import Schema, schema_of
from cardbox_cli.context.providers.registry import provider_named, providers


def copied(given: Mapping[str, Any], provider: str) -> dict[str, Any]:
    """The parameters but for those that another provider takes as they are, and this one does not."""
    own = schema_of(provider_named(provider).schema)
    unfit = [key for key, value in given.items() if not _fits(own, key, value) and _is_anothers(key, value)]
    return {key: value for key, value in given.items() if key not in unfit}


def _is_anothers(key: str, value: Any) -> bool:
    return any(key in schema.names and _fits(schema, key, value) for schema in _schemas())


def _schemas() -> Iterator[Schema]:
    return (schema_of(each.schema) for each in providers() if each.schema)


def _fits(schema: Schema, key: str, value: Any) -> bool:
    return key not in schema.keys or not any(schema.misfits_of_value(key, value))


def misfitting_keys(tool: Mapping[str, Any], provider: str) -> set[str]:
    """The keys of a tool whose values the provider does not take."""
    schema = schema_of(provider_named(provider).schema)
    found = schema.misfits_of_item("tools", 0, tool)
    return {str(misfit.place[2]) for misfit in found if len(misfit.place) > 2}
