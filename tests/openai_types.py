"""What OpenAI's own package says of a request body."""

from collections.abc import Iterator
from typing import Any

from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from pydantic import TypeAdapter

_request: TypeAdapter[Any] = TypeAdapter(CompletionCreateParamsNonStreaming)


def check_body(body: dict[str, Any]) -> None:
    """Raise pydantic's ValidationError for a body that the types refuse."""
    _exhaust(_request.validate_python(body))


def _exhaust(value: Any) -> None:
    """Go through every iterable: pydantic checks their items when they are asked for."""
    if isinstance(value, dict):
        for item in value.values():
            _exhaust(item)
    elif isinstance(value, list) or (isinstance(value, Iterator) or hasattr(value, "__next__")):
        for item in value:
            _exhaust(item)
