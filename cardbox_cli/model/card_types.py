"""The card types that cbx knows: one record for each, with every rule that depends on a card's type.

A card of any other type becomes a message with the card's role. It is not knowledge and belongs to no layer.
"""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import msgspec

from cardbox_cli.model.content import (
    Content,
    content_from_value,
    fields_schema,
    tool_definitions,
    tool_result,
)
from cardbox_cli.model.layers import COMPRESSION, MEMORY, PERSONA, TODO

INSTRUCTION = "task.instruction"
DELIVERABLE = "task.deliverable"
RESULT_FIELDS = "task.result_fields"
THOUGHT = "agent.thought"
PLAN = "agent.plan"
REASONING = "agent.reasoning"
ASIDE = "agent.aside"
TOOL_CALL = "tool.call"
TOOL_RESULT = "tool.result"
PROFILE = "sys.profile"
RENDERED_PROMPT = "sys.rendered_prompt"
TOOLS = "sys.tools"
MUST_END_WITH = "sys.must_end_with_required"
PARENT_POINTER = "meta.parent_pointer"
SUMMARY = "context.compression"
STORED_LAYER = "context.layer"
TODO_ITEM = "todo.item"
CHAT_MESSAGE = "chat.message"
CHAT_WINDOW = "chat.window"
CHAT_PERSONA = "chat.persona"
CHAT_MEMORY = "chat.memory"
SESSION_EVENT = "session.event"

# A "message" is sent in every format, "own-format" only in the format of its import, and "nothing" never.
MessageForm: TypeAlias = Literal["message", "own-format", "nothing"]


class CardType(msgspec.Struct, frozen=True):
    """Rules for the cards of one type.

    `role` is the default role. `becomes` states in which formats a card becomes a message. If it does not in
    all formats, `reason` explains why. A request gets the layer `layer` automatically if it has such cards.

    `is_knowledge` means that knowledge searches find the cards. `is_snapshot` means that they store a part of
    a sent request, and no later turn sees them. `is_late` means that they are system text after the history.
    `may_be_empty` allows cards without text. `names_others` allows ids of other cards in the text.
    `content_of` converts a JSON value to a content.
    """

    role: str
    becomes: MessageForm = "message"
    reason: str = ""
    layer: str | None = None
    is_knowledge: bool = False
    is_snapshot: bool = False
    is_late: bool = False
    may_be_empty: bool = False
    names_others: bool = False
    content_of: Callable[[Any], Content] = content_from_value


CARD_TYPES: dict[str, CardType] = {
    INSTRUCTION: CardType("user", is_knowledge=True),
    THOUGHT: CardType("assistant", is_knowledge=True),
    PLAN: CardType("assistant"),
    TOOL_CALL: CardType("assistant", "nothing", "scheduling and audit; its thought has the call"),
    TOOL_RESULT: CardType("tool", is_knowledge=True, may_be_empty=True, content_of=tool_result),
    DELIVERABLE: CardType("assistant", is_knowledge=True),
    PROFILE: CardType("system", "nothing", "makes the system prompt"),
    RENDERED_PROMPT: CardType("system", is_snapshot=True),
    TOOLS: CardType(
        "system", "nothing", "becomes the request's tools", is_snapshot=True, content_of=tool_definitions
    ),
    MUST_END_WITH: CardType("system", is_late=True),
    PARENT_POINTER: CardType("system", is_late=True, names_others=True),
    RESULT_FIELDS: CardType("system", is_late=True, content_of=fields_schema),
    SUMMARY: CardType("system", "nothing", f"joins the layer {COMPRESSION}", layer=COMPRESSION),
    STORED_LAYER: CardType(
        "system", "nothing", "a layer of an earlier request, as its metadata names it", is_snapshot=True
    ),
    TODO_ITEM: CardType("system", "nothing", f"belongs to the layer {TODO}", layer=TODO),
    CHAT_MESSAGE: CardType("user", is_knowledge=True),
    CHAT_WINDOW: CardType("assistant"),
    CHAT_PERSONA: CardType("system", "nothing", f"joins the layer {PERSONA}", layer=PERSONA),
    CHAT_MEMORY: CardType("system", "nothing", f"is the layer {MEMORY}", layer=MEMORY),
    REASONING: CardType("assistant", "own-format", "thinking, sent only in formats that support it"),
    ASIDE: CardType("assistant", "own-format", "blocks of one format, sent in that format alone"),
    SESSION_EVENT: CardType("system", "nothing", "an event of a session, not a message"),
}

SNAPSHOT_TYPES = tuple(name for name, record in CARD_TYPES.items() if record.is_snapshot)
# The rules for unknown card types.
DEFAULT_TYPE = CardType("user")


def card_type(name: str) -> CardType:
    return CARD_TYPES.get(name, DEFAULT_TYPE)
