"""Anthropic's answers as cards: messages in content blocks."""

from typing import Any

from cardbox_cli.context.parts import MalformedAnswer, kind
from cardbox_cli.context.provider import AnswerReader, Body, OwnIds
from cardbox_cli.model.cards import CardDraft
from cardbox_cli.providers.anthropic.blocks import NAME, is_call
from cardbox_cli.providers.anthropic.cards import AnthropicFiles

# The types of blocks that only Anthropic's messages have, and no message in the chat form.
_OWN_BLOCKS = ("tool_use", "thinking", "redacted_thinking", "server_tool_use")

# The stop reasons that mean that the answer is incomplete.
_CUT_OFF = ("max_tokens", "model_context_window_exceeded")


class AnthropicAnswers(AnswerReader):
    limits = _CUT_OFF

    def is_response(self, value: Body) -> bool:
        return kind(value) == "message" and value.get("role") == "assistant" and "stop_reason" in value

    def unwrap(self, response: Body) -> Body:
        return response

    def cut_off(self, response: Body) -> str | None:
        reason = response["stop_reason"]
        return reason if reason in _CUT_OFF else None

    def is_own(self, message: Body) -> bool:
        content = message.get("content")
        return isinstance(content, list) and (
            message.get("type") == "message" or any(kind(block) in _OWN_BLOCKS for block in content)
        )

    def draft(self, message: Body, own_ids: OwnIds) -> list[CardDraft]:
        blocks: list[Any] = list(message["content"])
        places = [place for place, block in enumerate(blocks) if kind(block) == "tool_use"]
        original_ids = [blocks[place].get("id") for place in places]
        ids = own_ids([call_id if isinstance(call_id, str) else "" for call_id in original_ids])
        for place, call_id in zip(places, ids, strict=True):
            blocks[place] = {**blocks[place], "id": call_id}
            if not is_call(blocks[place]):
                what = "is not a call: it needs a name, and an object as its input"
                raise MalformedAnswer(f"content[{place}] {what}")
        return AnthropicFiles(self.provider).content_cards("assistant", blocks, NAME)
