"""What Google's own package says of a Gemini request body."""

from typing import Any

from google.genai import types
from pydantic import BaseModel, TypeAdapter


class _Request(BaseModel, extra="forbid"):
    """The body of `generateContent`, which the package has types for the parts of."""

    contents: list[types.Content]
    systemInstruction: types.Content | None = None
    tools: list[types.Tool] | None = None
    toolConfig: types.ToolConfig | None = None
    generationConfig: types.GenerationConfig | None = None
    safetySettings: list[types.SafetySetting] | None = None
    cachedContent: str | None = None
    labels: dict[str, str] | None = None


_request: TypeAdapter[Any] = TypeAdapter(_Request)


def check_body(body: dict[str, Any]) -> None:
    """Raise pydantic's ValidationError for a body that the types do not know: they forbid all other keys."""
    _request.validate_python(body)
