"""Answers that fit into the context of a model: long texts and lists are cut, and say what is left out."""

from typing import Any

from cardbox_cli.model import exact_json

MOST = 40_000
"""Characters of an answer, as JSON."""

# How long a text and a list may be: halved until the answer fits.
_TEXT, _LIST = 8_000, 200


def bounded(value: Any, most: int = MOST) -> str:
    """The JSON of a value, of at most about so many characters."""
    plain = exact_json.decode(exact_json.encode(value))
    text, items = _TEXT, _LIST
    while True:
        said = exact_json.encode(_cut(plain, text, items)).decode("utf-8", "replace")
        if len(said) <= most or (text <= 1 and items <= 1):
            return said if len(said) <= most else f"{said[:most]} … (cut)"
        text, items = max(text // 2, 1), max(items // 2, 1)


def _cut(value: Any, text: int, items: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= text else f"{value[:text]} … ({len(value) - text} more characters)"
    if isinstance(value, list):
        kept = [_cut(each, text, items) for each in value[:items]]
        return kept if len(value) <= items else [*kept, f"… ({len(value) - items} more)"]
    if isinstance(value, dict):
        return {key: _cut(each, text, items) for key, each in value.items()}
    return value
