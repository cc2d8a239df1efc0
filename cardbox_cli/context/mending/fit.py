"""Making a request fit a number of tokens: which of its history goes, and what a short note stands for.

Pure. What is counted is what `render --stats` counts, tools and layers too; these never go, nor does system
text or what is asked. Calls and their results go together, and so does what several cards say in one message.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, get_args

import msgspec

from cardbox_cli.context.inspection.costs import Costs
from cardbox_cli.context.lint.history import LONG
from cardbox_cli.context.mending.changes import Change
from cardbox_cli.context.mending.rewriting import rewritten
from cardbox_cli.context.mending.units import Unit, begins_late, brought_by_arguments, units_of
from cardbox_cli.context.messages import Message
from cardbox_cli.context.provider import Provider
from cardbox_cli.context.request import Omitted, Request
from cardbox_cli.errors import InvalidInput
from cardbox_cli.model.card_types import TOOL_RESULT
from cardbox_cli.model.cards import Card, CardDraft, card_of, card_text
from cardbox_cli.model.content import TextContent
from cardbox_cli.model.layers import CHECKPOINT

Strategy = Literal["oldest", "largest-results", "duplicates"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
OLDEST: Strategy = "oldest"


class Fitted(msgspec.Struct, frozen=True, kw_only=True):
    """A request that fits, what was changed for it, and the tokens before and after.

    `notes` are the cards that say in a line what was in a result, by the cards that they stand for.
    """

    request: Request
    changes: list[Change]
    notes: dict[str, CardDraft]
    before: int
    after: int
    exact: bool


def fit(request: Request, most: int, strategy: Strategy, *, provider: Provider, author_id: str) -> Fitted:
    """Return the request in `most` tokens at most, unchanged if it has no more. Its messages are in the
    format of `provider`.

    A strategy that is not enough is followed by leaving out what is oldest. Raises InvalidInput where what
    never goes is more than that.
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
            f"nothing of the request would be left in {most} tokens: the user has asked nothing",
            hint="allow more, or add what is asked",
        )
    if fitting.tokens > most:
        raise InvalidInput(
            f"what never goes of the request takes {fitting.shown} tokens, and {most} are allowed",
            hint="allow more, or shorten the system prompt, the tools, the layers or what is asked",
            details={"tokens": fitting.tokens, "max_tokens": most},
        )
    return fitting.fitted(before)


class _Fitting:
    """The history of a request, what of it is gone, and what notes stand for."""

    def __init__(self, request: Request, provider: Provider, author_id: str) -> None:
        self._request = request
        self._encode = provider.encode
        self._author = author_id
        self._costs = Costs(provider.facts(request.model))
        history = [(message, _card(request, message)) for message in request.messages]
        self._messages = [message for message, card in history if card is not None]
        self._cards = [card for _, card in history if card is not None]
        self._tokens = [self._costs.of_message(message).tokens for message in self._messages]
        other = [message for message, card in history if card is None]
        costs = [*map(self._costs.of_message, other), *map(self._costs.of_tool, request.tools)]
        costs += [self._costs.reply] if request.messages else []
        self.tokens = sum(cost.tokens for cost in costs) + sum(self._tokens)
        self._estimated = any(
            cost.estimated for cost in (*costs, *map(self._costs.of_message, self._messages))
        )
        self._gone: set[int] = set()
        self._notes: dict[int, CardDraft] = {}
        self._changes: dict[int, Change] = {}

    @property
    def shown(self) -> str:
        """The tokens that it takes now, for people."""
        return f"{'~' if self._estimated else ''}{self.tokens}"

    @property
    def is_empty(self) -> bool:
        """Whether all messages that there were are gone."""
        return bool(self._cards) and len(self._gone) == len(self._request.messages)

    def largest(self) -> Iterator[tuple[int, str]]:
        """The results, the largest first, but for those that the model is about to read; and their notes."""
        last = self._last_answers()
        results = [place for place in self._results() if place not in last]
        for place in sorted(results, key=lambda place: (-self._tokens[place], place)):
            card = self._cards[place]
            yield place, f"[{self._tokens[place]} tokens left out: the result is card {card.card_id}]"

    def repeated(self) -> Iterator[tuple[int, str]]:
        """The results that a later one says again, the oldest first, and their notes."""
        later: dict[str, int] = {}
        found: list[tuple[int, str]] = []
        for place in reversed(self._results()):
            text = card_text(self._cards[place].content)
            if len(text) < LONG:
                continue
            if text in later:
                again = self._cards[later[text]].card_id
                found.append((place, f"[left out: said again below, by card {again}]"))
            else:
                later[text] = place
        yield from reversed(found)

    def note(self, place: int, text: str, strategy: Strategy) -> None:
        """Let a note stand for a result, if that is shorter."""
        card, message = self._cards[place], self._messages[place]
        draft = rewritten(card, self._author, content=TextContent(text))
        body = None if draft is None else self._encode(_as_sent(draft, card))
        if draft is None or not isinstance(body, dict):
            return
        noted = msgspec.structs.replace(message, body=body)
        tokens = self._costs.of_message(noted).tokens
        if tokens >= self._tokens[place]:
            return
        self._changes[place] = self._change(
            place, strategy, f"a note of {tokens} tokens stands for {self._tokens[place]}", draft
        )
        self.tokens += tokens - self._tokens[place]
        self._messages[place], self._tokens[place] = noted, tokens
        self._notes[place] = draft

    def drop_oldest(self, most: int) -> None:
        """Leave out units from the oldest until no more than `most` is left and the user begins."""
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

    def fitted(self, before: int) -> Fitted:
        """What has become of the request."""
        request = self._request
        now = {id_: self._messages[place] for id_, place in self._places().items() if place not in self._gone}
        messages = [
            now.get(message.card_id or "", message)
            for message in request.messages
            if _card(request, message) is None or message.card_id in now
        ]
        left_out = [self._omitted(place) for place in sorted(self._gone)]
        return Fitted(
            request=msgspec.structs.replace(request, messages=messages, left_out=request.left_out + left_out),
            changes=[self._changes[place] for place in sorted(self._changes)],
            notes={
                self._cards[place].card_id: draft
                for place, draft in self._notes.items()
                if place not in self._gone
            },
            before=before,
            after=self.tokens,
            exact=not self._estimated,
        )

    def _omitted(self, place: int) -> Omitted:
        entry = self._request.places[self._cards[place].card_id]
        return Omitted(entry.slot.card_id, entry.box_id, entry.slot.position, self._changes[place].reason)

    def _places(self) -> dict[str, int]:
        return {card.card_id: place for place, card in enumerate(self._cards)}

    def _results(self) -> list[int]:
        return [place for place, card in enumerate(self._cards) if card.type == TOOL_RESULT]

    def _last_answers(self) -> Sequence[int]:
        """The places of the results at the end, which no message has answered yet."""
        last: list[int] = []
        for place in reversed(range(len(self._cards))):
            if self._cards[place].type != TOOL_RESULT:
                break
            last.append(place)
        return last

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


def _card(request: Request, message: Message) -> Card | None:
    """The card of a message of the history."""
    entry = request.places.get(message.card_id or "") if message.layer == CHECKPOINT else None
    return None if entry is None else entry.slot.card


def _as_sent(draft: CardDraft, card: Card) -> Card:
    """The note as a card, which stands in the place of the old one."""
    return msgspec.structs.replace(card_of(draft, card.project_id), card_id=card.card_id)
