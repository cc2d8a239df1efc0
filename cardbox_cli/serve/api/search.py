"""Cards by what they say."""

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from cardbox_cli.serve.api.document import answers
from cardbox_cli.serve.api.lists import Most, paged
from cardbox_cli.serve.http.reading import Read
from cardbox_cli.serve.http.routing import ReadingRoute
from cardbox_cli.serve.listing import Behind, mark_of
from cardbox_cli.store.cards import CardFilter, CardStore
from cardbox_cli.store.views.box_views import BoxViews
from cardbox_cli.store.views.found_cards import FoundCard, found_cards, found_pattern

routes = APIRouter(tags=["search"], route_class=ReadingRoute)

# Readers decode the types, roles and contents that they know; others are stored, and answered, too.
_OPEN: dict[str, Any] = {"type": str, "role": str | None, "content": dict[str, Any] | None}
_Told = msgspec.defstruct(
    "FoundCard",
    [(each.name, _OPEN.get(each.name, each.type)) for each in msgspec.structs.fields(FoundCard)],
    namespace={"__doc__": FoundCard.__doc__},
)


@routes.get("/search", responses=answers(list[_Told]))  # type: ignore[valid-type]  # made above
def search(
    request: Request,
    read: Read,
    text: Annotated[str, Query(min_length=1, max_length=1000)],
    type: str | None = None,
    limit: Most = 50,
    behind: Behind = None,
) -> Response:
    """The newest cards that say a text, in any case, each with what it says there and a box that holds it."""
    where = CardFilter(text=text, types=[type] if type else None, behind=mark_of(behind))
    cards = CardStore(read.database, read.project_id).newest(where, limit=limit + 1)
    found = found_cards(cards, BoxViews(read.database, read.project_id), found_pattern(text))
    return paged(request, found, limit, key="card_id")
