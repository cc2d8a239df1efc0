"""Result fields: the fields that a turn must deliver, and the fields that its deliverable lacks.

This module is pure. It defines how a field appears in a deliverable, which is JSON or text. Callers decide
the consequences of a missing field.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from cardbox_cli.model import exact_json
from cardbox_cli.model.card_types import RESULT_FIELDS
from cardbox_cli.model.cards import Card, card_text
from cardbox_cli.model.content import FieldSchema, FieldsSchemaContent, JsonContent, StoredContent

# The profile key that makes a turn partial if its deliverable lacks a field, and the error code of that turn.
REQUIRED = "require_result_fields"
MISSING = "result_fields_missing"

# Markup around a name at the beginning of a line, as in Markdown: "- **total**: 118", "## Total".
_MARKUP = r"[ \t>#*_`|\"'\-\d.)]*"
_FENCED = re.compile(r"\A\s*```\w*\n(.*)\n```\s*\Z", re.DOTALL)


def required_fields(cards: Iterable[Card]) -> list[str]:
    """Return the names of the result fields that these cards require, in order and without duplicates."""
    return [field.name for field in field_schemas(cards)]


def field_schemas(cards: Iterable[Card]) -> list[FieldSchema]:
    """Return the result fields that these cards require, in order. The first field of a name wins."""
    first: dict[str, FieldSchema] = {}
    for card in cards:
        if card.type == RESULT_FIELDS and isinstance(card.content, FieldsSchemaContent):
            for field in card.content.fields:
                first.setdefault(field.name, field)
    return list(first.values())


def missing_fields(required: Sequence[str], content: StoredContent) -> list[str]:
    """Return the required fields that a deliverable lacks. Without content, it lacks all of them.

    In JSON, a field is a key, or an entry of the list `fields` with that `name`. In other text, it is a label
    at the beginning of a line, for example `Total:`. The case of a label does not matter.
    """
    if not required:
        return []
    text = "" if content is None else card_text(content)
    value = content.data if isinstance(content, JsonContent) else _value(text)
    if isinstance(value, dict | list):
        present = _names(value)
        return [name for name in required if name not in present]
    return [name for name in required if not _is_label(name, text)]


def missing_fields_message(missing: Sequence[str]) -> str:
    names = ", ".join(map(repr, missing))
    return f"the deliverable lacks the field{'s' * (len(missing) > 1)} {names}"


def _value(text: str) -> Any:
    """Return the JSON value of a text, or None if it is not JSON. It may be in a Markdown code fence."""
    fenced = _FENCED.match(text)
    try:
        return exact_json.read(text if fenced is None else fenced[1])
    except ValueError:
        return None


def _names(value: dict[str, Any] | list[Any]) -> set[str]:
    """Return the keys of an object and the names in its `fields`, or the names in a list of fields."""
    if isinstance(value, dict):
        fields = value.get("fields")
        return {*value, *(_names(fields) if isinstance(fields, list) else ())}
    names = (each.get("name") for each in value if isinstance(each, dict))
    return {name for name in names if isinstance(name, str)}


def _is_label(name: str, text: str) -> bool:
    pattern = rf"^{_MARKUP}{re.escape(name)}[ \t#*_`|\"']*(?::|\||=|$)"
    return re.search(pattern, text, re.IGNORECASE | re.MULTILINE) is not None
