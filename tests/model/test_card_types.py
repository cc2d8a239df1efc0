"""The records of card types: the table that people read, and what holds for a type that has none."""

import re
from pathlib import Path

import pytest

from cardbox_cli.model.card_types import CARD_TYPES, card_type
from cardbox_cli.model.cards import ROLES, draft_card

TABLE = re.findall(
    r"^\| `([\w.]+)` \| (\w+) \| (.*) \|$",
    (Path(__file__).parents[2] / "docs/concepts/cards-and-boxes.md").read_text(),
    re.MULTILINE,
)


def test_the_documentation_lists_the_same_types() -> None:
    assert sorted(name for name, _, _ in TABLE) == sorted(CARD_TYPES)


@pytest.mark.parametrize(("name", "role", "message"), TABLE)
def test_the_documentation_gives_the_role_and_message_of_each_type(
    name: str, role: str, message: str
) -> None:
    known = card_type(name)
    assert known.role == (role if role in ROLES else "user")
    expected = "nothing" if message.startswith("never") else "own-format" if "alone" in message else "message"
    assert known.becomes == expected


def test_types_that_are_not_messages_have_a_reason() -> None:
    assert [
        name for name, each in CARD_TYPES.items() if (each.becomes == "message") == bool(each.reason)
    ] == []


def test_an_unknown_type_is_a_plain_message() -> None:
    unknown = card_type("shop.note")
    assert (unknown.becomes, unknown.role, unknown.layer) == ("message", "user", None)
    flags = (unknown.is_knowledge, unknown.is_snapshot, unknown.is_late, unknown.may_be_empty)
    assert flags == (False, False, False, False)
    assert draft_card("shop.note", "hi").role == "user"
