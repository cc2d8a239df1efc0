"""What the rules of the lint look at: the cards of boxes, and the request that they make for a provider.

Answers the questions that several rules ask. Pure, and decides nothing.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import msgspec

from cardbox_cli.context.blocks import kind
from cardbox_cli.context.explain import Explanation, explain
from cardbox_cli.context.formats import anthropic, openai
from cardbox_cli.context.messages import Message
from cardbox_cli.context.request import Entry, Request
from cardbox_cli.context.tool_use_ids import Renamed
from cardbox_cli.model.cards import Card
from cardbox_cli.model.layers import CHECKPOINT, SYSTEM_PROMPT
from cardbox_cli.model.pairing import Pairing, pair_calls


class Turn(msgspec.Struct, frozen=True):
    """A message as Anthropic gets it: its role, its blocks with the messages they come from, their kinds."""

    role: str
    blocks: list[tuple[Any, Message]]
    kinds: list[str]


class Call(msgspec.Struct, frozen=True):
    """A tool call of the history: the place of its card, and the call as it is sent to OpenAI."""

    entry: Entry
    value: Any


class Subject:
    """The cards of boxes in order, and the request that they make in the dialect of `provider`."""

    def __init__(self, provider: str, entries: Sequence[Entry], request: Request) -> None:
        self.provider = provider
        self.entries = entries
        self.request = request

    @cached_property
    def cards(self) -> list[tuple[Entry, Card]]:
        """The cards that a reader of the boxes sees, each at its first place."""
        kept: dict[str, tuple[Entry, Card]] = {}
        for entry in self.entries:
            if entry.slot.card is not None and entry.slot.fate == "present":
                kept.setdefault(entry.slot.card_id, (entry, entry.slot.card))
        return list(kept.values())

    @cached_property
    def _places(self) -> dict[str, tuple[Entry, Card]]:
        return {entry.slot.card_id: (entry, card) for entry, card in self.cards}

    def place(self, message: Message) -> Entry | None:
        """Where the card stands that a message comes from; for a layer, the card that makes the layer."""
        if message.card_id is not None:
            return self.place_of(message.card_id)
        makers = self._makers.get(message.layer, [])
        return next((self.place_of(card_id) for card_id in makers), None)

    @cached_property
    def _makers(self) -> dict[str, list[str]]:
        """The cards that each layer was made of."""
        profiles = [card.card_id for _, card in self.by_type.get("sys.profile", [])]
        return {SYSTEM_PROMPT: profiles} | {layer.name: layer.card_ids for layer in self.request.layers}

    def place_of(self, card_id: str) -> Entry | None:
        """The first place of a card."""
        return self._places[card_id][0] if card_id in self._places else None

    @cached_property
    def explained(self) -> Explanation:
        """The account of the request, with how many tokens it has."""
        return explain(self.request)

    @cached_property
    def history(self) -> list[tuple[Entry, Card, Message]]:
        """The messages that cards make, with their cards and where these stand."""
        return [
            (*self._places[message.card_id], message)
            for message in self.request.messages
            if message.layer == CHECKPOINT and message.card_id in self._places
        ]

    @cached_property
    def pairing(self) -> Pairing:
        """Which result of the history answers which call, by place in it."""
        return pair_calls([card for _, card, _ in self.history])

    @cached_property
    def gone(self) -> list[Entry]:
        """The places whose card no reader sees."""
        return [entry for entry in self.entries if entry.slot.fate != "present"]

    @cached_property
    def by_type(self) -> dict[str, list[tuple[Entry, Card]]]:
        """The cards by their type."""
        typed: dict[str, list[tuple[Entry, Card]]] = {}
        for pair in self.cards:
            typed.setdefault(pair[1].type, []).append(pair)
        return typed

    @cached_property
    def calls(self) -> list[Call]:
        """The tool calls of the history, as their cards have them."""
        return [
            Call(entry, call)
            for entry, card, _ in self.history
            if isinstance(card.tool_calls, list)
            for call in card.tool_calls
        ]

    @cached_property
    def apart(self) -> list[tuple[int, int, int]]:
        """The calls and results that are a pair and no neighbours: their places in the history, and how many
        steps of the conversation stand between them.

        A step is a message as it is sent; for OpenAI the neighbouring tool messages together are one.
        """
        steps = self._steps
        return [
            (call, result, steps[result] - steps[call] - 1)
            for result, call in self.pairing.results.items()
            if steps[result] != steps[call] + 1
        ]

    @cached_property
    def _steps(self) -> list[int]:
        """The number of the step that each message of the history belongs to."""
        steps: dict[str, int] = {}
        number, role_before = -1, None
        for run in self._runs():
            role = run[0].body.get("role")
            if not (role == role_before == "tool"):
                number += 1
            role_before = role
            for message in run:
                if message.card_id is not None:
                    steps[message.card_id] = number
        return [steps.get(entry.slot.card_id, -1) for entry, _, _ in self.history]

    def _runs(self) -> Sequence[list[Message]]:
        if self.provider == "anthropic":
            return anthropic.runs(self._spoken[0])
        return list(openai.runs(self.request.messages))

    @cached_property
    def turns(self) -> list[Turn]:
        """The messages as Anthropic gets them."""
        return [_turn(run) for run in anthropic.runs(self._spoken[0])]

    @cached_property
    def kinds(self) -> set[tuple[str, str]]:
        """The roles of turns, and the kinds of blocks that they have."""
        return {(turn.role, name) for turn in self.turns for name in turn.kinds}

    @property
    def renamed(self) -> list[Renamed]:
        """The tool calls that Anthropic gets under another id."""
        return self._spoken[1]

    @cached_property
    def _spoken(self) -> tuple[list[Message], list[Renamed]]:
        return anthropic.spoken(self.request.messages)


def _turn(run: Sequence[Message]) -> Turn:
    role = run[0].body["role"]
    blocks = [(block, message) for message in run for block in anthropic.as_blocks(message.body["content"])]
    if role == "user" and len(blocks) > 1:
        blocks.sort(key=lambda pair: anthropic.results_first(pair[0]))
    return Turn(role, blocks, [kind(block) for block, _ in blocks])
