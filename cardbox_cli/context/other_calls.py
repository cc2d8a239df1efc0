"""Results of calls that are no function's: which they are, as only the cards before them tell.

A result follows its call: a format that sends such a call as text sends its result as text, too. So a card
that is such a result is handed to formats with the call that it answers in its metadata; no stored card has
that key. Pure.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from cardbox_cli.context.parts import text_at, texts_in
from cardbox_cli.context.tool_calls import are_functions
from cardbox_cli.model.card_types import TOOL_RESULT
from cardbox_cli.model.cards import Card, CardDraft

_ANSWERED = "answered_call"


class OtherCalls:
    """The calls that are no function's, of cards that are asked in their order."""

    def __init__(self) -> None:
        self._calls: dict[str, Any] = {}

    def answering(self, card: Card) -> Card:
        """The card; the result of such a call with this beside it."""
        if card.tool_calls and (self._calls or not are_functions(card.tool_calls)):
            self._note(card.tool_calls)
        if not self._calls or card.type != TOOL_RESULT:
            return card
        call = self._calls.get(card.tool_call_id or "")
        if call is None:
            return card
        return msgspec.structs.replace(card, metadata={**card.metadata, _ANSWERED: call})

    def _note(self, calls: Any) -> None:
        for call in calls if isinstance(calls, list) else ():
            if call_id := text_at(call, "id"):
                if are_functions([call]):
                    self._calls.pop(call_id, None)  # a result answers the nearest call
                else:
                    self._calls[call_id] = call


def answering(cards: Iterable[Card]) -> Iterator[Card]:
    """The cards in their order, results of calls that are no function's with what they answer."""
    calls = OtherCalls()
    return map(calls.answering, cards)


def answered_call(card: Card | CardDraft) -> Any:
    """The call that is no function's and that a card is the result of; None for another card."""
    return card.metadata.get(_ANSWERED)


def result_text(body: dict[str, Any], *, failed: bool = False) -> str:
    """The text that a result in the chat form is sent as, where a format has no other place for it."""
    whose = text_at(body, "tool_call_id") or text_at(body, "name") or "a tool"
    return f"[result of {whose}{', which failed' if failed else ''}: {texts_in(body.get('content'))}]"


def lost_result(card: Card) -> str:
    """What is lost of a result that is sent as text."""
    what = "function without an id" if answered_call(card) is None else "call that is no function's"
    return f"the result of a {what} is sent as text"
