"""Finding cards by what they say, and anything by its id or a piece of one."""

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from cardbox_cli.errors import AmbiguousId, CbxError, NotFound
from cardbox_cli.model.cards import Card
from cardbox_cli.model.pairing import full_text
from cardbox_cli.serve.http.reading import Looking
from cardbox_cli.serve.listing import Behind, following, mark_of
from cardbox_cli.serve.page.errors import PageRoute
from cardbox_cli.serve.page.templating import page
from cardbox_cli.serve.page.windows import INSIDE, PREVIEW
from cardbox_cli.serve.project import Project
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardFilter, CardStore
from cardbox_cli.store.roster import RosterStore
from cardbox_cli.store.views.batch_views import BatchViews
from cardbox_cli.store.views.box_views import BoxViews
from cardbox_cli.store.views.turn_views import TurnViews
from cardbox_cli.text import around, one_line, pattern, searched_words

routes = APIRouter(route_class=PageRoute)

_LINES = 40
# What may be an id, or a piece of one.
_IDLIKE = re.compile(r"\S{4,255}")

Place = tuple[str, str, str]


@routes.get("/search")
def search(look: Looking, q: str = "", behind: Behind = None) -> HTMLResponse:
    """What a search finds, and what has such an id."""
    asked = q.strip()[:500]
    cards: list[Card] = []
    with look.database.snapshot():
        places = list(places_of(look, asked)) if _IDLIKE.fullmatch(asked) and behind is None else []
        if asked:
            where = CardFilter(text=asked, behind=mark_of(behind))
            cards = list(islice(CardStore(look.database, look.project_id).newest(where), _LINES + 1))
        held = (
            BoxViews(look.database, look.project_id).holding([card.card_id for card in cards])
            if cards
            else {}
        )
    found = pattern(searched_words(asked))
    older = following(cards, "card_id", size=_LINES)
    return page(
        look,
        "search.html",
        asked=asked,
        places=places,
        cards=[_found(card, found, held.get(card.card_id)) for card in cards[:_LINES]],
        is_cut=len(cards) > _LINES,
        older=older and look.links.search(q=asked, behind=older),
    )


@routes.get("/find")
def find(look: Looking, id: str) -> Response:
    """What has this id: its page, or a choice where several have."""
    with look.database.snapshot():
        places = list(places_of(look, id))
    if len(places) == 1:
        return RedirectResponse(places[0][2], status_code=303)
    if not places:
        raise NotFound(f"nothing in project {look.project_id!r} has the id {id!r}")
    return page(look, "search.html", asked=id, places=places, cards=[], is_cut=False, older=None)


def places_of(look: Project, asked: str) -> Iterator[Place]:
    """What an id or a piece of one may stand for: what it is, its id, its page."""
    database, project_id, links = look.database, look.project_id, look.links
    for what, resolve, address in (
        ("turn", TurnViews(database, project_id).resolve, links.turn),
        ("card", CardStore(database, project_id).resolve, links.card),
        ("box", _existing_box(BoxStore(database, project_id)), links.box),
        ("batch", BatchViews(database, project_id).resolve, links.batch),
        ("agent", _agent(RosterStore(database, project_id)), links.agent),
    ):
        try:
            found = [resolve(asked)]
        except AmbiguousId as ambiguous:
            found = [str(each) for each in (ambiguous.details or {}).get("candidates", [])]
        except CbxError:
            # None has it, or the database has no such table.
            continue
        for each in found:
            yield what, each, address(each)


def _existing_box(boxes: BoxStore) -> Callable[[str], str]:
    """Any UUID is the whole id of a box, whether there is one or not."""

    def resolve(asked: str) -> str:
        found = boxes.resolve(asked)
        boxes.require(found)
        return found

    return resolve


def _agent(roster: RosterStore) -> Callable[[str], str]:
    """Agents are called by their whole names."""
    return lambda asked: roster.get(asked).agent_id


def _found(card: Card, words: re.Pattern[str] | None, box_id: str | None) -> dict[str, Any]:
    text = full_text(card)
    line = one_line(around(text, words), PREVIEW)
    return {
        "card": card,
        "box_id": box_id,
        "pieces": list(_marked(line, words)),
        "text": text[:INSIDE],
        "is_cut": len(text) > INSIDE,
    }


def _marked(line: str, words: re.Pattern[str] | None) -> Iterator[tuple[str, bool]]:
    """The pieces of a line, and whether each is what was found."""
    place = 0
    for found in words.finditer(line) if words else ():
        yield line[place : found.start()], False
        yield found[0], True
        place = found.end()
    yield line[place:], False
