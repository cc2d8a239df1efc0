"""Cards, as clients of existing deployments read them: without the mark of their content's type."""

from collections.abc import Iterable
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict

from cardbox_cli.errors import NotFound
from cardbox_cli.serve.api.answers import (
    MOST,
    at_most,
    check_size,
    encoded,
    given,
    room_beside,
    size_of,
    stored,
)
from cardbox_cli.serve.api.document import answers
from cardbox_cli.serve.http.reading import Read
from cardbox_cli.serve.http.routing import ReadingRoute
from cardbox_cli.store.views.found_cards import ApiViews

routes = APIRouter(tags=["cards"], route_class=ReadingRoute)

FEWER = "ask for fewer, or for each card by itself at /cards/CARD"
"""What to ask where cards are too long for an answer."""


class ApiCard(msgspec.Struct):
    """A card. `created_at` is by its author's clock; metadata of foreign cards may hold anything there."""

    card_id: str
    project_id: str
    type: str
    content: Any
    created_at: Any
    author_id: str | None
    metadata: Any
    tool_calls: Any
    tool_call_id: str | None
    ttl_seconds: int | None


class FoundCards(msgspec.Struct):
    """Those that there are, in the order in which they were asked for, and the ids of the others."""

    cards: list[ApiCard]
    missing_ids: list[str]


class AskedCards(BaseModel):
    """Which cards: at most 100."""

    model_config = ConfigDict(strict=True)

    card_ids: list[str]


@routes.post("/cards/batch", responses=answers(FoundCards, tagged=False))
def cards(request: Request, read: Read, asked: AskedCards) -> Response:
    """Cards by their ids, each once, in the order of the request."""
    wanted = at_most(asked.card_ids, "card_ids")
    found = cards_by_id(ApiViews(read.database, read.project_id), wanted)
    missing = given([card_id for card_id in wanted if card_id not in found])
    return encoded(request, FoundCards(cards_of(wanted, found), missing), narrower=FEWER)


@routes.get("/cards/{card_id}", responses=answers(ApiCard))
def card(request: Request, read: Read, card_id: str) -> Response:
    """A card, which never changes; it may be deleted, and expire."""
    found = ApiViews(read.database, read.project_id).cards([card_id], most=room_beside(0))
    if card_id not in found:
        raise NotFound("card not found")
    return encoded(request, stored(found[card_id]), of_one=True)


def cards_of(card_ids: Iterable[str], found: dict[str, str]) -> list[ApiCard]:
    """The cards of these ids that were found, of which JSON is given, in the order of the ids."""
    return [stored(found[card_id]) for card_id in card_ids if card_id in found]


def cards_by_id(views: ApiViews, card_ids: list[str]) -> dict[str, str]:
    """The JSON of cards by id, read in pieces. Raises InvalidInput where they are too long for one answer."""
    found: dict[str, str] = {}
    size = 0
    for begin in range(0, len(card_ids), MOST):
        piece = views.cards(card_ids[begin : begin + MOST], most=room_beside(size))
        size += size_of(piece.values())
        check_size(size, FEWER)
        found |= piece
    return found
