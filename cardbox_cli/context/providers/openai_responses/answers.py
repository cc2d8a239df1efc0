"""What OpenAI's Responses answer, as cards: the items of the output.

Sources: OpenAI API reference, "The response object"; the types of the package `openai`.
"""

from cardbox_cli.context.parts import kind, text_at
from cardbox_cli.context.providers.openai_responses.items import PARTING
from cardbox_cli.context.providers.parted_answers import AnsweredParts
from cardbox_cli.context.providers.provider import Answers, Body
from cardbox_cli.context.tool_calls import MalformedAnswer

_CALLS = ("function_call", "custom_tool_call")
_ITEMS = ("message", "reasoning", *_CALLS)
# The parts of a message that only an item of the output has.
_SAID = ("output_text", "refusal")

_LIMIT = "incomplete: max_output_tokens"


def _is_response(value: Body) -> bool:
    """Whether it is a response, or the item of an output that is its message."""
    output = value.get("output")
    has_items = isinstance(output, list) and any(kind(item) in _ITEMS for item in output)
    return has_items or value.get("object") == "response" or _is_message(value)


def _is_message(value: Body) -> bool:
    content = value.get("content") if kind(value) == "message" else None
    return isinstance(content, list) and any(kind(part) in _SAID for part in content)


def _unwrap(response: Body) -> Body:
    output = [response] if _is_message(response) else response.get("output")
    if not isinstance(output, list):
        raise MalformedAnswer("the response has no list of items as its output")
    return {"output": output}


def _cut_off(response: Body) -> str | None:
    """The status of what is not completed, with the reason where one is given."""
    status = response.get("status")
    if status in (None, "completed"):
        return None
    reason = text_at(response.get("incomplete_details"), "reason")
    return f"{status}: {reason}" if reason else str(status)


_ANSWERED = AnsweredParts(
    parting=PARTING,
    key="output",
    is_call=lambda item: kind(item) in _CALLS,
    call_id=lambda item: item.get("call_id"),
    with_id=lambda item, call_id: {**item, "call_id": call_id},
)

ANSWERS = Answers(
    is_response=_is_response,
    unwrap=_unwrap,
    cut_off=_cut_off,
    limits=(_LIMIT,),
    parts=_ANSWERED.parts,
    draft=_ANSWERED.draft,
)
