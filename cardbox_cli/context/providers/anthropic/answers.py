"""What Anthropic's models answer, as cards: a message in content blocks."""

from typing import Any

from cardbox_cli.context.parts import kind
from cardbox_cli.context.providers.anthropic.blocks import is_call
from cardbox_cli.context.providers.anthropic.cards import content_cards
from cardbox_cli.context.providers.anthropic.encoding import NAME
from cardbox_cli.context.providers.provider import Answers, Body, OwnIds
from cardbox_cli.context.tool_calls import MalformedAnswer
from cardbox_cli.model.cards import CardDraft

# What tells a list of blocks from one of a chat message's parts.
_OWN_BLOCKS = ("tool_use", "thinking", "redacted_thinking", "server_tool_use")

# The reasons of Anthropic's to stop in the middle of what a model says.
_CUT_OFF = ("max_tokens", "model_context_window_exceeded")


def _is_response(value: Body) -> bool:
    """Whether it is a message with the reason that it stopped for, which is Anthropic's whole response."""
    return kind(value) == "message" and value.get("role") == "assistant" and "stop_reason" in value


def _cut_off(response: Body) -> str | None:
    reason = response["stop_reason"]
    return reason if reason in _CUT_OFF else None


def _is_own(message: Body) -> bool:
    content = message.get("content")
    return isinstance(content, list) and (
        message.get("type") == "message" or any(kind(block) in _OWN_BLOCKS for block in content)
    )


def _draft(message: Body, own_ids: OwnIds) -> list[CardDraft]:
    blocks: list[Any] = list(message["content"])
    places = [place for place, block in enumerate(blocks) if kind(block) == "tool_use"]
    given = [blocks[place].get("id") for place in places]
    ids = own_ids([call_id if isinstance(call_id, str) else "" for call_id in given])
    for place, call_id in zip(places, ids, strict=True):
        blocks[place] = {**blocks[place], "id": call_id}
        if not is_call(blocks[place]):
            raise MalformedAnswer(f"content[{place}] is no call: it needs a name, and an object as its input")
    return content_cards("assistant", blocks, NAME)


ANSWERS = Answers(
    is_response=_is_response,
    unwrap=lambda response: response,
    cut_off=_cut_off,
    limits=_CUT_OFF,
    is_own=_is_own,
    draft=_draft,
)
