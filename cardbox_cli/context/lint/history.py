"""The messages that cards make, as the lint's rules look at them: what one walk notes of each.

A long history lies scattered in memory, and to come by a card takes longer than to ask it something. So what
rules want to know of every message is asked in one walk, and each rule looks at the few that it noted.
"""

from functools import cached_property
from typing import Any

import msgspec

from cardbox_cli.context.messages import Message
from cardbox_cli.context.request import Request, RequestEntry
from cardbox_cli.context.sources import is_named_result
from cardbox_cli.model.card_types import TOOL_RESULT
from cardbox_cli.model.cards import Card
from cardbox_cli.model.content import StoredContent, TextContent, ToolResultContent
from cardbox_cli.model.layers import CHECKPOINT
from cardbox_cli.model.pairing import Pairer, Pairing

# A message, its card, and where that stands.
CardMessage = tuple[RequestEntry, Card, Message]

# Texts that are shorter may well stand twice: "continue", "ok", an empty list.
LONG = 400


class HistoryCall(msgspec.Struct, frozen=True, gc=False):
    """A tool call of the history: the place of its card, the call as the card holds it, and of it the
    function where it has one, the id and the tool's name where they are texts."""

    entry: RequestEntry
    value: Any
    function: dict[str, Any] | None
    id: str | None
    name: str | None


class History:
    """The messages that cards make, in order, the role of each, and those of which rules ask more.

    Of messages: `not_text` have another content than a text, `blank` an empty text; `named` have a
    name, `with_other_calls` tool calls that are not the very list of their cards. Of cards: `unaddressed` are
    results of tools without an id, `long_texts` are their texts of `LONG` characters or more, `calls` their
    tool calls; `types`, `roles_of_cards` and `classes` of contents are those that there are.
    """

    def __init__(self, request: Request) -> None:
        self.messages: list[CardMessage] = []
        self.roles: list[str] = []
        self.not_text: list[CardMessage] = []
        self.blank: list[CardMessage] = []
        self.named: list[CardMessage] = []
        self.with_other_calls: list[CardMessage] = []
        self.unaddressed: list[tuple[RequestEntry, Card]] = []
        self._with_originals: list[int] = []
        self.named_results: list[Card] = []
        self.long_texts: list[tuple[RequestEntry, str]] = []
        self.calls: list[HistoryCall] = []
        self.types: set[str] = set()
        self.roles_of_cards: set[str | None] = set()
        self.classes: set[type] = set()
        self._pairer = Pairer()
        for message in request.messages:
            entry = request.places.get(message.card_id or "") if message.layer == CHECKPOINT else None
            if entry is not None and entry.slot.card is not None:
                self._note_card(entry, entry.slot.card)
                self._note_message((entry, entry.slot.card, message))

    def _note_card(self, entry: RequestEntry, card: Card) -> None:
        content, metadata = card.content, card.metadata
        self.types.add(card.type)
        self.roles_of_cards.add(card.role)
        self.classes.add(type(content))
        if "source_message" in metadata or "source_blocks" in metadata:
            self._with_originals.append(len(self.messages))
        if card.tool_calls:
            self._note_calls(entry, card.tool_calls)
        if card.type == TOOL_RESULT:
            self._note_answer(entry, card)
        text = content.text if type(content) is TextContent else _result(content)
        if len(text) >= LONG:
            self.long_texts.append((entry, text))

    def _note_calls(self, entry: RequestEntry, calls: Any) -> None:
        for value in calls if isinstance(calls, list) else ():
            call = _call(entry, value)
            self.calls.append(call)
            if call.id:
                self._pairer.called(len(self.messages), call.id)

    def _note_answer(self, entry: RequestEntry, card: Card) -> None:
        if is_named_result(card):
            self.named_results.append(card)
        if card.tool_call_id:
            self._pairer.answered(len(self.messages), card.tool_call_id)
        else:
            self.unaddressed.append((entry, card))

    def _note_message(self, noted: CardMessage) -> None:
        _, card, message = noted
        body = message.body
        content = body.get("content")
        if type(content) is not str:
            self.not_text.append(noted)
        elif not content or content.isspace():
            self.blank.append(noted)
        if "name" in body:
            self.named.append(noted)
        calls = body.get("tool_calls")
        if calls is not None and (calls is not card.tool_calls or not isinstance(calls, list)):
            self.with_other_calls.append(noted)
        self.roles.append(body["role"])
        self.messages.append(noted)

    @cached_property
    def with_originals(self) -> list[CardMessage]:
        """The messages whose cards keep something of an original."""
        return [self.messages[place] for place in self._with_originals]

    @cached_property
    def pairing(self) -> Pairing:
        """Which result answers which call, by place in `messages`; those without an id are left out."""
        return self._pairer.pairing()


def _result(content: StoredContent) -> str:
    """The text of a tool's result; none where it must be encoded, which takes too long only to compare."""
    return content.result if type(content) is ToolResultContent and isinstance(content.result, str) else ""


def _call(entry: RequestEntry, value: Any) -> HistoryCall:
    if not isinstance(value, dict):
        return HistoryCall(entry, value, None, None, None)
    function, call_id = value.get("function"), value.get("id")
    function = function if isinstance(function, dict) else None
    name = value.get("name") if function is None else function.get("name")
    call_id = call_id if isinstance(call_id, str) else None
    return HistoryCall(entry, value, function, call_id, name if isinstance(name, str) else None)
