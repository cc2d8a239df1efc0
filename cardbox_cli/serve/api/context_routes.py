"""Routes of the API about contexts: cards, boxes, requests and their costs, and search.

Boxes and cards are as clients of existing deployments read them: cards without the mark of their content's
type, in the order of the box. All cards of a box come a line each as they are read, so that little is held:
no connection is lent while a client reads. A card never changes and the list is read once, so that the
chunks are those of one moment; only what is deleted or expires meanwhile is left out.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Annotated, Any

import msgspec
from anyio import to_thread
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import iterate_in_threadpool

from cardbox_cli.context.cost.answer import CostAnswer
from cardbox_cli.errors import CbxError, NotFound
from cardbox_cli.inspect.costs import TOP
from cardbox_cli.inspect.requests import RenderAnswer, one_of, render_answer
from cardbox_cli.inspect.search import CardSearch, FoundCard
from cardbox_cli.model.ids import unique
from cardbox_cli.serve.addresses import LINES, Behind, mark_of
from cardbox_cli.serve.api.responses import (
    MAX_IDS,
    Most,
    answers,
    at_most,
    check_size,
    encoded,
    given,
    line_answers,
    paged,
    room_beside,
    size_of,
    stored,
)
from cardbox_cli.serve.http.errors import BrokenOff, Refused, logged
from cardbox_cli.serve.http.reading import Asker, Read
from cardbox_cli.serve.http.routing import ReadingRoute, StreamAnswer
from cardbox_cli.serve.project import Project
from cardbox_cli.store.views.api_views import ApiViews

# --- cards

card_routes = APIRouter(tags=["cards"], route_class=ReadingRoute)

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


@card_routes.post("/cards/batch", responses=answers(FoundCards, tagged=False))
def cards(request: Request, read: Read, asked: AskedCards) -> Response:
    """Cards by their ids, each once, in the order of the request."""
    wanted = at_most(asked.card_ids, "card_ids")
    found = cards_by_id(ApiViews(read.database, read.project_id), wanted)
    missing = given([card_id for card_id in wanted if card_id not in found])
    return encoded(request, FoundCards(cards_of(wanted, found), missing), narrower=FEWER)


@card_routes.get("/cards/{card_id}", responses=answers(ApiCard))
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
    for begin in range(0, len(card_ids), MAX_IDS):
        piece = views.cards(card_ids[begin : begin + MAX_IDS], most=room_beside(size))
        size += size_of(piece.values())
        check_size(size, FEWER)
        found |= piece
    return found


# --- boxes

box_routes = APIRouter(tags=["boxes"], route_class=ReadingRoute)

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


@box_routes.post("/boxes/batch", responses=answers(FoundBoxes, tagged=False))
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


@box_routes.get("/boxes/{box_id}", responses=answers(ApiBox))
def box(request: Request, read: Read, box_id: str) -> Response:
    """A box."""
    return encoded(request, ApiBox(box_id, stored(_listed(read, box_id))))


@box_routes.get("/boxes/{box_id}/cards", responses=answers(list[ApiCard]))
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


# --- the cards of a box, a line each

Tail = Annotated[int | None, Query(alias="limit", ge=1, description="At most so many: the last ones.")]

# Bytes of cards that are read at a time, as they are stored and as they are sent, but for the last of them.
_STORED_AT_ONCE = 1 << 20
_AT_ONCE = 4 << 20
# Bytes that are sent at a time, but for the last card of them.
_SENT_AT_ONCE = 1 << 18
_HEADERS = {"Cache-Control": "no-store"}


@box_routes.get(
    "/boxes/{box_id}/cards.jsonl", response_class=StreamingResponse, responses=line_answers(ApiCard)
)
async def lines_of_box(request: Request, project: str, box_id: str, tail: Tail = None) -> StreamingResponse:
    """The cards of a box in order, or the last ones, a line each. Ids that lead to none are left out.

    An answer that breaks off, without the end that HTTP has for it, is not whole.
    """
    asker = Asker(request, project)
    listed = await to_thread.run_sync(_ids_listed, asker, box_id)
    wanted = listed if tail is None else listed[-tail:]
    return StreamAnswer(
        request, _stream_lines(asker, wanted), media_type="application/x-ndjson", headers=_HEADERS
    )


def _ids_listed(asker: Asker, box_id: str) -> list[str]:
    with asker.glance() as reading:
        return ids_of_box(reading, box_id)


async def _stream_lines(asker: Asker, card_ids: Sequence[str]) -> AsyncIterator[str]:
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
        found = _read_cards(asker, piece, most=_AT_ONCE)
        is_whole = size_of(found.values()) <= _AT_ONCE
        for card_id in piece:
            if card_id in found:
                yield f"{found[card_id]}\n"
            elif not is_whole:
                # It may have been left out of what was read.
                yield from (f"{text}\n" for text in _read_cards(asker, [card_id], most=0).values())


def _pieces(asker: Asker, card_ids: Sequence[str]) -> Iterator[list[str]]:
    """The ids in their order, as many at a time as are read at a time."""
    for begin in range(0, len(card_ids), MAX_IDS):
        with asker.glance() as reading:
            asked = card_ids[begin : begin + MAX_IDS]
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


def _read_cards(asker: Asker, card_ids: Sequence[str], *, most: int) -> dict[str, str]:
    with asker.glance() as reading:
        return ApiViews(reading.database, reading.project_id).cards(unique(card_ids), most=most)


# --- requests, and what they cost

request_routes = APIRouter(tags=["requests"], route_class=ReadingRoute)

Named = Annotated[str | None, Query(min_length=1, max_length=400)]
Profile = Annotated[str | None, Query(min_length=1, max_length=400, description="The profile of a box.")]


@request_routes.get("/render", responses=answers(RenderAnswer))
def render(
    request: Request,
    read: Read,
    box: Named = None,
    turn: Named = None,
    agent: Named = None,
    chat: Named = None,
    at: Annotated[str | None, Query(description="A step: its number or id, or next.")] = None,
    format: Annotated[str | None, Query(description="Default: as it was sent, else the model's.")] = None,
    profile: Profile = None,
) -> Response:
    """The exact request of a box, or of a step of a turn or a chat: its last one, or the next."""
    requests = read.requests(format=format, profile=profile)
    answer = render_answer(requests, box=box, turn=turn, agent=agent, chat=chat, at=at)
    return encoded(request, answer, narrower="ask for a smaller box, or use `cbx render`")


@request_routes.get("/cost", responses=answers(CostAnswer))
def cost(
    request: Request,
    read: Read,
    box: Named = None,
    turn: Named = None,
    agent: Named = None,
    chat: Named = None,
    top: Annotated[int, Query(ge=1, le=1000, description="So many cards at most.")] = TOP,
    since: Annotated[str | None, Query(description="With agent or chat: from this time on, as 2h.")] = None,
    profile: Profile = None,
) -> Response:
    """What the requests of a box, a turn, an agent or a chat cost together, and what of that is waste."""
    kind, name = one_of(box=box, turn=turn, agent=agent, chat=chat)
    costed = read.costs(profile=profile, since=since).read(kind, name)
    return encoded(request, costed.answer(top=top, project_option=read.project_option))


# --- search

search_routes = APIRouter(tags=["search"], route_class=ReadingRoute)

# Readers decode the types, roles and contents that they know; others are stored, and answered, too.
_OPEN: dict[str, Any] = {"type": str, "role": str | None, "content": dict[str, Any] | None}
_Told = msgspec.defstruct(
    "FoundCard",
    [(each.name, _OPEN.get(each.name, each.type)) for each in msgspec.structs.fields(FoundCard)],
    namespace={"__doc__": FoundCard.__doc__},
)


@search_routes.get("/search", responses=answers(list[_Told]))  # type: ignore[valid-type]  # made above
def search(
    request: Request,
    read: Read,
    text: Annotated[str, Query(min_length=1, max_length=1000)],
    type: str | None = None,
    limit: Most = LINES,
    behind: Behind = None,
) -> Response:
    """The newest cards that say a text, in any case, each with what it says there and a box that holds it."""
    search = CardSearch(text, [type] if type else None, mark_of(behind))
    return paged(request, search.newest(read.cards, limit + 1), limit, key="card_id")
