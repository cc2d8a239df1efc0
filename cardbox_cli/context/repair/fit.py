"""Smaller requests: a history that fits a number of tokens, and summaries that replace cards.

Pure. Tokens are counted as in `render --stats`, with tools and layers. Tools, layers, system text and the
last user message always stay. Calls and their results are removed together, like parts of one message. A
summary (a card of type `context.compression`) records the cards that it covers and their places. They are
enough to restore the box with the same digest. Later cards stay at the end.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise, takewhile
from typing import Any, Literal, get_args

import msgspec

from cardbox_cli.context.explain import TokenCosts
from cardbox_cli.context.lint.rule import MIN_LONG_TEXT
from cardbox_cli.context.messages import Message, is_user, never_a_message
from cardbox_cli.context.parts import list_of
from cardbox_cli.context.provider import Provider
from cardbox_cli.context.repair.changes import (
    Change,
    Unit,
    begins_late,
    brought_by_arguments,
    rewrite,
    units_of,
)
from cardbox_cli.context.request import Request, RequestEntry, left_out, request_of
from cardbox_cli.errors import InvalidInput
from cardbox_cli.model.boxes import Slot
from cardbox_cli.model.card_types import SUMMARY, TOOL_CALL, TOOL_RESULT
from cardbox_cli.model.cards import Card, CardDraft, card_text, draft_as_card, draft_card
from cardbox_cli.model.content import TextContent
from cardbox_cli.model.layers import CHECKPOINT
from cardbox_cli.model.pairing import call_ids
from cardbox_cli.text.quantities import format_tokens

# --- fitting


Strategy = Literal["oldest", "largest-results", "duplicates"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
OLDEST: Strategy = "oldest"


class FittedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that fits, its changes, and its tokens before and after. `notes` maps the id of a result's
    card to the one-line card that replaces it."""

    request: Request
    changes: list[Change]
    notes: dict[str, CardDraft]
    before: int
    after: int
    exact: bool


def fit(
    request: Request, most: int, strategy: Strategy, *, provider: Provider, author_id: str
) -> FittedRequest:
    """Reduce the request to at most `most` tokens. A request that is small enough does not change.

    Its messages are in the format of `provider`. If the strategy is not enough, the oldest cards are left
    out. Raises InvalidInput if the parts that always stay are too large, or if no message would be left.
    """
    fitting = _Fitting(request, provider, author_id)
    before = fitting.tokens
    if strategy != OLDEST:
        candidates = fitting.largest() if strategy == "largest-results" else fitting.repeated()
        for place, text in candidates:
            if fitting.tokens <= most:
                break
            fitting.note(place, text, strategy)
    fitting.drop_oldest(most)
    if fitting.is_empty:
        raise InvalidInput(
            f"a request of {most} tokens would be empty, because it has no user message",
            hint="raise the limit, or add a user message",
        )
    if fitting.tokens > most:
        tokens = format_tokens(fitting.tokens, exact=fitting.exact)
        raise InvalidInput(
            f"the parts of the request that cbx must keep take {tokens} tokens, but the limit is {most}",
            hint="raise the limit, or shorten the system prompt, tools, layers or the last user message",
            details={"tokens": fitting.tokens, "max_tokens": most},
        )
    return fitting.make_fitted(before)


class _Fitting:
    def __init__(self, request: Request, provider: Provider, author_id: str) -> None:
        self._request = request
        self._encode = provider.encode
        self._author = author_id
        self._costs = TokenCosts(provider.facts(request.model))
        history = [(message, _card_of_message(request, message)) for message in request.messages]
        self._messages = [message for message, card in history if card is not None]
        self._cards = [card for _, card in history if card is not None]
        self._tokens = [self._costs.message_cost(message).tokens for message in self._messages]
        other = [message for message, card in history if card is None]
        costs = [*map(self._costs.message_cost, other), *map(self._costs.tool_cost, request.tools)]
        costs += [self._costs.reply] if request.messages else []
        self.tokens = sum(cost.tokens for cost in costs) + sum(self._tokens)
        self.exact = not any(
            cost.estimated for cost in (*costs, *map(self._costs.message_cost, self._messages))
        )
        self._gone: set[int] = set()
        self._notes: dict[int, CardDraft] = {}
        self._changes: dict[int, Change] = {}

    @property
    def is_empty(self) -> bool:
        return bool(self._cards) and len(self._gone) == len(self._request.messages)

    def largest(self) -> Iterator[tuple[int, str]]:
        """Yield the place and the note of each result, largest first. Skips the results at the end, which the
        model has not read yet."""
        last = self._last_answers()
        results = [place for place in self._results() if place not in last]
        for place in sorted(results, key=lambda place: (-self._tokens[place], place)):
            card = self._cards[place]
            yield place, f"[{self._tokens[place]} tokens left out: the result is card {card.card_id}]"

    def repeated(self) -> Iterator[tuple[int, str]]:
        """Yield the place and the note of each result that a later result repeats, oldest first."""
        later: dict[str, int] = {}
        notes: list[tuple[int, str]] = []
        for place in reversed(self._results()):
            text = card_text(self._cards[place].content)
            if len(text) < MIN_LONG_TEXT:
                continue
            if text in later:
                again = self._cards[later[text]].card_id
                notes.append((place, f"[left out: said again below, by card {again}]"))
            else:
                later[text] = place
        yield from reversed(notes)

    def note(self, place: int, text: str, strategy: Strategy) -> None:
        """Replace the result at `place` by the note `text` if the note has fewer tokens."""
        card, message = self._cards[place], self._messages[place]
        draft = rewrite(card, self._author, content=TextContent(text))
        if draft is None:
            return
        # The request identifies the note by the id of the card that it replaces.
        body = self._encode(
            msgspec.structs.replace(draft_as_card(draft, card.project_id), card_id=card.card_id)
        )
        if not isinstance(body, dict):
            return
        noted = msgspec.structs.replace(message, body=body)
        tokens = self._costs.message_cost(noted).tokens
        if tokens >= self._tokens[place]:
            return
        self._changes[place] = self._change(
            place, strategy, f"a note of {tokens} tokens replaces {self._tokens[place]}", draft
        )
        self.tokens += tokens - self._tokens[place]
        self._messages[place], self._tokens[place] = noted, tokens
        self._notes[place] = draft

    def drop_oldest(self, most: int) -> None:
        """Remove the oldest units until the rest has at most `most` tokens and begins with the user."""
        units = units_of(self._cards, brought_by_arguments(self._request.places.values()))
        unit_at = {place: unit for unit in units for place in unit.places}
        going = [unit for unit in units if not unit.stays]
        for unit in going if self.tokens > most else ():
            self._drop(unit, f"the oldest, to fit {most} tokens")
            if self.tokens <= most:
                break
        while self._gone and (late := begins_late(self._cards, self._gone)) is not None:
            if unit_at[late].stays:
                return
            self._drop(unit_at[late], "answers what is left out")

    def make_fitted(self, before: int) -> FittedRequest:
        request = self._request
        now = {
            card.card_id: self._messages[place]
            for place, card in enumerate(self._cards)
            if place not in self._gone
        }
        messages = [
            now.get(message.card_id or "", message)
            for message in request.messages
            if _card_of_message(request, message) is None or message.card_id in now
        ]
        gone = [
            left_out(request.places[self._cards[place].card_id], self._changes[place].reason)
            for place in sorted(self._gone)
        ]
        return FittedRequest(
            request=msgspec.structs.replace(request, messages=messages, left_out=request.left_out + gone),
            changes=[self._changes[place] for place in sorted(self._changes)],
            notes={self._cards[at].card_id: note for at, note in self._notes.items() if at not in self._gone},
            before=before,
            after=self.tokens,
            exact=self.exact,
        )

    def _results(self) -> list[int]:
        return [place for place, card in enumerate(self._cards) if card.type == TOOL_RESULT]

    def _last_answers(self) -> Sequence[int]:
        """Return the places of the results at the end of the history, which the model has not read yet."""
        places = reversed(range(len(self._cards)))
        return list(takewhile(lambda place: self._cards[place].type == TOOL_RESULT, places))

    def _drop(self, unit: Unit, reason: str) -> None:
        for place in unit.places:
            if place not in self._gone:
                self._gone.add(place)
                self.tokens -= self._tokens[place]
                self._changes[place] = self._change(place, OLDEST, reason)

    def _change(self, place: int, rule: str, reason: str, draft: CardDraft | None = None) -> Change:
        slot = self._request.places[self._cards[place].card_id].slot
        return Change(
            kind="dropped" if draft is None else "rewritten",
            position=slot.position,
            card_id=slot.card_id,
            new_card_id=None if draft is None else draft.card_id,
            rule=rule,
            reason=reason,
        )


def _card_of_message(request: Request, message: Message) -> Card | None:
    entry = request.places.get(message.card_id or "") if message.layer == CHECKPOINT else None
    return None if entry is None else entry.slot.card


# --- summaries


# Metadata keys of a summary: the ids of the cards that it covers, and their former places in the box.
COVERS, PLACES = "covers", "covered_places"


class CoveredCards(msgspec.Struct, frozen=True):
    """The cards that a summary covers: all `places` in the box, and the `cards` that make messages."""

    places: list[int]
    cards: list[Card]


class SummaryBudget(msgspec.Struct, frozen=True):
    """The maximum number of tokens of a box's request without its summary, counted for `model`."""

    most: int
    model: str | None
    provider: Provider


def select_covered(entries: Sequence[RequestEntry], keep: int, awaited: Collection[str] = ()) -> CoveredCards:
    """Return the cards that a summary can cover. The last `keep` messages and their exchanges stay.

    Also system text, the cards of a recipe's arguments, the last user message, and calls without a result
    (or in `awaited`) stay. More cards may stay, so that the rest begins with the user. Raises InvalidInput if
    nothing can be covered.
    """
    cards = _conversation_cards(entry.slot for entry in entries)
    going = _leading_units(_removable_units(entries, cards, len(cards) - keep, awaited), cards)
    if not going:
        raise InvalidInput(
            f"cbx cannot summarize any message before the last {keep} messages",
            hint="lower --keep; system text, the last user message and calls without a result always stay",
        )
    return _covered_cards(entries, cards, going)


def select_covered_to_fit(
    entries: Sequence[RequestEntry], budget: SummaryBudget, awaited: Collection[str] = ()
) -> CoveredCards:
    """Return the oldest cards that a summary must cover to fit the budget, or no cards if everything fits.

    The same cards stay as with `select_covered`, except for its last `keep` messages. Raises InvalidInput if
    the cards that stay exceed the budget.
    """
    cards = _conversation_cards(entry.slot for entry in entries)
    provider = budget.provider
    costs, request = TokenCosts(provider.facts(budget.model)), request_of(entries, encode=provider.encode)
    of_card = {message.card_id: costs.message_cost(message).tokens for message in request.messages}
    left = sum(of_card.values()) + sum(costs.tool_cost(tool).tokens for tool in request.tools)
    left += costs.reply.tokens if request.messages else 0
    if left <= budget.most:
        return CoveredCards([], [])
    going: list[Unit] = []
    for unit in _removable_units(entries, cards, len(cards), awaited):
        going.append(unit)
        left -= sum(of_card.get(cards[place].card_id, 0) for place in unit.places)
        gone = {place for each in going for place in each.places}
        if left <= budget.most and begins_late(cards, gone) is None:
            return _covered_cards(entries, cards, going)
    raise InvalidInput(
        f"the parts that no summary can replace take {left} tokens, but the limit is {budget.most}",
        hint="raise the limit; system text, the last user message and calls without a result always stay",
        details={"tokens": left, "max_tokens": budget.most},
    )


def _removable_units(
    entries: Sequence[RequestEntry], cards: Sequence[Card], last: int, awaited: Collection[str]
) -> list[Unit]:
    """Return the units before the place `last` that a summary can cover, oldest first."""
    units = units_of(cards, brought_by_arguments(entries))
    return [unit for unit in units if not _unit_stays(unit, cards, last, awaited)]


def _covered_cards(
    entries: Sequence[RequestEntry], cards: Sequence[Card], going: Sequence[Unit]
) -> CoveredCards:
    """Return the cards of these units, and the `tool.call` cards of their calls, by place in the box."""
    slots = [entry.slot for entry in entries]
    gone = {place for unit in going for place in unit.places}
    ids = {cards[place].card_id for place in gone}
    called = {call_id for place in gone for call_id in call_ids(cards[place])}
    # Add the `tool.call` cards of these calls, which make no message.
    ids |= {
        slot.card_id
        for slot in slots
        if slot.card is not None and slot.card.type == TOOL_CALL and slot.card.tool_call_id in called
    }
    places = [slot.position for slot in slots if slot.card_id in ids]
    return CoveredCards(places, [cards[place] for place in sorted(gone)])


def _leading_units(going: list[Unit], cards: Sequence[Card]) -> list[Unit]:
    """Return as many of the first units as possible such that the remaining history begins with the user."""
    while begins_late(cards, {place for unit in going for place in unit.places}) is not None:
        asked = [place for unit in going for place in unit.places if is_user(cards[place])]
        if not asked:
            break
        going = [unit for unit in going if unit.places[-1] < max(asked)]
    return going


def summary_card(text: str, card_ids: Sequence[str], places: Sequence[int], author_id: str) -> CardDraft:
    """Draft the summary of the cards at these places of the list. Raises InvalidInput for a blank text."""
    if not text.strip():
        raise InvalidInput("the summary is blank", hint="nothing was written; pass the text of the summary")
    covers = [card_ids[place] for place in places]
    metadata: dict[str, Any] = {COVERS: covers, PLACES: list(places)}
    return draft_card(SUMMARY, text.strip(), author_id=author_id, metadata=metadata)


def insert_summary(card_ids: Sequence[str], places: Sequence[int], summary_id: str) -> list[str]:
    """Return the list with the summary at the first of `places` and without the cards at `places`."""
    gone = set(places)
    return [
        summary_id if place == places[0] else card_id
        for place, card_id in enumerate(card_ids)
        if place == places[0] or place not in gone
    ]


def find_summaries(slots: Sequence[Slot]) -> list[Card]:
    """Return the summaries of a box that record the covered cards, newest first."""
    cards = [slot.card for slot in slots if slot.card is not None and slot.card.type == SUMMARY]
    named = [card for card in cards if _ids(card, COVERS)]
    return sorted(named, key=lambda card: (str(card.created_at or ""), card.card_id), reverse=True)


def expand_summary(card_ids: Sequence[str], summary: Card) -> list[str]:
    """Return the list with the covered cards instead of the summary, at their former places. If these no
    longer fit, or are not recorded, all covered cards take the place of the summary."""
    covers = _ids(summary, COVERS)
    places = summary.metadata.get(PLACES)
    at = list(card_ids).index(summary.card_id)
    rest = [card_id for card_id in card_ids if card_id != summary.card_id]
    if not isinstance(places, list) or not _places_fit(places, covers, rest, at):
        return [*rest[:at], *covers, *rest[at:]]
    for place, card_id in zip(places, covers, strict=True):
        rest.insert(place, card_id)
    return rest


def _places_fit(places: list[Any], covers: Sequence[str], rest: Sequence[str], at: int) -> bool:
    """Return whether `places` can be restored: they ascend, begin at the summary, and are within the list."""
    if not all(type(place) is int for place in places):
        return False
    ascending = all(one < other for one, other in pairwise(places))
    in_list = len(places) == len(covers) and places[-1] < len(rest) + len(covers)
    return ascending and in_list and places[0] == at


def _conversation_cards(slots: Iterable[Slot]) -> list[Card]:
    cards: dict[str, Card] = {}
    for slot in slots:
        if slot.state == "present" and slot.card is not None and never_a_message(slot.card) is None:
            cards.setdefault(slot.card_id, slot.card)
    return list(cards.values())


def _unit_stays(unit: Unit, cards: Sequence[Card], last: int, awaited: Collection[str]) -> bool:
    members = [cards[place] for place in unit.places]
    called = [call_id for card in members for call_id in call_ids(card)]
    answered = {card.tool_call_id for card in members}
    is_open = any(call_id not in answered or call_id in awaited for call_id in called)
    return unit.stays or is_open or any(place >= last for place in unit.places)


def _ids(card: Card, key: str) -> list[str]:
    return [each for each in list_of(card.metadata.get(key)) if isinstance(each, str)]
