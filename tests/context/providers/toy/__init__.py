"""A provider as a newcomer would add one, all of it in this folder: lines of who says what.

A request is `{"model", "script": ["user> Hi", …]}`; tools have no place in it, and nobody may shout.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from cardbox_cli.context.messages import NoMessage
from cardbox_cli.context.parts import texts_in
from cardbox_cli.context.providers.chat import chat_body, chat_message
from cardbox_cli.context.provider import (
    Body,
    Members,
    MessageFiles,
    Models,
    Provider,
    SentMessage,
)
from cardbox_cli.context.request import Request
from cardbox_cli.context.sources import imported_card, keep
from cardbox_cli.model.card_types import INSTRUCTION, THOUGHT
from cardbox_cli.model.cards import Card, CardDraft
from cardbox_cli.model.tokens import Tokenizer

_TYPES = {"user": INSTRUCTION, "toy": THOUGHT}


def _encode(card: Card) -> Body | NoMessage:
    message = chat_message(card)
    if isinstance(message, NoMessage):
        return message
    role = "toy" if message["role"] == "assistant" else "user"
    return {"role": role, "content": texts_in(message.get("content"))}


def _lost(card: Card) -> Iterator[str]:
    if card.tool_calls:
        yield "calls of tools are not sent"


def _members(request: Request) -> Members:
    if request.model is not None:
        yield "model", request.model
    yield "script", (f"{message.body['role']}> {message.body['content']}" for message in request.messages)


def _sent(request: Request) -> Iterable[SentMessage]:
    for place, message in enumerate(request.messages):
        yield SentMessage("messages", place + 1, message.body, [place])


def _draft(message: Body) -> list[CardDraft]:
    role = "assistant" if message["role"] == "toy" else "user"
    card = imported_card(_TYPES[message["role"]], texts_in(message.get("content")), role=role)
    is_plain = message.keys() == {"role", "content"} and isinstance(message["content"], str)
    return [card if is_plain else keep(card, "toy", source_message=message)]


def _original(card: Card | CardDraft) -> Body | None:
    message = card.metadata.get("source_message")
    if card.metadata.get("source_format") != "toy" or not isinstance(message, dict):
        return None
    role = "assistant" if message["role"] == "toy" else "user"
    return {"role": role, "content": texts_in(message.get("content"))}


def _export(cards: Iterable[Card]) -> tuple[Body, Iterator[Body]]:
    messages = (card.metadata.get("source_message") or _encode(card) for card in cards)
    return {}, (message for message in messages if isinstance(message, dict))


def _marks(message: Any) -> str | None:
    is_own = isinstance(message, dict) and message.get("role") == "toy"
    return "a message has the role 'toy'" if is_own else None


PROVIDER = Provider(
    name="toy",
    title="Toy",
    sends="a script",
    encode=_encode,
    chat_original=_original,
    lost_of_chat=_lost,
    members=_members,
    steps=lambda messages: list(range(len(messages))),
    sent=_sent,
    message_keys=("script",),
    models=Models(
        recognises=lambda model: model.startswith("toy-"),
        holding={100: ("toy-1",)},
        tokenizer=lambda _: Tokenizer("words", True, lambda text: len(text.split())),
    ),
    rules="tests.context.providers.toy.rules",
    files=MessageFiles(
        keyspace=("toy",),
        roles=tuple(_TYPES),
        marks_message=_marks,
        draft=_draft,
        keep_original=lambda changed, original: keep(changed, "toy", source_message=chat_body(original)),
        export=_export,
        request_keys=("script_of",),
    ),
)
