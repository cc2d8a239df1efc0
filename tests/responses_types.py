"""What OpenAI's own package says of a body of the Responses."""

from typing import Any

from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from pydantic import TypeAdapter

from tests import typed_bodies

_request: TypeAdapter[Any] = TypeAdapter(ResponseCreateParamsNonStreaming)


def check_body(body: dict[str, Any]) -> None:
    """Raise pydantic's ValidationError or AssertionError for a body that the types do not know."""
    typed_bodies.check(_request, body)
