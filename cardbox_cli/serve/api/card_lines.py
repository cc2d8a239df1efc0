"""All cards of a box, a line each, as they are read: however long it is, little of it is held.

No connection is lent while an asker reads. A card never changes and the list is read once, so that the pieces
are those of one moment; only what is deleted or expires meanwhile is left out.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import iterate_in_threadpool

from cardbox_cli.errors import CbxError
from cardbox_cli.model.ids import unique
from cardbox_cli.serve.api.answers import MOST, size_of
from cardbox_cli.serve.api.boxes import ids_of_box
from cardbox_cli.serve.api.cards import ApiCard
from cardbox_cli.serve.api.document import line_answers
from cardbox_cli.serve.http.errors import BrokenOff, Refused, logged
from cardbox_cli.serve.http.reading import Asker
from cardbox_cli.serve.http.routing import ReadingRoute
from cardbox_cli.serve.http.streams import StreamAnswer
from cardbox_cli.store.views.found_cards import ApiViews

routes = APIRouter(tags=["boxes"], route_class=ReadingRoute)

Tail = Annotated[int | None, Query(alias="limit", ge=1, description="At most so many: the last ones.")]

# Bytes of cards that are read at a time, as they are stored and as they are sent, but for the last of them.
_STORED_AT_ONCE = 1 << 20
_AT_ONCE = 4 << 20
# Bytes that are sent at a time, but for the last card of them.
_SENT_AT_ONCE = 1 << 18
_HEADERS = {"Cache-Control": "no-store"}


@routes.get("/boxes/{box_id}/cards.jsonl", response_class=StreamingResponse, responses=line_answers(ApiCard))
async def lines_of_box(request: Request, project: str, box_id: str, tail: Tail = None) -> StreamingResponse:
    """The cards of a box in order, or the last ones, a line each. Ids that lead to none are left out.

    An answer that breaks off, without the end that HTTP has for it, is not whole.
    """
    asker = Asker(request, project)
    listed = await to_thread.run_sync(_listed, asker, box_id)
    wanted = listed if tail is None else listed[-tail:]
    return StreamAnswer(request, _stream(asker, wanted), media_type="application/x-ndjson", headers=_HEADERS)


def _listed(asker: Asker, box_id: str) -> list[str]:
    with asker.glance() as reading:
        return ids_of_box(reading, box_id)


async def _stream(asker: Asker, card_ids: Sequence[str]) -> AsyncIterator[str]:
    try:
        async for text in iterate_in_threadpool(_joined(_lines(asker, card_ids))):
            yield text
    except (CbxError, Refused) as exc:
        logged(asker.request.scope, exc)
        raise BrokenOff from None


def _joined(lines: Iterable[str]) -> Iterator[str]:
    """Lines, as many at a time as are sent at a time."""
    held: list[str] = []
    size = 0
    for line in lines:
        held.append(line)
        size += len(line)
        if size > _SENT_AT_ONCE:
            yield "".join(held)
            held, size = [], 0
    yield "".join(held)


def _lines(asker: Asker, card_ids: Sequence[str]) -> Iterator[str]:
    for piece in _pieces(asker, card_ids):
        found = _read(asker, piece, most=_AT_ONCE)
        is_whole = size_of(found.values()) <= _AT_ONCE
        for card_id in piece:
            if card_id in found:
                yield f"{found[card_id]}\n"
            elif not is_whole:
                # It may have been left out of what was read.
                yield from (f"{text}\n" for text in _read(asker, [card_id], most=0).values())


def _pieces(asker: Asker, card_ids: Sequence[str]) -> Iterator[list[str]]:
    """The ids in their order, as many at a time as are read at a time."""
    for begin in range(0, len(card_ids), MOST):
        with asker.glance() as reading:
            asked = card_ids[begin : begin + MOST]
            sizes = ApiViews(reading.database, reading.project_id).stored_sizes(unique(asked))
        piece: list[str] = []
        size = 0
        for card_id in asked:
            # Each of a piece is read once, however often it stands there.
            more = 0 if card_id in piece else sizes.get(card_id, 0)
            if piece and size + more > _STORED_AT_ONCE:
                yield piece
                piece, size = [], 0
            piece.append(card_id)
            size += more
        yield piece


def _read(asker: Asker, card_ids: Sequence[str], *, most: int) -> dict[str, str]:
    with asker.glance() as reading:
        return ApiViews(reading.database, reading.project_id).cards(unique(card_ids), most=most)
