"""The exchanges of a list that is being mended: calls and results as the lint pairs them, by place.

Pure. Of an id that stands twice the first place counts, and cards that are never a message make no calls.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from cardbox_cli.context import sources
from cardbox_cli.context.mending.changes import Place
from cardbox_cli.context.messages import never_a_message
from cardbox_cli.context.parts import text_at
from cardbox_cli.model.card_types import TOOL_RESULT
from cardbox_cli.model.cards import Card
from cardbox_cli.model.pairing import Pairer


class Exchanges(msgspec.Struct, frozen=True):
    """`results` maps the place of a result to that of the card which calls for it; `open` the place of such a
    card to the indexes of its calls that no result answers. `messages` has the cards that may be messages."""

    messages: dict[int, Card]
    results: dict[int, int]
    open: dict[int, list[int]]

    def end_of(self, caller: int) -> int:
        """The place behind the message that makes a call, and behind the results that follow it."""
        group = sources.group(self.messages[caller])
        members, end = {caller}, caller + 1
        later = sorted(place for place in self.messages if place > caller)
        for place in later:
            card = self.messages[place]
            if group is not None and sources.group(card) == group and place not in self.results:
                members.add(place)
            elif self.results.get(place) not in members:
                break
            end = place + 1
        return end


def exchanges_of(places: Sequence[Place]) -> Exchanges:
    """How calls and results pair among these places."""
    messages = _messages(places)
    pairer = Pairer()
    for place, card in messages.items():
        for call in calls_of(card):
            if call_id := text_at(call, "id"):
                pairer.called(place, call_id)
        if card.type == TOOL_RESULT and card.tool_call_id:
            pairer.answered(place, card.tool_call_id)
    pairing = pairer.pairing()
    unanswered: dict[int, list[str]] = {}
    for place, call_id in pairing.unanswered:
        unanswered.setdefault(place, []).append(call_id)
    open_calls = {place: _indexes(messages[place], ids) for place, ids in unanswered.items()}
    return Exchanges(messages, pairing.results, open_calls)


def calls_of(card: Card) -> list[Any]:
    """The calls that a card makes, whatever they are."""
    return card.tool_calls if isinstance(card.tool_calls, list) else []


def _messages(places: Sequence[Place]) -> dict[int, Card]:
    found: dict[int, Card] = {}
    seen: set[str] = set()
    for number, place in enumerate(places):
        card = place.card
        if card is not None and card.card_id not in seen:
            seen.add(card.card_id)
            if never_a_message(card) is None:
                found[number] = card
    return found


def _indexes(card: Card, ids: Sequence[str]) -> list[int]:
    """The last calls of these ids: a result answers the first of a card that has its id twice."""
    left, indexes = list(ids), []
    for index, call in reversed(list(enumerate(calls_of(card)))):
        call_id = text_at(call, "id")
        if call_id in left:
            left.remove(call_id)
            indexes.append(index)
    return sorted(indexes)
