"""What models on Bedrock answer, as cards: the message of Converse's output.

Sources: Amazon Bedrock API reference, "Converse" and its response; the model of `bedrock-runtime` in the
package `botocore`.
"""

from typing import Any

from cardbox_cli.context.parts import text_at
from cardbox_cli.context.providers.bedrock_converse.blocks import PARTING, kind_of
from cardbox_cli.context.providers.parted import Part
from cardbox_cli.context.providers.parted_answers import AnsweredParts
from cardbox_cli.context.providers.provider import Answers, Body
from cardbox_cli.context.tool_calls import MalformedAnswer

# The reasons to stop in the middle of what a model says, or to keep it back.
_LIMITS = ("max_tokens", "model_context_window_exceeded")
_CUT_OFF = (
    *_LIMITS,
    *("content_filtered", "guardrail_intervened", "malformed_model_output", "malformed_tool_use"),
)
# What the body of an error has, and nothing else: its type stands in a header.
_OF_ERRORS = frozenset(("message", "Message", "__type"))


def _is_response(value: Body) -> bool:
    output = value.get("output")
    return isinstance(output, dict) and (isinstance(output.get("message"), dict) or "stopReason" in value)


def _unwrap(response: Body) -> Body:
    message: Any = response["output"].get("message")
    if not isinstance(message, dict):
        raise MalformedAnswer("the response has no output.message")
    return message


def _cut_off(response: Body) -> str | None:
    reason = response.get("stopReason")
    return reason if reason in _CUT_OFF else None


def _error(value: Body) -> str | None:
    if not value.keys() <= _OF_ERRORS:
        return None
    return text_at(value, "message") or text_at(value, "Message") or text_at(value, "__type")


def _is_own(message: Body) -> bool:
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    return any("type" not in block for block in blocks if kind_of(block))


def _is_call(block: Part) -> bool:
    """Whether it calls a tool; a call with a type is one that the server answers."""
    return (
        isinstance(block, dict) and isinstance(block.get("toolUse"), dict) and "type" not in block["toolUse"]
    )


_ANSWERED = AnsweredParts(
    parting=PARTING,
    key="content",
    is_call=_is_call,
    call_id=lambda block: block["toolUse"].get("toolUseId"),
    with_id=lambda block, call_id: {**block, "toolUse": {**block["toolUse"], "toolUseId": call_id}},
)

ANSWERS = Answers(
    is_response=_is_response,
    unwrap=_unwrap,
    cut_off=_cut_off,
    limits=_LIMITS,
    error=_error,
    is_own=_is_own,
    parts=_ANSWERED.parts,
    draft=_ANSWERED.draft,
)
