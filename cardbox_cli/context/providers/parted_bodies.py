"""Requests in the formats of role and parts: their messages joined, put in order and exported.

Neighbours of one role are one message, in which the results of tools come first; system text stands apart.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import dropwhile
from typing import Any

import msgspec

from cardbox_cli.context import sources
from cardbox_cli.context.messages import Message, NoMessage, never_a_message
from cardbox_cli.context.other_calls import answering
from cardbox_cli.context.providers.parted import Part, Parting, encode, parts_of
from cardbox_cli.context.providers.provider import Body, SentMessage
from cardbox_cli.context.providers.turns import gathered, moved_texts, placed, role_of, runs
from cardbox_cli.context.request import Request
from cardbox_cli.context.sources import imported_card, keep, same_json
from cardbox_cli.model.card_types import RENDERED_PROMPT
from cardbox_cli.model.cards import Card, CardDraft


def in_parts(parting: Parting, messages: Iterable[Message]) -> Iterator[Message]:
    """The messages, layers and queries as parts too."""
    return (_in_parts(parting, message) for message in placed(messages))


def _in_parts(parting: Parting, message: Message) -> Message:
    if isinstance(message.body["content"], list):
        return message
    parts = parting.make({"role": message.body["role"], "content": message.body["content"]}, False)
    return msgspec.structs.replace(message, body={**message.body, "content": parts})


def system_parts(messages: Iterable[Message]) -> list[Part]:
    """The parts of the system text, in its order."""
    return [
        part for message in messages if message.body["role"] == "system" for part in message.body["content"]
    ]


def merged(parting: Parting, messages: Iterable[Message]) -> Iterator[tuple[str, list[Part]]]:
    """The role and the parts of each message as it is sent."""
    for run in runs(message for message in messages if message.body["role"] != "system"):
        role = run[0].body["role"]
        parts = [part for message in run for part in message.body["content"]]
        if role == "user" and len(run) > 1:
            parts.sort(key=lambda part: parting.answered(part) is None)
        if parts:
            yield role, parts


def lost_in_request(parting: Parting, request: Request) -> Iterator[tuple[str | None, str]]:
    """What of a request's order is lost: the system text that stands behind another message, and moves up."""
    behind = dropwhile(lambda message: message.body["role"] == "system", placed(request.messages))
    yield from moved_texts(request, (each for each in behind if each.body["role"] == "system"))


def sent(parting: Parting, request: Request) -> Iterator[SentMessage]:
    """The messages as a prefix cache finds them: system text first, then the parts of the others."""
    made = list(in_parts(parting, request.messages))
    system = (place for place, message in enumerate(made) if message.body["role"] == "system")
    for number, place in enumerate(system, 1):
        yield SentMessage("system", number, made[place].body, [place])
    places = (place for place, message in enumerate(made) if message.body["role"] != "system")
    others = (message for message in made if message.body["role"] != "system")
    for number, run in enumerate(runs(others), 1):
        pieces = [(message.body, [next(places)]) for message in run]
        if run[0].body["role"] == "user" and len(run) > 1:
            pieces.sort(key=lambda piece: not any(map(parting.answered, piece[0]["content"])))
        yield from (SentMessage("messages", number, *piece) for piece in pieces)


# --- messages and the system prompt in files


class PartedFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Files of messages in such a format: where a message has its parts, how the format names the
    assistant's role, and what makes the value of the system key of parts. `alone_key` is where one message
    may stand alone, as an object, and then a part may, too."""

    parting: Parting
    parts_key: str
    assistant: str
    system_key: str
    system_of: Callable[[list[Part]], Any]
    system_parts: Callable[[Any], list[Part]]
    alone_key: str = ""

    def envelope_of(self, role: str) -> Body:
        """What stands around the parts of a message that has nothing else."""
        return {"role": self._role_of(role), self.parts_key: []}

    def _role_of(self, role: str) -> str:
        return self.assistant if role == "assistant" else role

    def keep_around(self, message: Body, role: str, cards: list[CardDraft]) -> list[CardDraft]:
        """The cards of a message, the first of which keeps what else than the usual stands around it."""
        parts = message.get(self.parts_key)
        is_list = isinstance(parts, list)
        if parts and is_list and len(message) == 2 and message.get("role") == self._role_of(role):
            return cards
        around = self._emptied(message)
        if parts and same_json(around, self.envelope_of(role)):
            return cards
        return [keep(cards[0], self.parting.name, source_message=around), *cards[1:]]

    def _emptied(self, message: Body) -> Body:
        """A message with `[]` in the place of its parts, `{}` in that of the one part that stands alone."""
        parts = message.get(self.parts_key)
        if isinstance(parts, list):
            return {**message, self.parts_key: []}
        return {**message, self.parts_key: {}} if self.alone_key and isinstance(parts, dict) else message

    def keep_alone(self, message: Body, cards: list[CardDraft]) -> list[CardDraft]:
        """The cards of a message that stands alone, the first of which keeps that."""
        kept = {self.alone_key: self._emptied(message)}
        return [keep(cards[0], self.parting.name, source_message=kept), *cards[1:]]

    def draft_system(self, key: str, value: Any) -> CardDraft:
        """The card of a system prompt beside the messages."""
        words = (self.parting.words(part) for part in self.system_parts(value))
        card = imported_card(RENDERED_PROMPT, "\n".join(filter(None, words)))
        standard = parts_of(self.parting, card)
        if standard and same_json({key: value}, {self.system_key: self.system_of(standard)}):
            return card
        parts = self.system_parts(value)
        return keep(card, self.parting.name, source_message={key: value}, source_blocks=parts)

    def keep_original(self, changed: CardDraft, original: CardDraft) -> CardDraft:
        """`changed`, with the parts of `original` as its own."""
        return keep(changed, self.parting.name, source_blocks=parts_of(self.parting, original))

    def export(self, cards: Iterable[Card]) -> tuple[Body, Iterator[Body]]:
        """System text beside the messages, and these."""
        prompts = [card for card in cards if never_a_message(card) is None and role_of(card) == "system"]
        others = (card for card in answering(cards) if role_of(card) != "system")
        sent = (card for card in others if never_a_message(card) is None)
        messages = (self._message(run) for run in gathered(sent, lambda each: self._around(each) is not None))
        return self._system(prompts), (message for message in messages if message is not None)

    def _system(self, prompts: Sequence[Card]) -> Body:
        if not prompts:
            return {}
        if len(prompts) == 1 and (kept := self._around(prompts[0])) is not None:
            return kept
        parts = [part for card in prompts for part in parts_of(self.parting, card)]
        return {self.system_key: self.system_of(parts)} if parts else {}

    def _message(self, cards: Sequence[Card]) -> Body | None:
        parts = [part for card in cards for part in parts_of(self.parting, card)]
        around = self._around(cards[0])
        if around is not None and self.alone_key and self.alone_key in around:
            return {self.alone_key: self._filled(around[self.alone_key], parts)}
        if around is not None:
            return self._filled(around, parts)
        if not parts and isinstance(encode(self.parting, cards[0]), NoMessage):
            return None
        return {**self.envelope_of(role_of(cards[0])), self.parts_key: parts}

    def _filled(self, around: Body, parts: list[Part]) -> Body:
        place = around.get(self.parts_key)
        if place == {} and self.alone_key and len(parts) == 1:
            return {**around, self.parts_key: parts[0]}
        return (
            {**around, self.parts_key: parts} if place == [] or (place == {} and self.alone_key) else around
        )

    def _around(self, card: Card) -> Body | None:
        return sources.envelope(card, self.parting.name, sources.MESSAGE)
