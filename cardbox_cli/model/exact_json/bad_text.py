"""What JSONB cannot hold in texts: NUL characters and lone surrogates, and what is put in their place."""

import re
from typing import Any

from cardbox_cli.model.exact_json.storable import Unstorable

_BAD_TEXT = "[\x00\ud800-\udfff]"


def storable_text(text: str) -> str:
    """`text` with U+FFFD for each character that JSONB cannot hold."""
    return re.sub(_BAD_TEXT, "\ufffd", text)


def is_storable_text(text: str) -> bool:
    """Whether a database can hold it: it has no NUL and no lone surrogate."""
    return re.search(_BAD_TEXT, text) is None


def replace_bad_text(value: Any) -> tuple[Any, int]:
    """The JSON `value` with U+FFFD for each NUL and lone surrogate in it, and how many those were.

    Raises Unstorable where that would make two keys of an object one.
    """
    if isinstance(value, str):
        return re.subn(_BAD_TEXT, "\ufffd", value)
    if isinstance(value, list):
        items = [replace_bad_text(item) for item in value]
        return [item for item, _ in items], sum(count for _, count in items)
    if isinstance(value, dict):
        pairs = [(replace_bad_text(key), replace_bad_text(item)) for key, item in value.items()]
        replaced = {key: item for (key, _), (item, _) in pairs}
        if len(replaced) < len(value):
            raise Unstorable("", "has two keys that differ only in characters that JSONB cannot hold")
        return replaced, sum(in_key + in_item for (_, in_key), (_, in_item) in pairs)
    return value, 0
