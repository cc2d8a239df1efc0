"""Result fields: which ones a turn was asked for, and which of them its deliverable lacks.

Pure. A deliverable is JSON or text, so owns what counts as a field of either. What follows from a field that
is missing is for others to say.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from cardbox_cli.model import exact_json
from cardbox_cli.model.card_types import RESULT_FIELDS
from cardbox_cli.model.cards import Card, card_text
from cardbox_cli.model.content import FieldSchema, FieldsSchemaContent, JsonContent, StoredContent

# The key of a profile: whether a turn that lacks one is a success; and the code of one that is none.
REQUIRED = "require_result_fields"
MISSING = "result_fields_missing"

# What may stand around a name at the beginning of a line, as in Markdown: "- **total**: 118", "## Total".
_MARKUP = r"[ \t>#*_`|\"'\-\d.)]*"
_FENCED = re.compile(r"\A\s*```\w*\n(.*)\n```\s*\Z", re.DOTALL)


def asked_fields(cards: Iterable[Card]) -> list[str]:
    """The names of the fields that these cards ask a result for, in order, each once."""
    return [field.name for field in described_fields(cards)]


def described_fields(cards: Iterable[Card]) -> list[FieldSchema]:
    """The fields that these cards ask a result for, in order; of two of a name the first."""
    first: dict[str, FieldSchema] = {}
    for card in cards:
        if card.type == RESULT_FIELDS and isinstance(card.content, FieldsSchemaContent):
            for field in card.content.fields:
                first.setdefault(field.name, field)
    return list(first.values())


def missing_fields(asked: Sequence[str], content: StoredContent) -> list[str]:
    """Which of these fields a deliverable of this content lacks; all of them, where there is none.

    JSON has a field as a key, or as an entry of its `fields` with that name; a text that is no JSON has it as
    a label, in whatever case, at the beginning of a line.
    """
    if not asked:
        return []
    text = "" if content is None else card_text(content)
    value = content.data if isinstance(content, JsonContent) else _value(text)
    if isinstance(value, dict | list):
        present = _names(value)
        return [name for name in asked if name not in present]
    return [name for name in asked if not _is_label(name, text)]


def lacking(missing: Sequence[str]) -> str:
    """In words that a deliverable lacks these fields."""
    names = ", ".join(map(repr, missing))
    return f"the deliverable lacks the field{'s' * (len(missing) > 1)} {names}"


def _value(text: str) -> Any:
    """The JSON that a text is, be it fenced as models do; None for other text."""
    fenced = _FENCED.match(text)
    try:
        return exact_json.read(text if fenced is None else fenced[1])
    except ValueError:
        return None


def _names(value: dict[str, Any] | list[Any]) -> set[str]:
    """The keys of an object, and the names of a list of fields."""
    if isinstance(value, dict):
        fields = value.get("fields")
        return {*value, *(_names(fields) if isinstance(fields, list) else ())}
    names = (each.get("name") for each in value if isinstance(each, dict))
    return {name for name in names if isinstance(name, str)}


def _is_label(name: str, text: str) -> bool:
    pattern = rf"^{_MARKUP}{re.escape(name)}[ \t#*_`|\"']*(?::|\||=|$)"
    return re.search(pattern, text, re.IGNORECASE | re.MULTILINE) is not None
