"""Answers of OpenAI's Responses as cards: the items of the output.

Sources: OpenAI API reference, "The response object"; the types of the package `openai`.
"""

from typing import Any

from cardbox_cli.context.parts import MalformedAnswer, kind, text_at
from cardbox_cli.context.provider import Body
from cardbox_cli.providers.parts import Part, PartsAnswers

_CALLS = ("function_call", "custom_tool_call")
_ITEMS = ("message", "reasoning", *_CALLS)
# The types of parts that only output items have.
_SAID = ("output_text", "refusal")

_LIMIT = "incomplete: max_output_tokens"


class ResponsesAnswers(PartsAnswers):
    """A reader of responses, or of the message item of an output."""

    limits = (_LIMIT,)
    parts_key = "output"

    def is_response(self, value: Body) -> bool:
        output = value.get("output")
        has_items = isinstance(output, list) and any(kind(item) in _ITEMS for item in output)
        return has_items or value.get("object") == "response" or _is_message(value)

    def unwrap(self, response: Body) -> Body:
        output = [response] if _is_message(response) else response.get("output")
        if not isinstance(output, list):
            raise MalformedAnswer("the response has no list of items as its output")
        return {"output": output}

    def cut_off(self, response: Body) -> str | None:
        """Return the status of a response that is not completed, with the reason if one is given."""
        status = response.get("status")
        if status in (None, "completed"):
            return None
        reason = text_at(response.get("incomplete_details"), "reason")
        return f"{status}: {reason}" if reason else str(status)

    def is_call(self, part: Part) -> bool:
        return kind(part) in _CALLS

    def call_id(self, part: Part) -> Any:
        return part.get("call_id")

    def replace_id(self, part: Part, call_id: str) -> Part:
        return {**part, "call_id": call_id}


def _is_message(value: Body) -> bool:
    content = value.get("content") if kind(value) == "message" else None
    return isinstance(content, list) and any(kind(part) in _SAID for part in content)
