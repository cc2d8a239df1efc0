"""What each provider's own package says of a request body."""

from collections.abc import Callable
from typing import Any

from tests import anthropic_types, bedrock_types, gemini_types, openai_types, responses_types

CHECK_BODY: dict[str, Callable[[dict[str, Any]], None]] = {
    "openai": openai_types.check_body,
    "anthropic": anthropic_types.check_body,
    "openai-responses": responses_types.check_body,
    "gemini": gemini_types.check_body,
    "bedrock-converse": bedrock_types.check_body,
}
