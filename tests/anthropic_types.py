"""What Anthropic's own package says of a request body."""

from typing import Any

from anthropic.types.message_create_params import MessageCreateParamsNonStreaming
from pydantic import TypeAdapter

from tests import typed_bodies

_request: TypeAdapter[Any] = TypeAdapter(MessageCreateParamsNonStreaming)
_SAMPLING = ("temperature", "top_p", "top_k")


def check_body(body: dict[str, Any]) -> None:
    """Raise pydantic's ValidationError or AssertionError for a body that the types do not know.

    They know no parameters of sampling, which only older models take.
    """
    typed_bodies.check(_request, {key: value for key, value in body.items() if key not in _SAMPLING})
