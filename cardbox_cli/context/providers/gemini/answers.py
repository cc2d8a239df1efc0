"""What Gemini's models answer, as cards: the content of the first candidate.

Sources: Gemini API reference, "GenerateContentResponse" and "Candidate"; the types of the package
`google-genai`, whose own dump of a response has the other spelling of the keys.
"""

from typing import Any

from cardbox_cli.context.parts import text_at
from cardbox_cli.context.providers.gemini.parts import PARTING, at
from cardbox_cli.context.providers.parted import Part
from cardbox_cli.context.providers.parted_answers import AnsweredParts
from cardbox_cli.context.providers.provider import Answers, Body
from cardbox_cli.context.tool_calls import MalformedAnswer

# The reasons to stop that leave an answer whole; all others end it early, or keep it back.
_WHOLE = ("STOP", "FINISH_REASON_UNSPECIFIED")
# What only a response has, beside its candidates.
_BESIDE = ("usageMetadata", "promptFeedback")
_UNSPECIFIED = "BLOCK_REASON_UNSPECIFIED"


def _is_response(value: Body) -> bool:
    """Whether it is a response, which has no candidates where the prompt was blocked; or a content alone.

    Other JSON may have candidates, too: those here have a content, or a reason why they have none.
    """
    candidate = _candidate(value)
    has_one = isinstance(at(candidate, "content"), dict) or at(candidate, "finishReason") is not None
    return has_one or _is_content(value) or any(isinstance(at(value, key), dict) for key in _BESIDE)


def _is_content(value: Body) -> bool:
    return value.get("role") == "model" and isinstance(value.get("parts"), list)


def _candidate(response: Body) -> Any:
    candidates = response.get("candidates")
    return candidates[0] if isinstance(candidates, list) and candidates else None


def _unwrap(response: Body) -> Body:
    if _is_content(response):
        return response
    candidate = _candidate(response)
    content = candidate.get("content") if isinstance(candidate, dict) else None
    if not isinstance(candidate, dict) or not isinstance(content, dict | None):
        raise MalformedAnswer("the response has no candidates[0] with a content")
    return content or {}


def _cut_off(response: Body) -> str | None:
    reason = at(_candidate(response), "finishReason")
    return reason if isinstance(reason, str) and reason not in _WHOLE else None


def _error(value: Body) -> str | None:
    """That the prompt was blocked, for which there are no candidates."""
    reason = at(at(value, "promptFeedback"), "blockReason")
    is_blocked = isinstance(reason, str) and reason != _UNSPECIFIED
    return f"the prompt was blocked ({reason})" if is_blocked else None


def _with_id(part: Part, call_id: str) -> Part:
    key = "functionCall" if "functionCall" in part else "function_call"
    return {**part, key: {**part[key], "id": call_id}}


_ANSWERED = AnsweredParts(
    parting=PARTING,
    key="parts",
    is_call=lambda part: isinstance(at(part, "functionCall"), dict),
    call_id=lambda part: text_at(at(part, "functionCall"), "id"),
    with_id=_with_id,
)

ANSWERS = Answers(
    is_response=_is_response,
    unwrap=_unwrap,
    cut_off=_cut_off,
    limits=("MAX_TOKENS",),
    usage=lambda response: at(response, "usageMetadata"),
    error=_error,
    parts=_ANSWERED.parts,
    draft=_ANSWERED.draft,
)
