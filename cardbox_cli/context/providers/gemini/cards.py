"""Gemini's contents as cards, and back, exactly: where a file has them, and by what it is known."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cardbox_cli.context.parts import kind
from cardbox_cli.context.providers.gemini.body import named_part
from cardbox_cli.context.providers.gemini.parts import NAME, PARTING
from cardbox_cli.context.providers.gemini.requests import read_request
from cardbox_cli.context.providers.parted import Part, draft_parts
from cardbox_cli.context.providers.parted_bodies import PartedFiles
from cardbox_cli.context.providers.provider import Body, MessageFiles, MessageShape
from cardbox_cli.model.cards import Card, CardDraft

_KEY = "contents"
_ROLES = ("user", "model", "function")
_CALLS = frozenset(("functionCall", "functionResponse"))
_SYSTEM_KEYS = ("systemInstruction", "system_instruction")


def _system_parts(value: Any) -> list[Part]:
    """The parts of a system instruction, which may be a text alone."""
    parts = value.get("parts") if isinstance(value, dict) else value
    return [{"text": parts}] if isinstance(parts, str) else _parts(parts)


def _parts(parts: Any) -> list[Part]:
    """The parts of a content; one may stand alone, as Google's own examples have it."""
    return parts if isinstance(parts, list) else [parts] if isinstance(parts, dict) else []


def _alone(message: Any) -> Any:
    """The content that stands in the place of all; None where it is one of a list."""
    return message.get(_KEY) if isinstance(message, dict) and len(message) == 1 else None


_FILES = PartedFiles(
    parting=PARTING,
    parts_key="parts",
    assistant="model",
    system_key=_SYSTEM_KEYS[0],
    system_of=lambda parts: {"parts": parts},
    system_parts=_system_parts,
    alone_key=_KEY,
)


def _draft(message: Body) -> list[CardDraft]:
    if (alone := _alone(message)) is not None:
        return _FILES.keep_alone(alone, _draft(alone))
    role = "assistant" if message.get("role") == "model" else "user"
    return _FILES.keep_around(message, role, draft_parts(PARTING, role, _parts(message.get("parts"))))


def _export(cards: Iterable[Card]) -> tuple[Body, Iterator[Body]]:
    beside, messages = _FILES.export(cards)
    return beside, _named(messages)


def _named(messages: Iterable[Body]) -> Iterator[Body]:
    names: dict[str, str] = {}
    for message in messages:
        parts = message.get("parts")
        if isinstance(parts, list):
            message = {**message, "parts": [named_part(part, names) for part in parts]}
        yield message


def _is_message(value: Any) -> bool:
    """Whether it is meant as a content: an object with parts, which have no type, and no other content."""
    if not isinstance(value, dict) or "parts" not in value or "content" in value:
        return False
    return not any(map(kind, _parts(value["parts"])))


def _problem(message: Any) -> str | None:
    """What keeps a value from being a content. The role may be left out, and is the user's then."""
    message = _alone(message) or message
    if not isinstance(message, dict) or message.get("role", "user") in _ROLES:
        is_one = _is_message(message) and isinstance(message["parts"], list | dict)
        return None if is_one else "a content is an object with a list of parts"
    return f"the role {message['role']!r} is none of Gemini's: roles are {', '.join(_ROLES)}"


def _calls(part: Any) -> bool:
    return isinstance(part, dict) and "type" not in part and not _CALLS.isdisjoint(part)


def _marks_message(message: Any) -> str | None:
    return "a message has 'parts'" if _is_message(_alone(message) or message) else None


def _marks_beside(beside: Mapping[str, Any]) -> str | None:
    return next(
        (
            f"{key!r} stands beside the messages"
            for key in (*_SYSTEM_KEYS, "generationConfig")
            if key in beside
        ),
        None,
    )


FILES = MessageFiles(
    keyspace=(NAME,),
    roles=_ROLES,
    shape=MessageShape(key=_KEY, is_message=_is_message, is_own=True, takes_one=True),
    problem=_problem,
    calls=_calls,
    marks_beside=_marks_beside,
    marks_message=_marks_message,
    system_keys=_SYSTEM_KEYS,
    draft=_draft,
    draft_system=_FILES.draft_system,
    keep_original=_FILES.keep_original,
    export=_export,
    read_request=read_request,
    taken_apart=("generationConfig",),
    endpoints=(":generateContent", ":streamGenerateContent", ":countTokens"),
    request_keys=("contents",),
    parameters=("generationConfig", "toolConfig", "safetySettings", "cachedContent"),
)
