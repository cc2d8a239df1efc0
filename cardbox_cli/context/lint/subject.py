"""What the rules of the lint look at: the cards of boxes, and the request that they make for a provider.

Answers the questions that several rules ask. Pure, and decides nothing.
"""

from collections.abc import Container, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

import msgspec

from cardbox_cli.context.blocks import kind
from cardbox_cli.context.explain import Explanation, explain
from cardbox_cli.context.formats import DIALECTS, anthropic, openai
from cardbox_cli.context.lint.history import History
from cardbox_cli.context.messages import Message
from cardbox_cli.context.request import Entry, Request
from cardbox_cli.context.tool_use_ids import Renamed
from cardbox_cli.model.cards import Card


class Turn(msgspec.Struct, frozen=True):
    """A message as Anthropic gets it: its role, its blocks with the messages they come from, their kinds."""

    role: str
    blocks: list[tuple[Any, Message]]
    kinds: list[str]


class Subject:
    """The cards of boxes in order, and the request that they make in the dialect of `provider`.

    `awaited` are the calls whose results are still to come.
    """

    def __init__(
        self, provider: str, entries: Sequence[Entry], request: Request, awaited: Container[str] = ()
    ) -> None:
        self.provider = provider
        self.entries = entries
        self.request = request
        self.awaited = awaited

    @cached_property
    def cards(self) -> list[tuple[Entry, Card]]:
        """The cards that a reader of the boxes sees, each at its first place."""
        places = self.request.places.values()
        return [(entry, entry.slot.card) for entry in places if entry.slot.card is not None]

    def place(self, message: Message) -> Entry | None:
        """Where the card stands that a message comes from; for a layer, the card that makes the layer."""
        if message.card_id is not None:
            return self.place_of(message.card_id)
        makers = self.request.makers.get(message.layer, [])
        return next((self.place_of(card_id) for card_id in makers), None)

    def place_of(self, card_id: str) -> Entry | None:
        """The first place of a card."""
        return self.request.places.get(card_id)

    @cached_property
    def explained(self) -> Explanation:
        """The account of the request, with how many tokens it has."""
        return explain(self.request)

    @cached_property
    def history(self) -> History:
        """The messages that cards make."""
        return History(self.request)

    @cached_property
    def silent(self) -> list[tuple[Entry, Card]]:
        """The cards that a reader of the boxes sees, and that make no message."""
        if len(self.request.places) == len(self.history.said):
            return []
        said = {card.card_id for _, card, _ in self.history.said}
        return [pair for pair in self.cards if pair[1].card_id not in said]

    @cached_property
    def beside(self) -> dict[str, Any]:
        """What the body says beside its messages: model, tools and parameters, as the provider gets them."""
        return DIALECTS[self.provider].body(msgspec.structs.replace(self.request, messages=[]))

    @cached_property
    def gone(self) -> list[Entry]:
        """The places whose card no reader sees."""
        return [entry for entry in self.entries if entry.slot.state != "present"]

    @cached_property
    def types(self) -> set[str]:
        """The types that cards have."""
        return self.history.types.union(card.type for _, card in self.silent)

    @cached_property
    def roles(self) -> set[str | None]:
        """The roles that cards have."""
        return self.history.roles_of_cards.union(card.role for _, card in self.silent)

    @cached_property
    def classes(self) -> set[type]:
        """The classes that the contents of cards are of."""
        return self.history.classes.union(type(card.content) for _, card in self.silent)

    def of_type(self, card_type: str) -> list[tuple[Entry, Card]]:
        """The cards of this type."""
        return [pair for pair in self.cards if pair[1].type == card_type] if card_type in self.types else []

    @cached_property
    def apart(self) -> list[tuple[int, int, int]]:
        """The calls and results that are a pair and no neighbours: their places in the history, and how many
        steps of the conversation stand between them.

        A step is a message as it is sent; for OpenAI the neighbouring tool messages together are one.
        """
        results, roles = self.history.pairing.results.items(), self.history.roles
        if all(
            result == call + 1 and roles[call] == "assistant" and roles[result] in ("tool", "user")
            for result, call in results
        ):
            return []  # as in most histories: each result is the very next message
        steps = self._steps()
        return [
            (call, result, steps[result] - steps[call] - 1)
            for result, call in results
            if steps[result] != steps[call] + 1
        ]

    def _steps(self) -> list[int]:
        """The step that each message of the history belongs to; -1 for Anthropic's system text."""
        merges = self.provider == "anthropic"
        steps: list[int] = []
        number, before, role_before = 0, None, None
        for (_, _, message), role in zip(self.history.said, self.history.roles, strict=True):
            if merges and role == "system":
                steps.append(-1)
                continue
            goes_on = role == role_before and (
                merges or role == "tool" or (before is not None and openai.are_one(before, message))
            )
            number += not goes_on
            steps.append(number)
            before, role_before = message, role
        return steps

    @property
    def turns(self) -> Iterator[Turn]:
        """The messages as Anthropic gets them, which are many; most rules need but a few, or their blocks."""
        return map(_turn, anthropic.runs(self._spoken[0]))

    def turn(self, index: int) -> Turn | None:
        """The message of this index, which may count from the end, as Anthropic gets it."""
        messages = self._spoken[0]
        if index >= 0:
            run = next(islice(anthropic.runs(messages), index, None), None)
        else:
            run = next(islice(anthropic.runs(reversed(messages)), -index - 1, None), [])[::-1]
        return _turn(run) if run else None

    @property
    def prefill(self) -> Turn | None:
        """The last message as Anthropic gets it, where it is the assistant's."""
        last = self.turn(-1)
        return last if last is not None and last.role == "assistant" and last.blocks else None

    def place_in(self, turn: Turn, index: int) -> Entry | None:
        """Where the card stands that a block of a message comes from."""
        return self.place(turn.blocks[index][1]) if turn.blocks else None

    @cached_property
    def blocks(self) -> dict[str, list[tuple[Any, Message]]]:
        """The content blocks that Anthropic gets, by kind, with the messages that they come from.

        A message that is one text has none here.
        """
        kinds: dict[str, list[tuple[Any, Message]]] = {}
        for message in self._spoken[0]:
            content = message.body["content"]
            for block in content if isinstance(content, list) else ():
                kinds.setdefault(kind(block), []).append((block, message))
        return kinds

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
