"""Bedrock Converse's messages as cards, and back, exactly: where a file has them, and by what it is known."""

from collections.abc import Mapping
from typing import Any

from cardbox_cli.context.parts import kind, text_at
from cardbox_cli.context.providers.bedrock_converse.blocks import KINDS, NAME, PARTING
from cardbox_cli.context.providers.bedrock_converse.body import read_request
from cardbox_cli.context.providers.parted import draft_parts
from cardbox_cli.context.providers.parted_bodies import PartedFiles
from cardbox_cli.context.providers.provider import Body, MessageFiles, MessageShape
from cardbox_cli.model.cards import CardDraft

_SYSTEM = "system"
_ROLES = ("user", "assistant")
# Keys that stand only in a request to Bedrock.
_OWN_KEYS = ("inferenceConfig", "additionalModelRequestFields", "guardrailConfig", "performanceConfig")
_FILES = PartedFiles(
    parting=PARTING,
    parts_key="content",
    assistant="assistant",
    system_key=_SYSTEM,
    system_of=lambda blocks: blocks,
    system_parts=lambda value: value if isinstance(value, list) else [],
)


def _draft(message: Body) -> list[CardDraft]:
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    return _FILES.keep_around(message, message["role"], draft_parts(PARTING, message["role"], blocks))


def _is_block(value: Any) -> bool:
    return isinstance(value, dict) and "type" not in value and any(key in KINDS for key in value)


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("role"), str) and "parts" not in value


def _problem(message: Any) -> str | None:
    """What keeps a value from being a message: another role, and text or blocks as others write them."""
    if text_at(message, "role") not in _ROLES:
        role = message.get("role") if isinstance(message, dict) else None
        return f"the role {role!r} is none of Bedrock's: roles are {', '.join(_ROLES)}"
    content = message.get("content")
    if isinstance(content, str):
        return "the content of a message is a list of blocks, not a text"
    other = next(filter(None, map(kind, content)), None) if isinstance(content, list) else None
    return None if other is None else f"a block is of type {other!r}, and Bedrock's have no type"


def _calls(block: Any) -> bool:
    return _is_block(block) and ("toolUse" in block or "toolResult" in block)


def _marks_message(message: Any) -> str | None:
    """What tells that a message's content is blocks that name their kind by a key."""
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list) or not content or not _is_message(message):
        return None
    if not all(map(_is_block, content)):
        return None
    return f"a block has {next(key for key in content[0] if key in KINDS)!r} and no 'type'"


def _marks_beside(beside: Mapping[str, Any]) -> str | None:
    return next((f"{key!r} stands beside the messages" for key in _OWN_KEYS if key in beside), None)


FILES = MessageFiles(
    keyspace=(NAME,),
    roles=_ROLES,
    shape=MessageShape(key="messages", is_message=_is_message, is_own=True),
    problem=_problem,
    calls=_calls,
    marks_beside=_marks_beside,
    marks_message=_marks_message,
    system_keys=(_SYSTEM,),
    draft=_draft,
    draft_system=_FILES.draft_system,
    keep_original=_FILES.keep_original,
    export=_FILES.export,
    read_request=read_request,
    endpoints=("/converse", "/converse-stream"),
    request_keys=(*_OWN_KEYS, "toolConfig"),
    parameters=("inferenceConfig", "toolConfig", "guardrailConfig", "additionalModelRequestFields"),
)
