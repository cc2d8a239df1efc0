"""API routes for contexts: cards, boxes, requests and their costs, and search.

Boxes and cards have the form that clients of existing deployments read. All cards of a box are streamed, one
on each line, in chunks; the server holds no connection while the client reads a chunk. Cards never change and
their ids are read once, so the stream shows one moment, without cards that are deleted or expire meanwhile.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import nullcontext
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
from cardbox_cli.serve.addresses import PAGE_SIZE, Behind, parse_position
from cardbox_cli.serve.api.responses import (
    MAX_IDS,
    Most,
    check_size,
    embed_ids,
    embed_json,
    json_response,
    limited_ids,
    line_docs,
    page_response,
    remaining_bytes,
    total_bytes,
    value_docs,
)
from cardbox_cli.serve.http.errors import RequestRejected, ResponseBroken, log_error
from cardbox_cli.serve.http.project_access import ProjectRequest, Read
from cardbox_cli.serve.http.routing import LimitedStream, ReadingRoute
from cardbox_cli.serve.project_view import ProjectView
from cardbox_cli.store.views.api_views import ApiViews

# --- cards

card_routes = APIRouter(tags=["cards"], route_class=ReadingRoute)

CARDS_HINT = "request fewer cards, or each one from /cards/CARD"


class ApiCard(msgspec.Struct):
    """A card. `created_at` is by its author's clock; in cards of other programs it may be any JSON value."""

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


class CardsResponse(msgspec.Struct):
    """The cards that exist, in the order of the request, and the ids of the others."""

    cards: list[ApiCard]
    missing_ids: list[str]


class CardsRequest(BaseModel):
    """The ids of the requested cards, at most 100."""

    model_config = ConfigDict(strict=True)

    card_ids: list[str]


@card_routes.post("/cards/batch", responses=value_docs(CardsResponse, tagged=False))
def cards(request: Request, read: Read, body: CardsRequest) -> Response:
    """Return cards by their ids, each once, in the order of the request."""
    requested_ids = limited_ids(body.card_ids, "card_ids")
    texts = cards_by_id(ApiViews(read.database, read.project_id), requested_ids)
    missing = embed_ids([card_id for card_id in requested_ids if card_id not in texts])
    return json_response(request, CardsResponse(cards_of(requested_ids, texts), missing), narrower=CARDS_HINT)


@card_routes.get("/cards/{card_id}", responses=value_docs(ApiCard))
def card(request: Request, read: Read, card_id: str) -> Response:
    """Return a card. It never changes, but may be deleted or expire."""
    texts = ApiViews(read.database, read.project_id).cards([card_id], most=remaining_bytes(0))
    if card_id not in texts:
        raise NotFound("card not found")
    return json_response(request, embed_json(texts[card_id]), of_one=True)


def cards_of(card_ids: Iterable[str], texts: dict[str, str]) -> list[ApiCard]:
    """Return the cards in the order of the ids. `texts` holds the JSON of each existing card."""
    return [embed_json(texts[card_id]) for card_id in card_ids if card_id in texts]


def cards_by_id(views: ApiViews, card_ids: list[str]) -> dict[str, str]:
    """Read the JSON of cards by id, in chunks. Raises InvalidInput if it is too long for one response."""
    texts: dict[str, str] = {}
    size = 0
    for begin in range(0, len(card_ids), MAX_IDS):
        chunk = views.cards(card_ids[begin : begin + MAX_IDS], most=remaining_bytes(size))
        size += total_bytes(chunk.values())
        check_size(size, CARDS_HINT)
        texts |= chunk
    return texts


# --- boxes

box_routes = APIRouter(tags=["boxes"], route_class=ReadingRoute)

Limit = Annotated[int, Query(ge=1, le=500, description="Maximum number of cards, from the end of the box.")]


class ApiBox(msgspec.Struct):
    """A box: its id as given in the request, and the ids of its cards in order."""

    box_id: str
    card_ids: list[str]


class HydratedBox(ApiBox, omit_defaults=True):
    """A box and, if requested, its last cards."""

    hydrated_cards: list[ApiCard] | msgspec.UnsetType = msgspec.UNSET


class BoxesResponse(msgspec.Struct):
    """The boxes that exist, in the order of the request, and the ids of missing boxes and cards."""

    boxes: list[HydratedBox]
    missing_box_ids: list[str]
    missing_card_ids: list[str]


class BoxesRequest(BaseModel):
    """The ids of the requested boxes, at most 100. `hydrate`: include the last `limit` cards of each."""

    model_config = ConfigDict(strict=True)

    box_ids: list[str]
    hydrate: bool = False
    limit: int = Field(200, ge=1, le=500)


@box_routes.post("/boxes/batch", responses=value_docs(BoxesResponse, tagged=False))
def boxes(request: Request, read: Read, body: BoxesRequest) -> Response:
    """Return boxes by their ids, each once, in the order of the request."""
    requested_ids = limited_ids(body.box_ids, "box_ids")
    views = ApiViews(read.database, read.project_id)
    with read.database.snapshot() if body.hydrate else nullcontext():
        lists = views.boxes(requested_ids)
        tails = {each: _decode_ids(ids)[-body.limit :] for each, ids in lists.items() if body.hydrate}
        tail_ids = unique(card_id for tail in tails.values() for card_id in tail)
        texts = cards_by_id(views, tail_ids)
    response = BoxesResponse(
        [
            HydratedBox(
                each, embed_json(ids), cards_of(tails[each], texts) if body.hydrate else msgspec.UNSET
            )
            for each, ids in lists.items()
        ],
        missing_box_ids=embed_ids([each for each in requested_ids if each not in lists]),
        missing_card_ids=[card_id for card_id in tail_ids if card_id not in texts],
    )
    return json_response(request, response, narrower=CARDS_HINT)


@box_routes.get("/boxes/{box_id}", responses=value_docs(ApiBox))
def box(request: Request, read: Read, box_id: str) -> Response:
    """Return a box."""
    return json_response(request, ApiBox(box_id, embed_json(_card_ids_json(read, box_id))))


@box_routes.get("/boxes/{box_id}/cards", responses=value_docs(list[ApiCard]))
def cards_of_box(request: Request, read: Read, box_id: str, limit: Limit = 200) -> Response:
    """Return the last cards of a box, in order, without missing cards."""
    card_ids = ids_of_box(read, box_id)[-limit:]
    texts = cards_by_id(ApiViews(read.database, read.project_id), unique(card_ids))
    return json_response(request, cards_of(card_ids, texts), narrower=CARDS_HINT)


def ids_of_box(read: ProjectView, box_id: str) -> list[str]:
    """Return the ids of a box's cards, in order. Raises NotFound."""
    return _decode_ids(_card_ids_json(read, box_id))


def _card_ids_json(read: ProjectView, box_id: str) -> str:
    lists = ApiViews(read.database, read.project_id).boxes([box_id])
    if box_id not in lists:
        raise NotFound("box not found")
    return lists[box_id]


def _decode_ids(text: str) -> list[str]:
    return msgspec.json.decode(text, type=list[str])


# --- the stream of the cards of a box, one on each line

Tail = Annotated[
    int | None, Query(alias="limit", ge=1, description="Maximum number of cards, from the end of the box.")
]

# The sizes in bytes of the chunks in which cards are read (as stored, and as JSON) and sent. The last card of
# a chunk may exceed them.
_STORED_CHUNK = 1 << 20
_JSON_CHUNK = 4 << 20
_SENT_CHUNK = 1 << 18
_HEADERS = {"Cache-Control": "no-store"}


@box_routes.get("/boxes/{box_id}/cards.jsonl", response_class=StreamingResponse, responses=line_docs(ApiCard))
async def lines_of_box(request: Request, project: str, box_id: str, tail: Tail = None) -> StreamingResponse:
    """Stream the cards of a box in order, one on each line, without missing cards.

    If the connection closes without the final HTTP chunk, the response is incomplete.
    """
    access = ProjectRequest(request, project)

    def read_ids() -> list[str]:
        with access.open_autocommit() as reading:
            return ids_of_box(reading, box_id)

    ids = await to_thread.run_sync(read_ids)
    lines = _stream_lines(access, ids if tail is None else ids[-tail:])
    return LimitedStream(request, lines, media_type="application/x-ndjson", headers=_HEADERS)


async def _stream_lines(access: ProjectRequest, card_ids: Sequence[str]) -> AsyncIterator[str]:
    try:
        async for text in iterate_in_threadpool(_join_lines(_lines(access, card_ids))):
            yield text
    except (CbxError, RequestRejected) as exc:
        log_error(access.request.scope, exc)
        raise ResponseBroken from None


def _join_lines(lines: Iterable[str]) -> Iterator[str]:
    """Join lines into chunks that are sent together."""
    chunk: list[str] = []
    size = 0
    for line in lines:
        chunk.append(line)
        size += len(line)
        if size > _SENT_CHUNK:
            yield "".join(chunk)
            chunk, size = [], 0
    yield "".join(chunk)


def _lines(access: ProjectRequest, card_ids: Sequence[str]) -> Iterator[str]:
    for chunk in _chunks(access, card_ids):
        texts = _read_cards(access, chunk, most=_JSON_CHUNK)
        is_complete = total_bytes(texts.values()) <= _JSON_CHUNK
        for card_id in chunk:
            if card_id in texts:
                yield f"{texts[card_id]}\n"
            elif not is_complete:
                # The read stopped at the limit, perhaps before this card.
                yield from (f"{text}\n" for text in _read_cards(access, [card_id], most=0).values())


def _chunks(access: ProjectRequest, card_ids: Sequence[str]) -> Iterator[list[str]]:
    """Split the ids into chunks that are read together, in order."""
    for begin in range(0, len(card_ids), MAX_IDS):
        with access.open_autocommit() as reading:
            some = card_ids[begin : begin + MAX_IDS]
            sizes = ApiViews(reading.database, reading.project_id).stored_sizes(unique(some))
        chunk: list[str] = []
        size = 0
        for card_id in some:
            # A card that occurs several times in a chunk is read once.
            more = 0 if card_id in chunk else sizes.get(card_id, 0)
            if chunk and size + more > _STORED_CHUNK:
                yield chunk
                chunk, size = [], 0
            chunk.append(card_id)
            size += more
        yield chunk


def _read_cards(access: ProjectRequest, card_ids: Sequence[str], *, most: int) -> dict[str, str]:
    with access.open_autocommit() as reading:
        return ApiViews(reading.database, reading.project_id).cards(unique(card_ids), most=most)


# --- requests and their costs

request_routes = APIRouter(tags=["requests"], route_class=ReadingRoute)

Named = Annotated[str | None, Query(min_length=1, max_length=400)]
Profile = Annotated[str | None, Query(min_length=1, max_length=400, description="The profile of a box.")]


@request_routes.get("/render", responses=value_docs(RenderAnswer))
def render(
    request: Request,
    read: Read,
    box: Named = None,
    turn: Named = None,
    agent: Named = None,
    chat: Named = None,
    at: Annotated[str | None, Query(description="A step's number or id, or `next`.")] = None,
    format: Annotated[str | None, Query(description="A provider's format. Default: as sent.")] = None,
    profile: Profile = None,
) -> Response:
    """Return the exact request of a box, or of a step of a turn, agent or chat. Default: the last step."""
    requests = read.requests(format=format, profile=profile)
    answer = render_answer(requests, box=box, turn=turn, agent=agent, chat=chat, at=at)
    return json_response(request, answer, narrower="name a smaller box, or use `cbx render`")


@request_routes.get("/cost", responses=value_docs(CostAnswer))
def cost(
    request: Request,
    read: Read,
    box: Named = None,
    turn: Named = None,
    agent: Named = None,
    chat: Named = None,
    top: Annotated[int, Query(ge=1, le=1000, description="Maximum number of cards.")] = TOP,
    since: Annotated[str | None, Query(description="With agent or chat: from this time, as 2h.")] = None,
    profile: Profile = None,
) -> Response:
    """Return the token costs of the requests of a box, turn, agent or chat, and the waste among them."""
    kind, name = one_of(box=box, turn=turn, agent=agent, chat=chat)
    costed = read.costs(profile=profile, since=since).read(kind, name)
    return json_response(request, costed.answer(top=top, project_option=read.project_option))


# --- search

search_routes = APIRouter(tags=["search"], route_class=ReadingRoute)

# Foreign cards may have types, roles and contents that cbx does not know; the API returns them unchanged.
_OPEN: dict[str, Any] = {"type": str, "role": str | None, "content": dict[str, Any] | None}
_SearchResult = msgspec.defstruct(
    "FoundCard",
    [(each.name, _OPEN.get(each.name, each.type)) for each in msgspec.structs.fields(FoundCard)],
    namespace={"__doc__": FoundCard.__doc__},
)


@search_routes.get("/search", responses=value_docs(list[_SearchResult]))  # type: ignore[valid-type]  # made above
def search(
    request: Request,
    read: Read,
    text: Annotated[str, Query(min_length=1, max_length=1000)],
    type: str | None = None,
    limit: Most = PAGE_SIZE,
    behind: Behind = None,
) -> Response:
    """Return the newest cards that contain a text, ignoring case, each with an excerpt and a box."""
    search = CardSearch(text, [type] if type else None, parse_position(behind))
    return page_response(request, search.newest(read.cards, limit + 1), limit, key="card_id")
