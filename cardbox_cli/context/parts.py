"""Content parts, the pieces of a message that is no plain text: what sort they are, and the text in them.

Pure functions of single values, which may be anything. What the parts of a provider's format mean, and how
they become those of another, stands in `providers/`.
"""

from collections.abc import Iterable
from typing import Any

# Keys of a part that name things or hold bytes: no text for a reader.
_NO_TEXT = frozenset(
    {"type", "id", "tool_use_id", "file_id", "media_type", "signature", "cache_control", "caller"}
    | {"encrypted_content", "encrypted_index", "encrypted_stdout", "citations", "page_age"}
)
_TYPES_WITHOUT_TEXT = ("base64", "redacted_thinking")


def text_part(text: str) -> dict[str, Any]:
    """A part that is text."""
    return {"type": "text", "text": text}


def kind(part: Any) -> str:
    """A part's type; "" for what is no part."""
    name = part.get("type") if isinstance(part, dict) else None
    return name if isinstance(name, str) else ""


def is_text(part: Any) -> bool:
    """Whether it is a text part that holds text."""
    return kind(part) == "text" and isinstance(part.get("text"), str)


def is_nothing(value: Any) -> bool:
    """Whether a value says no more than a key that is missing: null or empty. 0 and false do."""
    return value is None or (isinstance(value, str | list | dict) and not value)


def text_at(value: Any, key: str) -> str | None:
    """The text that an object has under `key`; None where it has none, or is no object."""
    text = value.get(key) if isinstance(value, dict) else None
    return text if isinstance(text, str) else None


def texts_in(content: Any) -> str:
    """A message's content where it is a text, else the texts of its parts, a line each."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(text for part in parts if (text := text_at(part, "text")) is not None)


def tool_name(value: Any) -> str | None:
    """The name of a tool, in a definition or a call: of a function, a custom tool, or neither."""
    inner = [value.get(key) for key in ("function", "custom")] if isinstance(value, dict) else []
    return text_at(next((each for each in inner if isinstance(each, dict)), value), "name")


def as_list(content: Any) -> list[Any]:
    """Content as a list, whatever it is."""
    return content if isinstance(content, list) else [] if content is None else [content]


def text_of(parts: Iterable[Any]) -> str:
    """All text that parts hold, a line each; the pieces of a cited sentence stay one line."""
    text = ""
    in_sentence = True
    for part in parts:
        words = words_of(part)
        is_cited = is_text(part) and bool(part.get("citations"))
        if words:
            text += words if in_sentence or is_cited else f"\n{words}"
            in_sentence = is_cited
    return text


def words_of(value: Any) -> str:
    """Every string in a value that is meant to be read, a line each."""
    lines: list[str] = []
    _collect_words(value, lines)
    return "\n".join(lines)


def _collect_words(value: Any, lines: list[str]) -> None:
    """Names and titles come first, the rest by key."""
    if isinstance(value, str):
        if value:
            lines.append(value)
    elif isinstance(value, list):
        for item in value:
            _collect_words(item, lines)
    elif is_text(value):
        _collect_words(value["text"], lines)
    elif isinstance(value, dict) and value.get("type") not in _TYPES_WITHOUT_TEXT:
        for key in sorted(value.keys() - _NO_TEXT, key=lambda key: (key not in ("name", "title"), key)):
            _collect_words(value[key], lines)
