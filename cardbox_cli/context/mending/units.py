"""What of a history goes or stays together: a call with its results, the parts of one message.

Pure. What never goes is system text, what a recipe's arguments brought, and the last thing that the user
said: that is what is asked.
"""

from collections.abc import Container, Iterable, Sequence

import msgspec

from cardbox_cli.context import sources
from cardbox_cli.context.request import RequestEntry
from cardbox_cli.model.card_types import TOOL_RESULT
from cardbox_cli.model.cards import SYSTEM_ROLES, Card
from cardbox_cli.model.pairing import exchanges

# How packing names the rules that make cards of arguments.
_ARGUMENTS = "pack_arguments"


class Unit(msgspec.Struct, frozen=True):
    """Places of a history that go together, in order; `stays`: whether they never go."""

    places: list[int]
    stays: bool


def brought_by_arguments(entries: Iterable[RequestEntry]) -> frozenset[str]:
    """The cards that a recipe made of its arguments."""
    return frozenset(entry.slot.card_id for entry in entries if (entry.rule or "").startswith(_ARGUMENTS))


def units_of(cards: Sequence[Card], keeps: Container[str] = ()) -> list[Unit]:
    """The units of a history, the oldest first; `keeps` are cards that never go, too."""
    asked = next((place for place in reversed(range(len(cards))) if is_user(cards[place])), None)
    return [
        Unit(places, any(place == asked or _stays(cards[place], keeps) for place in places))
        for places in _together(cards)
    ]


def _stays(card: Card, keeps: Container[str]) -> bool:
    return card.role in SYSTEM_ROLES or card.card_id in keeps


def is_user(card: Card) -> bool:
    """Whether the user says it, and no tool."""
    return card.role == "user" and card.type != TOOL_RESULT


def begins_late(cards: Sequence[Card], gone: set[int]) -> int | None:
    """The first place that is left of a history without `gone`, where an answer stands there that nothing
    asks; None where it begins as it may."""
    left = (place for place in range(len(cards)) if place not in gone)
    first = next((place for place in left if cards[place].role not in SYSTEM_ROLES), None)
    return None if first is None or is_user(cards[first]) else first


def _together(cards: Sequence[Card]) -> list[list[int]]:
    """Exchanges, joined where they share a message that several cards are the parts of."""
    joined: list[list[int]] = []
    at: dict[str, int] = {}
    for places in exchanges(cards):
        groups = {mark for place in places if (mark := sources.group(cards[place])) is not None}
        known = next((at[mark] for mark in groups if mark in at), None)
        if known is None:
            known = len(joined)
            joined.append([])
        joined[known] += places
        at.update(dict.fromkeys(groups, known))
    return [sorted(places) for places in joined]
