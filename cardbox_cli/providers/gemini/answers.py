"""Gemini's answers as cards: the content of the first candidate.

Sources: Gemini API reference, "GenerateContentResponse" and "Candidate"; the types of the package
`google-genai`, which writes the keys of a response in snake_case.
"""

from typing import Any

from cardbox_cli.context.parts import MalformedAnswer, text_at
from cardbox_cli.context.provider import Body
from cardbox_cli.providers.gemini.cards import get_either_case
from cardbox_cli.providers.parts import Part, PartsAnswers

# The finish reasons of a complete answer. Any other reason means that the answer was cut off or withheld.
_WHOLE = ("STOP", "FINISH_REASON_UNSPECIFIED")
# The keys that only a response of Gemini has, in addition to its candidates.
_OWN_KEYS = ("usageMetadata", "promptFeedback")
_UNSPECIFIED = "BLOCK_REASON_UNSPECIFIED"


class GeminiAnswers(PartsAnswers):
    """A reader of Gemini's responses with candidates, or of one content."""

    limits = ("MAX_TOKENS",)
    parts_key = "parts"

    def is_response(self, value: Body) -> bool:
        """Return whether a value is a content or a response. A blocked prompt results in no candidates.

        Other JSON may also have candidates. Candidates of Gemini have a content or a finish reason.
        """
        candidate = _candidate(value)
        if isinstance(get_either_case(candidate, "content"), dict) or _is_content(value):
            return True
        is_ended = get_either_case(candidate, "finishReason") is not None
        return is_ended or any(isinstance(get_either_case(value, key), dict) for key in _OWN_KEYS)

    def unwrap(self, response: Body) -> Body:
        if _is_content(response):
            return response
        candidate = _candidate(response)
        content = candidate.get("content") if isinstance(candidate, dict) else None
        if not isinstance(candidate, dict) or not isinstance(content, dict | None):
            raise MalformedAnswer("the response has no candidates[0] with a content")
        return content or {}

    def cut_off(self, response: Body) -> str | None:
        reason = get_either_case(_candidate(response), "finishReason")
        return reason if isinstance(reason, str) and reason not in _WHOLE else None

    def usage(self, response: Body) -> Any:
        return get_either_case(response, "usageMetadata")

    def error(self, value: Body) -> str | None:
        reason = get_either_case(get_either_case(value, "promptFeedback"), "blockReason")
        is_blocked = isinstance(reason, str) and reason != _UNSPECIFIED
        return f"the prompt was blocked ({reason})" if is_blocked else None

    def is_call(self, part: Part) -> bool:
        return isinstance(get_either_case(part, "functionCall"), dict)

    def call_id(self, part: Part) -> Any:
        return text_at(get_either_case(part, "functionCall"), "id")

    def replace_id(self, part: Part, call_id: str) -> Part:
        key = "functionCall" if "functionCall" in part else "function_call"
        return {**part, key: {**part[key], "id": call_id}}


def _is_content(value: Body) -> bool:
    return value.get("role") == "model" and isinstance(value.get("parts"), list)


def _candidate(response: Body) -> Any:
    candidates = response.get("candidates")
    return candidates[0] if isinstance(candidates, list) and candidates else None
