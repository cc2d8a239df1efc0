"""Checking a request body by the types of a provider's own package."""

from typing import Any

from pydantic import BaseModel, TypeAdapter


def check(types: TypeAdapter[Any], body: dict[str, Any]) -> None:
    """Raise pydantic's ValidationError for what the types refuse, AssertionError for a key unknown to them.

    Pydantic leaves out such keys, and checks the items of an iterable when they are asked for.
    """
    assert whole(types.validate_python(body)) == body


def whole(value: Any) -> Any:
    """A validated value as plain JSON, its iterables gone through."""
    if isinstance(value, BaseModel):
        value = value.model_dump(exclude_unset=True)
    if isinstance(value, dict):
        return {key: whole(item) for key, item in value.items()}
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        return value
    return [whole(item) for item in value]
