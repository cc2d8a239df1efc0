"""What OpenAI's own package says of a request body."""

from typing import Any

from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from pydantic import TypeAdapter

from tests import typed_bodies

_request: TypeAdapter[Any] = TypeAdapter(CompletionCreateParamsNonStreaming)


def check_body(body: dict[str, Any]) -> None:
    """Raise pydantic's ValidationError or AssertionError for a body that the types do not know.

    They know no name of the tool in its result, which real conversations have.
    """
    messages = [_without_tool_name(message) for message in body["messages"]]
    typed_bodies.check(_request, {**body, "messages": messages})


def _without_tool_name(message: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in message.items() if (key, message["role"]) != ("name", "tool")}
