"""What the rules of the lint look at: the cards of boxes, and the request that they make for a provider.

Answers the questions that several rules ask. Pure, and decides nothing.
"""

from collections.abc import Callable, Container, Sequence
from functools import cached_property
from typing import Any, TypeVar

import msgspec

from cardbox_cli.context.inspection.explain import Explanation, explain
from cardbox_cli.context.lint.history import History
from cardbox_cli.context.messages import Message
from cardbox_cli.context.provider import ModelFacts, Provider
from cardbox_cli.context.request import Request, RequestEntry
from cardbox_cli.model.cards import SYSTEM_ROLES, Card

_View = TypeVar("_View")


class Logged(msgspec.Struct, frozen=True, kw_only=True):
    """Messages as they stand in a file, each with the place of the first card that it makes, and what stands
    beside them. `is_request`: whether this makes them a request, and no mere list."""

    messages: list[tuple[RequestEntry, Any]]
    beside: dict[str, Any]
    is_request: bool


class Subject:
    """The cards of boxes in order, and the request that they make in the format of `provider`.

    `awaited` are the calls whose results are still to come. `logged` is the request as it was logged, where
    the cards are those of a file in this format: then this is checked, and not what rendering would make.
    """

    def __init__(
        self,
        provider: Provider,
        entries: Sequence[RequestEntry],
        request: Request,
        awaited: Container[str] = (),
        logged: Logged | None = None,
    ) -> None:
        self.provider = provider
        self.entries = entries
        self.request = request
        self.awaited = awaited
        self.logged = logged
        self._views: dict[Any, Any] = {}

    def view(self, make: "Callable[[Subject], _View]") -> _View:
        """What `make` makes of the subject, made once: how a provider's own rules look at it."""
        if make not in self._views:
            self._views[make] = make(self)
        view: _View = self._views[make]
        return view

    @cached_property
    def cards(self) -> list[tuple[RequestEntry, Card]]:
        """The cards that a reader of the boxes sees, each at its first place."""
        places = self.request.places.values()
        return [(entry, entry.slot.card) for entry in places if entry.slot.card is not None]

    def place(self, message: Message) -> RequestEntry | None:
        """Where the card stands that a message comes from; for a layer, the card that makes the layer."""
        if message.card_id is not None:
            return self.request.places.get(message.card_id)
        makers = self.request.makers.get(message.layer, [])
        return next(map(self.request.places.get, makers), None)

    @cached_property
    def explained(self) -> Explanation:
        """The account of the request, with how many tokens it has."""
        return explain(self.request, self.provider)

    @cached_property
    def facts(self) -> ModelFacts:
        """The facts about the request's model, if it is one of the provider's own."""
        return self.provider.own_facts(self.request.model)

    @cached_property
    def window(self) -> int | None:
        """How many tokens the model holds, None if that is not known."""
        return self.provider.facts(self.request.model).window

    @cached_property
    def history(self) -> History:
        """The messages that cards make."""
        return History(self.request)

    @cached_property
    def without_message(self) -> list[tuple[RequestEntry, Card]]:
        """The cards that a reader of the boxes sees, and that make no message."""
        if len(self.request.places) == len(self.history.messages):
            return []
        sent = {card.card_id for _, card, _ in self.history.messages}
        return [pair for pair in self.cards if pair[1].card_id not in sent]

    @cached_property
    def beside(self) -> dict[str, Any]:
        """What the body has beside its messages: model, tools and parameters, as the provider gets them."""
        if self.logged is not None:
            return self.logged.beside
        return self.provider.body(msgspec.structs.replace(self.request, messages=[]))

    @cached_property
    def offered(self) -> list[dict[str, Any]]:
        """The tools of the request that are for the provider; as it was logged, all of them."""
        return self.request.tools if self.logged is not None else self.provider.offered_tools(self.request)

    @cached_property
    def tools(self) -> list[Any]:
        """The tools as the provider gets them, whatever they are."""
        tools = self.beside.get("tools")
        return tools if isinstance(tools, list) else []

    @cached_property
    def is_system_alone(self) -> bool:
        """Whether no message is any other's than the system's."""
        return all(message.body.get("role") in SYSTEM_ROLES for message in self.request.messages)

    @cached_property
    def gone(self) -> list[RequestEntry]:
        """The places whose card no reader sees."""
        return [entry for entry in self.entries if entry.slot.state != "present"]

    @cached_property
    def types(self) -> set[str]:
        """The types that cards have."""
        return self.history.types.union(card.type for _, card in self.without_message)

    @cached_property
    def roles(self) -> set[str | None]:
        """The roles that cards have."""
        return self.history.roles_of_cards.union(card.role for _, card in self.without_message)

    @cached_property
    def classes(self) -> set[type]:
        """The classes that the contents of cards are of."""
        return self.history.classes.union(type(card.content) for _, card in self.without_message)

    def of_type(self, card_type: str) -> list[tuple[RequestEntry, Card]]:
        """The cards of this type."""
        return [pair for pair in self.cards if pair[1].type == card_type] if card_type in self.types else []

    @cached_property
    def apart(self) -> list[tuple[int, int, int]]:
        """The calls and results that are a pair and no neighbours: their places in the history, and how many
        steps of the conversation stand between them.

        A step is a message as it is sent, or several as the provider has them.
        """
        results, roles = self.history.pairing.results.items(), self.history.roles
        if all(
            result == call + 1 and roles[call] == "assistant" and roles[result] in ("tool", "user")
            for result, call in results
        ):
            return []  # as in most histories: each result is the very next message
        steps = self.provider.steps([message for _, _, message in self.history.messages])
        return [
            (call, result, steps[result] - steps[call] - 1)
            for result, call in results
            if steps[result] != steps[call] + 1
        ]
