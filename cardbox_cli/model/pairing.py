"""Pair tool results with tool calls, and show the text of a card with its calls.

Tool-call ids repeat in real conversations, so an id alone does not identify a call. A result belongs to the
nearest earlier call with its id that has no result yet.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from cardbox_cli.model.card_types import TOOL_CALL, TOOL_RESULT
from cardbox_cli.model.cards import Card, CardDraft, card_text
from cardbox_cli.model.ids import unique
from cardbox_cli.text.escaping import excerpt


class PairableCard(Protocol):
    """The attributes of a card that the pairing needs."""

    @property
    def type(self) -> str: ...
    @property
    def tool_calls(self) -> Any: ...
    @property
    def tool_call_id(self) -> str | None: ...


class Pairing(msgspec.Struct, frozen=True):
    """The exchanges of a card list, by position.

    `results` maps the position of a result to the position of the card with its call. `scheduled` maps the
    position of a `tool.call` card to the position of its thought. `unanswered` has (position, tool_call_id)
    for each call without a result. `orphans` has the position of each result without a call.
    """

    results: dict[int, int]
    scheduled: dict[int, int]
    unanswered: list[tuple[int, str]]
    orphans: list[int]


class Pairer:
    """A pairing in progress. Add calls and results in the order of their positions."""

    def __init__(self) -> None:
        self._open: dict[str, list[int]] = {}
        self._results: dict[int, int] = {}
        self._scheduled: dict[int, int] = {}
        self._orphans: list[int] = []

    def add_call(self, position: int, call_id: str) -> None:
        self._open.setdefault(call_id, []).append(position)

    def add_scheduled_call(self, position: int, call_id: str) -> None:
        """Add a `tool.call` card. If no call with this id waits for a result, the card itself is the call."""
        waiting = self._open.get(call_id)
        if waiting is None:
            self.add_call(position, call_id)
        else:
            self._scheduled[position] = waiting[-1]

    def add_result(self, position: int, call_id: str) -> None:
        waiting = self._open.get(call_id)
        if waiting is None:
            self._orphans.append(position)
            return
        self._results[position] = waiting.pop()
        if not waiting:
            del self._open[call_id]

    def pairing(self) -> Pairing:
        unanswered = [(position, call_id) for call_id, waiting in self._open.items() for position in waiting]
        return Pairing(self._results, self._scheduled, sorted(unanswered), self._orphans)


def pair_calls(cards: Sequence[PairableCard | None]) -> Pairing:
    """Pair the calls and results in `cards`. None represents a card that cannot be read."""
    pairer = Pairer()
    for position, card in enumerate(cards):
        if card is None:
            continue
        for call_id in call_ids(card):
            pairer.add_call(position, call_id)
        if card.tool_call_id is not None and card.type == TOOL_RESULT:
            pairer.add_result(position, card.tool_call_id)
        elif card.tool_call_id is not None and card.type == TOOL_CALL:
            pairer.add_scheduled_call(position, card.tool_call_id)
    return pairer.pairing()


def call_ids(card: PairableCard) -> list[str]:
    """Return the ids of the tool calls that an assistant card makes, in order."""
    calls = card.tool_calls if isinstance(card.tool_calls, list) else ()
    ids = (call.get("id") for call in calls if isinstance(call, dict))
    return [call_id for call_id in ids if isinstance(call_id, str)]


def called_tools(card: Card) -> list[tuple[str, str]]:
    """Return the id and the tool name of each call of a card, in order. Skips calls without a tool name."""
    tools: list[tuple[str, str]] = []
    for call in card.tool_calls if isinstance(card.tool_calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if isinstance(name, str) and name:
            call_id = call.get("id")
            tools.append((call_id if isinstance(call_id, str) else "", name))
    return tools


class ToolNames:
    """A finder of tool names. Pass it the cards in order, because a result gets its name from its call."""

    def __init__(self) -> None:
        self._callers: dict[str, str] = {}

    def tool_names(self, card: Card) -> str | None:
        """Return the names of the tools that a card calls, or the tool that a result is of, or None."""
        calls = called_tools(card)
        self._callers.update(calls)
        if calls:
            return ", ".join(unique(name for _, name in calls))
        own_name = card.metadata.get("function_name")
        if isinstance(own_name, str) and own_name:
            return own_name
        return None if card.tool_call_id is None else self._callers.get(card.tool_call_id)


def exchanges(cards: Sequence[PairableCard]) -> list[list[int]]:
    """Group the positions of calls with those of their results. Groups are in the order of first cards."""
    pairing = pair_calls(cards)
    caller = {**pairing.results, **pairing.scheduled}
    groups: dict[int, list[int]] = {}
    first: list[int] = []
    for position in range(len(cards)):
        # The calling card comes earlier, so its group is known. It may itself be a result.
        first.append(first[caller[position]] if position in caller else position)
        groups.setdefault(first[position], []).append(position)
    return list(groups.values())


PREVIEW = 80


def preview(card: Card | CardDraft, width: int = PREVIEW) -> str:
    """Return the text and the calls of a card on one line, cut to `width` characters."""
    return excerpt(full_text(card), width)


def full_text(card: Card | CardDraft) -> str:
    text = card_text(card.content)
    calls = [_format_call(call) for call in card.tool_calls] if isinstance(card.tool_calls, list) else []
    return "\n".join(part for part in (text, *calls) if part)


def call_reference(card: Card) -> str:
    """Return the ids of the tool calls that a card makes or answers, for `--full`."""
    ids = call_ids(card)
    return ", ".join(ids) if ids else (card.tool_call_id or "")


def _format_call(call: object) -> str:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return f"→ {call}"
    return f"→ {function.get('name')}({function.get('arguments')})"
