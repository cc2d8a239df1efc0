"""A summary in the place of what it sums up, and all of it back: lists of ids, and the card between them.

Pure. The card (`context.compression`) names the cards that it covers and the places where they stood, so that
the box is had again to the digest, with what was appended meanwhile behind it.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from cardbox_cli.context.inspection.costs import Costs
from cardbox_cli.context.mending.units import Unit, begins_late, brought_by_arguments, is_user, units_of
from cardbox_cli.context.messages import never_a_message
from cardbox_cli.context.provider import Provider
from cardbox_cli.context.request import RequestEntry, request_of
from cardbox_cli.errors import InvalidInput
from cardbox_cli.model.boxes import Slot
from cardbox_cli.model.card_types import SUMMARY, TOOL_CALL
from cardbox_cli.model.cards import Card, CardDraft, draft_card
from cardbox_cli.model.pairing import call_ids

# The keys in the metadata of a summary: the ids that it covers, and their places in the box then.
COVERS, PLACES = "covers", "covered_places"


class Covered(msgspec.Struct, frozen=True):
    """What a summary is to stand for: places of the box in order, and their cards that say something."""

    places: list[int]
    cards: list[Card]


class Budget(msgspec.Struct, frozen=True):
    """What may be left beside a summary: so many tokens of the request that the box makes, by its model."""

    most: int
    model: str | None
    provider: Provider


def covered(entries: Sequence[RequestEntry], keep: int, awaited: Collection[str] = ()) -> Covered:
    """What stands before the last `keep` messages and belongs to none of them.

    System text stays, and what a recipe's arguments brought, what the user said last, and calls without a
    result, `awaited` ones too. What is left begins with what the user says, for which more may stay. Raises
    InvalidInput where nothing could be covered.
    """
    cards = _messages(entry.slot for entry in entries)
    going = _before_a_question(_going(entries, cards, len(cards) - keep, awaited), cards)
    if not going:
        raise InvalidInput(
            f"nothing stands before the last {keep} messages that a summary could stand for",
            hint="keep fewer; system text, what was asked last and open calls always stay",
        )
    return _covered(entries, cards, going)


def covered_to_fit(entries: Sequence[RequestEntry], budget: Budget, awaited: Collection[str] = ()) -> Covered:
    """The oldest that must go for the rest to have no more tokens than the budget: nothing where it has not.

    What stays is as with `covered`, but for a number of messages. Raises InvalidInput where it is more.
    """
    cards = _messages(entry.slot for entry in entries)
    provider = budget.provider
    costs, request = Costs(provider.facts(budget.model)), request_of(entries, encode=provider.encode)
    of_card = {message.card_id: costs.of_message(message).tokens for message in request.messages}
    left = sum(of_card.values()) + sum(costs.of_tool(tool).tokens for tool in request.tools)
    left += costs.reply.tokens if request.messages else 0
    if left <= budget.most:
        return Covered([], [])
    going: list[Unit] = []
    for unit in _going(entries, cards, len(cards), awaited):
        going.append(unit)
        left -= sum(of_card.get(cards[place].card_id, 0) for place in unit.places)
        gone = {place for each in going for place in each.places}
        if left <= budget.most and begins_late(cards, gone) is None:
            return _covered(entries, cards, going)
    raise InvalidInput(
        f"what no summary stands for takes {left} tokens, and {budget.most} are allowed",
        hint="allow more; system text, what was asked last and open calls always stay",
        details={"tokens": left, "max_tokens": budget.most},
    )


def _going(
    entries: Sequence[RequestEntry], cards: Sequence[Card], last: int, awaited: Collection[str]
) -> list[Unit]:
    """What may go of the messages before the place `last`, the oldest first."""
    units = units_of(cards, brought_by_arguments(entries))
    return [unit for unit in units if not _stays(unit, cards, last, awaited)]


def _covered(entries: Sequence[RequestEntry], cards: Sequence[Card], going: Sequence[Unit]) -> Covered:
    """These units as places of the box, and with them what else tells of their calls."""
    slots = [entry.slot for entry in entries]
    gone = {place for unit in going for place in unit.places}
    ids = {cards[place].card_id for place in gone}
    called = {call_id for place in gone for call_id in call_ids(cards[place])}
    places = [slot.position for slot in slots if slot.card_id in ids or _schedules(slot.card, called)]
    return Covered(places, [cards[place] for place in sorted(gone)])


def _before_a_question(going: list[Unit], cards: Sequence[Card]) -> list[Unit]:
    """Those of the units without which the user's words come first, where they came first before."""
    while begins_late(cards, {place for unit in going for place in unit.places}) is not None:
        asked = [place for unit in going for place in unit.places if is_user(cards[place])]
        if not asked:
            break
        going = [unit for unit in going if unit.places[-1] < max(asked)]
    return going


def summary_card(text: str, card_ids: Sequence[str], places: Sequence[int], author_id: str) -> CardDraft:
    """The summary of the cards at these places of the list. Raises InvalidInput for one that says nothing."""
    if not text.strip():
        raise InvalidInput("the summary is blank", hint="nothing was written; give a text that sums up")
    covers = [card_ids[place] for place in places]
    metadata: dict[str, Any] = {COVERS: covers, PLACES: list(places)}
    return draft_card(SUMMARY, text.strip(), author_id=author_id, metadata=metadata)


def compressed(card_ids: Sequence[str], places: Sequence[int], summary_id: str) -> list[str]:
    """The list with the summary at the first of the places, and without the others."""
    gone = set(places)
    return [
        summary_id if place == places[0] else card_id
        for place, card_id in enumerate(card_ids)
        if place == places[0] or place not in gone
    ]


def summaries(slots: Sequence[Slot]) -> list[Card]:
    """The summaries of a box that name what they cover, the last made first."""
    found = [
        slot.card
        for slot in slots
        if slot.card is not None and slot.card.type == SUMMARY and _ids(slot.card, COVERS)
    ]
    return sorted(found, key=lambda card: (str(card.created_at or ""), card.card_id), reverse=True)


def expanded(card_ids: Sequence[str], summary: Card) -> list[str]:
    """The list with what a summary covers in its place.

    Where the list was changed since, before the end of what was covered, or another program made the summary,
    all of it stands where the summary stood.
    """
    covers = _ids(summary, COVERS)
    places = summary.metadata.get(PLACES)
    at = list(card_ids).index(summary.card_id)
    rest = [card_id for card_id in card_ids if card_id != summary.card_id]
    if not isinstance(places, list) or not _fit(places, covers, rest, at):
        return [*rest[:at], *covers, *rest[at:]]
    for place, card_id in zip(places, covers, strict=True):
        rest.insert(place, card_id)
    return rest


def _fit(places: list[Any], covers: Sequence[str], rest: Sequence[str], at: int) -> bool:
    """Whether these are places that the covered cards can have: ascending, the summary's own first."""
    if not all(type(place) is int for place in places):
        return False
    ascending = all(one < other for one, other in pairwise(places))
    in_list = len(places) == len(covers) and places[-1] < len(rest) + len(covers)
    return ascending and in_list and places[0] == at


def _messages(slots: Iterable[Slot]) -> list[Card]:
    """The cards of the conversation, each once."""
    seen: set[str] = set()
    cards: list[Card] = []
    for slot in slots:
        card = slot.card if slot.state == "present" else None
        if card is not None and card.card_id not in seen and never_a_message(card) is None:
            seen.add(card.card_id)
            cards.append(card)
    return cards


def _stays(unit: Unit, cards: Sequence[Card], last: int, awaited: Collection[str]) -> bool:
    members = [cards[place] for place in unit.places]
    called = [call_id for card in members for call_id in call_ids(card)]
    answered = {card.tool_call_id for card in members}
    is_open = any(call_id not in answered or call_id in awaited for call_id in called)
    return unit.stays or is_open or any(place >= last for place in unit.places)


def _schedules(card: Card | None, called: Collection[str]) -> bool:
    """Whether it is the audit's card of one of these calls."""
    return card is not None and card.type == TOOL_CALL and card.tool_call_id in called


def _ids(card: Card, key: str) -> list[str]:
    value = card.metadata.get(key)
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
