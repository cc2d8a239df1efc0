"""Cards as they are decoded from rows: what cbx does not know reads as it is stored."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from cardbox_cli.model import exact_json
from cardbox_cli.model.card_types import CARD_TYPES
from cardbox_cli.model.cards import ROLES, Card, decode_card
from cardbox_cli.model.content import JsonContent, TextContent, VideoFileContent

LARGE = Decimal("9" * 5000)
VIDEO = {"__type__": "VideoFileContent", "uri": "s3://bucket/key", "checksum": "c"}


# The columns that a card has as the row has them.
SAME = {
    "card_id": "k",
    "project_id": "p",
    "type": "agent.thought",
    "role": "assistant",
    "author_id": "a",
    "tool_calls": [{"id": "c"}],
    "tool_call_id": None,
    "ttl_seconds": 60,
    "metadata": {"price": Decimal("1.10")},
    "expires_at": None,
    "deleted_at": None,
}


def row(**columns: Any) -> bytes:
    """A row as the store reads it, with these columns in the place of the usual ones."""
    spelled = {
        "content": {"__type__": "TextContent", "text": "hi"},
        "created_at": "2026-01-02T03:04:05.678901Z",
    }
    return exact_json.encode({**SAME, **spelled, **columns})


def card(**fields: Any) -> Card:
    """The card of such a row."""
    meant = {"content": TextContent("hi"), "created_at": datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)}
    return Card(**{**SAME, **meant, **fields})


@pytest.mark.parametrize(
    "columns",
    [
        *({"type": name} for name in (*CARD_TYPES, "note", "unknown", "")),
        *({"role": name} for name in (*ROLES, "critic", "", None)),
        {"type": "note", "role": "critic", "metadata": {}},
        {"tool_calls": LARGE},
        {"metadata": {"price": Decimal("1.10"), "large": [LARGE]}},
    ],
    ids=lambda columns: " ".join(f"{key} {str(value)[:30]!r}" for key, value in columns.items()),
)
def test_a_column_is_decoded_unchanged(columns: dict[str, Any]) -> None:
    assert decode_card(row(**columns)) == card(**columns)


@pytest.mark.parametrize(
    ("stored", "content"),
    [
        (None, None),
        ({"__type__": "JsonContent", "data": [LARGE]}, JsonContent([LARGE])),
        ({**VIDEO, "duration_seconds": 3}, VideoFileContent("s3://bucket/key", "c", duration_seconds=3.0)),
        *(
            (unknown, unknown)
            for unknown in (
                {"__type__": "New", "price": Decimal("1.10")},
                {"__type__": "TextContent"},
                {"__type__": "TextContent", "text": "hi", "more": 1},
                {"text": "hi"},
                {**VIDEO, "size": LARGE},
                {**VIDEO, "duration_seconds": LARGE},
            )
        ),
        ("hi", {"__type__": None, "data": "hi"}),
        ([LARGE], {"__type__": None, "data": [LARGE]}),
    ],
    ids=lambda value: str(value)[:60],
)
@pytest.mark.parametrize("card_type", ["agent.thought", "note"])
def test_a_content_is_decoded_unchanged(card_type: str, stored: Any, content: Any) -> None:
    decoded = decode_card(row(type=card_type, content=stored))
    assert decoded == card(type=card_type, content=content)
    assert type(decoded.content) is type(content)


def test_known_types_and_roles_share_one_string() -> None:
    one, other = decode_card(row(card_id="1")), decode_card(row(card_id="2"))
    assert one.type is other.type
    assert one.role is other.role
