"""The OpenAI chat-completions request body.

Source: OpenAI API reference, "Create chat completion".
"""

from typing import Any

from cardbox_cli.context.request import Request


def body(request: Request) -> dict[str, Any]:
    """The JSON body of `request`; without a model when none is known."""
    parts: dict[str, Any] = {} if request.model is None else {"model": request.model}
    parts["messages"] = [message.body for message in request.messages]
    if request.tools:
        parts["tools"] = request.tools
    return {**parts, **request.parameters}
