"""Answers of models on Bedrock as cards: the message of Converse's output.

Sources: Amazon Bedrock API reference, "Converse" and its response; the model of `bedrock-runtime` in the
package `botocore`.
"""

from typing import Any

from cardbox_cli.context.parts import MalformedAnswer, list_at, text_at
from cardbox_cli.context.provider import Body
from cardbox_cli.providers.bedrock_converse.cards import kind_of
from cardbox_cli.providers.parts import Part, PartsAnswers

# The stop reasons of an answer that is incomplete because of a limit.
_LIMITS = ("max_tokens", "model_context_window_exceeded")
_FAULTS = ("content_filtered", "guardrail_intervened", "malformed_model_output", "malformed_tool_use")
# The only keys of an error body. The type of the error is in a header.
_OF_ERRORS = frozenset(("message", "Message", "__type"))


class BedrockAnswers(PartsAnswers):
    limits = _LIMITS
    parts_key = "content"

    def is_response(self, value: Body) -> bool:
        output = value.get("output")
        return isinstance(output, dict) and (isinstance(output.get("message"), dict) or "stopReason" in value)

    def unwrap(self, response: Body) -> Body:
        message: Any = response["output"].get("message")
        if not isinstance(message, dict):
            raise MalformedAnswer("the response has no output.message")
        return message

    def cut_off(self, response: Body) -> str | None:
        reason = response.get("stopReason")
        return reason if reason in (*_LIMITS, *_FAULTS) else None

    def error(self, value: Body) -> str | None:
        if not value.keys() <= _OF_ERRORS:
            return None
        return text_at(value, "message") or text_at(value, "Message") or text_at(value, "__type")

    def is_own(self, message: Body) -> bool:
        return any("type" not in block for block in list_at(message, "content") if kind_of(block))

    def is_call(self, part: Part) -> bool:
        """Return whether a block calls a client's tool. The server answers a call with a `type`."""
        is_use = isinstance(part, dict) and isinstance(part.get("toolUse"), dict)
        return is_use and "type" not in part["toolUse"]

    def call_id(self, part: Part) -> Any:
        return part["toolUse"].get("toolUseId")

    def replace_id(self, part: Part, call_id: str) -> Part:
        return {**part, "toolUse": {**part["toolUse"], "toolUseId": call_id}}
