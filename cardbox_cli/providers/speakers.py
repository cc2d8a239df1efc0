"""Messages in the formats that keep system text apart and join neighbours of one role.

Pure, and knows no format: who speaks, where a layer behind the history goes, and which cards or messages are
one. The formats decide what a message holds.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

import msgspec

from cardbox_cli.context import sources
from cardbox_cli.context.messages import Message
from cardbox_cli.context.provider import AnyCard
from cardbox_cli.context.request import Request
from cardbox_cli.model.card_types import card_type
from cardbox_cli.model.cards import SYSTEM_ROLES, Card
from cardbox_cli.model.layers import CHECKPOINT


def role_of(card: AnyCard) -> str:
    """Return whose message a card is: system, assistant or user, who also brings the tools' results."""
    if card.role in SYSTEM_ROLES:
        return "system"
    return "assistant" if card.role == "assistant" else "user"


def gather(cards: Iterable[Card], begins: Callable[[Card], bool]) -> Iterator[list[Card]]:
    """Yield lists of the cards that are one message: neighbours of one group and speaker.

    A card that `begins` a message never continues one.
    """
    run: list[Card] = []
    for card in cards:
        if run and (not _continues(run[-1], card) or begins(card)):
            yield run
            run = []
        run.append(card)
    if run:
        yield run


def _continues(before: Card, card: Card) -> bool:
    group = sources.group(card)
    return group is not None and group == sources.group(before) and role_of(card) == role_of(before)


def demote_late_layers(messages: Iterable[Message]) -> Iterator[Message]:
    """Yield the messages, layers behind the history as the user's: system text has no place there."""
    is_behind = False
    for message in messages:
        is_behind = is_behind or message.layer == CHECKPOINT
        if is_behind and message.layer != CHECKPOINT and message.body["role"] == "system":
            message = msgspec.structs.replace(message, body={**message.body, "role": "user"})
        yield message


def moved_texts(request: Request, moved: Iterable[Message]) -> Iterator[tuple[str | None, str]]:
    """Yield what messages lose that are sent at the top: their places, unless their type has none."""
    for message in moved:
        place = request.places.get(message.card_id or "")
        card = None if place is None else place.slot.card
        if card is None or not card_type(card.type).is_late:
            yield message.card_id, "system text within the history is moved to the top"


def runs(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """Yield lists of neighbours of one role, which are sent as one; each system text is its own."""
    for role, run in groupby(messages, key=lambda message: message.body["role"]):
        together = list(run)
        yield from ([message] for message in together) if role == "system" else [together]


def steps(messages: Sequence[Message]) -> list[int]:
    """Return the step of each message: neighbours of one role share one; system text, which moves, has none
    (-1)."""
    numbers: list[int] = []
    number, before = 0, None
    for message in messages:
        role = message.body["role"]
        if role != "system":
            number += role != before
            before = role
        numbers.append(-1 if role == "system" else number)
    return numbers
