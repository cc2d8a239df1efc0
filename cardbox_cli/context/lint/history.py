"""The messages that cards make, as the lint's rules look at them: what one walk notes of each.

A long history lies scattered in memory, and to come by a card takes longer than to ask it something. So what
rules want to know of every message is asked in one walk, and each rule looks at the few that it noted.
"""

from functools import cached_property
from typing import Any

import msgspec

from cardbox_cli.context.messages import Message
from cardbox_cli.context.request import Entry, Request
from cardbox_cli.model.cards import Card
from cardbox_cli.model.content import StoredContent, TextContent, ToolResultContent
from cardbox_cli.model.layers import CHECKPOINT
from cardbox_cli.model.pairing import Pairer, Pairing

# A message, its card, and where that stands.
Said = tuple[Entry, Card, Message]

# Texts that are shorter may well be said twice: "continue", "ok", an empty list.
LONG = 400


class Call(msgspec.Struct, frozen=True, gc=False):
    """A tool call of the history: the place of its card, the call as OpenAI gets it, and of it the function
    where it has one, the id and the tool's name where they are texts."""

    entry: Entry
    value: Any
    function: dict[str, Any] | None
    id: str | None
    name: str | None


class History:
    """The messages that cards make, in order, the role of each, and those of which rules ask more.

    Of messages: `not_text` have another content than a text, `blank` a text that says nothing; `named` have a
    name, `with_other_calls` tool calls that are not the very list of their cards. Of cards: `unaddressed` are
    results of tools that say no id, `with_originals` keep something of an original, `long_texts` are their
    texts of `LONG` characters or more, `calls` their tool calls; `types`, `roles_of_cards` and `classes` of
    contents are those that there are.
    """

    def __init__(self, request: Request) -> None:
        self.said: list[Said] = []
        self.roles: list[str] = []
        self.not_text: list[Said] = []
        self.blank: list[Said] = []
        self.named: list[Said] = []
        self.with_other_calls: list[Said] = []
        self.unaddressed: list[tuple[Entry, Card]] = []
        self.with_originals: list[Card] = []
        self.long_texts: list[tuple[Entry, str]] = []
        self.calls: list[Call] = []
        self.types: set[str] = set()
        self.roles_of_cards: set[str | None] = set()
        self.classes: set[type] = set()
        self._pairer = Pairer()
        for message in request.messages:
            entry = request.places.get(message.card_id or "") if message.layer == CHECKPOINT else None
            if entry is not None and entry.slot.card is not None:
                self._note_card(entry, entry.slot.card)
                self._note_message((entry, entry.slot.card, message))

    def _note_card(self, entry: Entry, card: Card) -> None:
        content, metadata = card.content, card.metadata
        self.types.add(card.type)
        self.roles_of_cards.add(card.role)
        self.classes.add(type(content))
        if "source_message" in metadata or "source_blocks" in metadata:
            self.with_originals.append(card)
        if card.tool_calls:
            self._note_calls(entry, card.tool_calls)
        if card.type == "tool.result":
            self._note_answer(entry, card)
        text = content.text if type(content) is TextContent else _result(content)
        if len(text) >= LONG:
            self.long_texts.append((entry, text))

    def _note_calls(self, entry: Entry, calls: Any) -> None:
        for value in calls if isinstance(calls, list) else ():
            call = _call(entry, value)
            self.calls.append(call)
            if call.id:
                self._pairer.called(len(self.said), call.id)

    def _note_answer(self, entry: Entry, card: Card) -> None:
        if card.tool_call_id:
            self._pairer.answered(len(self.said), card.tool_call_id)
        else:
            self.unaddressed.append((entry, card))

    def _note_message(self, said: Said) -> None:
        _, card, message = said
        body = message.body
        content = body.get("content")
        if type(content) is not str:
            self.not_text.append(said)
        elif not content or content.isspace():
            self.blank.append(said)
        if "name" in body:
            self.named.append(said)
        calls = body.get("tool_calls")
        if calls is not None and (calls is not card.tool_calls or not isinstance(calls, list)):
            self.with_other_calls.append(said)
        self.roles.append(body["role"])
        self.said.append(said)

    @cached_property
    def pairing(self) -> Pairing:
        """Which result answers which call, by place in `said`; those without an id are left out."""
        return self._pairer.pairing()


def _result(content: StoredContent) -> str:
    """The text of a tool's result; none where it must be spelled, which is too dear only to compare."""
    return content.result if type(content) is ToolResultContent and isinstance(content.result, str) else ""


def _call(entry: Entry, value: Any) -> Call:
    if not isinstance(value, dict):
        return Call(entry, value, None, None, None)
    function, call_id = value.get("function"), value.get("id")
    function = function if isinstance(function, dict) else None
    name = value.get("name") if function is None else function.get("name")
    return Call(
        entry,
        value,
        function,
        call_id if isinstance(call_id, str) else None,
        name if isinstance(name, str) else None,
    )
