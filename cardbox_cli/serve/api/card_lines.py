"""All cards of a box, a line each, as they are read: however long it is, little of it is held.

No connection is lent while an asker reads. A card never changes and the list is read once, so that the pieces
are those of one moment; only what is deleted or expires meanwhile is left out.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse

from cardbox_cli.model.ids import unique
from cardbox_cli.serve.api.answers import MOST, size_of
from cardbox_cli.serve.api.boxes import ids_of_box
from cardbox_cli.serve.api.cards import ApiCard
from cardbox_cli.serve.api.document import lines
from cardbox_cli.serve.http.reading import Asker
from cardbox_cli.serve.http.routing import ReadingRoute
from cardbox_cli.store.views.api import ApiViews

routes = APIRouter(tags=["boxes"], route_class=ReadingRoute)

Tail = Annotated[int | None, Query(alias="limit", ge=1, description="At most so many: the last ones.")]

# Bytes of the cards that are read at a time, but for the last of them.
_AT_ONCE = 4 << 20
_HEADERS = {"Cache-Control": "no-store"}


@routes.get("/boxes/{box_id}/cards.jsonl", response_class=StreamingResponse, responses=lines(ApiCard))
async def lines_of_box(request: Request, project: str, box_id: str, tail: Tail = None) -> StreamingResponse:
    """The cards of a box in order, or the last ones, a line each. Ids that lead to none are left out.

    An answer that breaks off, without the end that HTTP has for it, is not whole.
    """
    asker = Asker(request, project)
    listed = await to_thread.run_sync(_listed, asker, box_id)
    # From its end, 0 being no end.
    wanted = listed if tail is None else listed[-tail:]
    return StreamingResponse(_lines(asker, wanted), media_type="application/x-ndjson", headers=_HEADERS)


def _listed(asker: Asker, box_id: str) -> list[str]:
    with asker.glance() as reading:
        return ids_of_box(reading, box_id)


def _lines(asker: Asker, card_ids: Sequence[str]) -> Iterator[str]:
    for begin in range(0, len(card_ids), MOST):
        piece = card_ids[begin : begin + MOST]
        found = _read(asker, piece, most=_AT_ONCE)
        if size_of(found.values()) <= _AT_ONCE:
            yield "".join(f"{found[card_id]}\n" for card_id in piece if card_id in found)
            continue
        # Some may be left out of what was read.
        for card_id in piece:
            for text in _read(asker, [card_id], most=0).values():
                yield f"{text}\n"


def _read(asker: Asker, card_ids: Sequence[str], *, most: int) -> dict[str, str]:
    with asker.glance() as reading:
        return ApiViews(reading.database, reading.project_id).cards(unique(card_ids), most=most)
