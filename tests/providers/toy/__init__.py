"""A provider as a newcomer would add one, all of it in this package: lines of who says what.

A request is `{"model", "script": ["user> Hi", …]}`; tools have no place in it, and nobody may shout. Its models are
facts of `models.toml`, as a user would declare them.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from cardbox_cli.context.lint.rule import LintRule
from cardbox_cli.context.messages import Message, NoMessage
from cardbox_cli.context.parts import texts_in
from cardbox_cli.context.provider import AnyCard, Body, Members, MessageFiles, Provider, SentMessage
from cardbox_cli.context.request import Request
from cardbox_cli.context.sources import imported_card, keep
from cardbox_cli.model.card_types import INSTRUCTION, THOUGHT
from cardbox_cli.model.cards import Card, CardDraft

_TYPES = {"user": INSTRUCTION, "toy": THOUGHT}


class ToyFiles(MessageFiles):
    """Files with lists of `{"role": "user" or "toy", "content": …}`."""

    roles = tuple(_TYPES)
    request_keys = ("script_of",)

    def marks_message(self, message: Any) -> str | None:
        is_own = isinstance(message, dict) and message.get("role") == "toy"
        return "a message has the role 'toy'" if is_own else None

    def draft(self, message: Any) -> list[CardDraft]:
        role = "assistant" if message["role"] == "toy" else "user"
        card = imported_card(_TYPES[message["role"]], texts_in(message.get("content")), role=role)
        is_plain = message.keys() == {"role", "content"} and isinstance(message["content"], str)
        return [card if is_plain else keep(card, "toy", source_message=message)]

    def keep_original(self, changed: CardDraft, original: CardDraft) -> CardDraft:
        return keep(changed, "toy", source_message=self.provider.chat_body(original))

    def export(self, cards: Iterable[Card]) -> tuple[Body, Iterator[Body]]:
        messages = (card.metadata.get("source_message") or self.provider.encode(card) for card in cards)
        return {}, (message for message in messages if isinstance(message, dict))


class Toy(Provider):
    """The toy's scripts."""

    name = "toy"
    title = "Toy"
    sends = "a script"
    message_keys = ("script",)
    files_class = ToyFiles

    def encode(self, card: Card) -> Body | NoMessage:
        message = self.chat_message(card)
        if isinstance(message, NoMessage):
            return message
        role = "toy" if message["role"] == "assistant" else "user"
        return {"role": role, "content": texts_in(message.get("content"))}

    def chat_original(self, card: AnyCard) -> Body | None:
        message = card.metadata.get("source_message")
        if card.metadata.get("source_format") != "toy" or not isinstance(message, dict):
            return None
        role = "assistant" if message["role"] == "toy" else "user"
        return {"role": role, "content": texts_in(message.get("content"))}

    def losses_from_chat(self, card: Card) -> Iterator[str]:
        if card.tool_calls:
            yield "calls of tools are not sent"

    def members(self, request: Request) -> Members:
        if request.model is not None:
            yield "model", request.model
        yield "script", (f"{message.body['role']}> {message.body['content']}" for message in request.messages)

    def steps(self, messages: Sequence[Message]) -> list[int]:
        return list(range(len(messages)))

    def sent_messages(self, request: Request) -> Iterator[SentMessage]:
        for place, message in enumerate(request.messages):
            yield SentMessage("messages", place + 1, message.body, [place])

    def rules(self) -> Sequence[LintRule]:
        from tests.providers.toy.rules import RULES

        return RULES
