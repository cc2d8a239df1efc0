"""Boxes and their cards, as clients of existing deployments read them, cards in the order of the box."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from cardbox_cli.errors import NotFound
from cardbox_cli.model.ids import unique
from cardbox_cli.serve.api.answers import at_most, encoded, given, stored
from cardbox_cli.serve.api.cards import FEWER, ApiCard, cards_by_id, cards_of
from cardbox_cli.serve.api.document import answers
from cardbox_cli.serve.http.reading import Read
from cardbox_cli.serve.http.routing import ReadingRoute
from cardbox_cli.serve.project import Project
from cardbox_cli.store.views.found_cards import ApiViews

routes = APIRouter(tags=["boxes"], route_class=ReadingRoute)

Limit = Annotated[int, Query(ge=1, le=500, description="At most so many cards: the last ones.")]


class ApiBox(msgspec.Struct):
    """A box: its id as it was asked for, and the ids of its cards in order."""

    box_id: str
    card_ids: list[str]


class HydratedBox(ApiBox, omit_defaults=True):
    """A box, and where they are asked for the last of its cards."""

    hydrated_cards: list[ApiCard] | msgspec.UnsetType = msgspec.UNSET


class FoundBoxes(msgspec.Struct):
    """Those that there are, in the order in which they were asked for, and what is missing."""

    boxes: list[HydratedBox]
    missing_box_ids: list[str]
    missing_card_ids: list[str]


class AskedBoxes(BaseModel):
    """Which boxes, at most 100, and whether the last cards of each are wanted."""

    model_config = ConfigDict(strict=True)

    box_ids: list[str]
    hydrate: bool = False
    limit: int = Field(200, ge=1, le=500)


@routes.post("/boxes/batch", responses=answers(FoundBoxes, tagged=False))
def boxes(request: Request, read: Read, asked: AskedBoxes) -> Response:
    """Boxes by their ids, each once, in the order of the request."""
    wanted = at_most(asked.box_ids, "box_ids")
    views = ApiViews(read.database, read.project_id)
    if not asked.hydrate:
        lists = views.boxes(wanted)
        found_boxes = [HydratedBox(box_id, stored(ids)) for box_id, ids in lists.items()]
        return _found(request, found_boxes, missing=[each for each in wanted if each not in lists])
    with read.database.snapshot():
        lists = views.boxes(wanted)
        tails = {box_id: _ids(text)[-asked.limit :] for box_id, text in lists.items()}
        tailing = unique(card_id for tail in tails.values() for card_id in tail)
        found = cards_by_id(views, tailing)
    found_boxes = [
        HydratedBox(box_id, stored(ids), cards_of(tails[box_id], found)) for box_id, ids in lists.items()
    ]
    lost = [card_id for card_id in tailing if card_id not in found]
    return _found(request, found_boxes, missing=[each for each in wanted if each not in lists], lost=lost)


@routes.get("/boxes/{box_id}", responses=answers(ApiBox))
def box(request: Request, read: Read, box_id: str) -> Response:
    """A box."""
    return encoded(request, ApiBox(box_id, stored(_listed(read, box_id))))


@routes.get("/boxes/{box_id}/cards", responses=answers(list[ApiCard]))
def cards_of_box(request: Request, read: Read, box_id: str, limit: Limit = 200) -> Response:
    """The last cards of a box, in order. Ids that lead to none are left out."""
    wanted = ids_of_box(read, box_id)[-limit:]
    found = cards_by_id(ApiViews(read.database, read.project_id), unique(wanted))
    return encoded(request, cards_of(wanted, found), narrower=FEWER)


def ids_of_box(read: Project, box_id: str) -> list[str]:
    """The ids of a box's cards, in order. Raises NotFound."""
    return _ids(_listed(read, box_id))


def _found(
    request: Request, boxes: list[HydratedBox], *, missing: list[str], lost: Sequence[str] = ()
) -> Response:
    """The answer of these boxes, and of the ids of boxes and cards that there are not."""
    return encoded(request, FoundBoxes(boxes, given(missing), list(lost)), narrower=FEWER)


def _listed(read: Project, box_id: str) -> str:
    """The ids of a box, as JSON. Raises NotFound."""
    lists = ApiViews(read.database, read.project_id).boxes([box_id])
    if box_id not in lists:
        raise NotFound("box not found")
    return lists[box_id]


def _ids(text: str) -> list[str]:
    return msgspec.json.decode(text, type=list[str])
