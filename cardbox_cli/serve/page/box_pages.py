"""Pages of boxes, cards and search results."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import msgspec
from fastapi import APIRouter
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from cardbox_cli.errors import AmbiguousId, CbxError, NotFound
from cardbox_cli.execution.turn_summary import convert
from cardbox_cli.inspect.search import CardSearch, FoundCard
from cardbox_cli.model import exact_json
from cardbox_cli.model.boxes import BOX_KINDS, INTERNAL_KINDS, CardState
from cardbox_cli.model.cards import Card, card_text
from cardbox_cli.model.content import TextContent, ToolResultContent
from cardbox_cli.model.pairing import call_reference, full_text
from cardbox_cli.serve.addresses import PAGE_SIZE, Behind, From, next_position, parse_position
from cardbox_cli.serve.http.project_access import PageRead
from cardbox_cli.serve.page.links import check_choice
from cardbox_cli.serve.page.templating import PageRoute, page
from cardbox_cli.serve.project_view import ProjectView
from cardbox_cli.store.in_use import BoxUseStore
from cardbox_cli.store.views.box_views import BoxKindFilter, BoxViews, WindowSlot
from cardbox_cli.text.escaping import excerpt
from cardbox_cli.text.search_terms import skip_to_match

# The maximum numbers of characters of a row, and of its unfolded text. The card's own page shows the rest.
PREVIEW, INSIDE = 160, 4_000


class ShownSlot(msgspec.Struct, frozen=True, kw_only=True):
    """A position of a box, as a row."""

    position: int
    card_id: str
    state: CardState
    size: int
    card: Card | None
    type: str
    role: str | None
    preview: str
    text: str
    is_cut: bool
    answers: str
    rule: str | None


def make_row(slot: WindowSlot, rule_of: Callable[[int], str | None] = lambda _: None) -> ShownSlot:
    """Make a row of a box. `rule_of` returns the recipe rule that selected the card at a position."""
    text = slot.beginning if slot.card is None else full_text(slot.card)
    return convert(
        ShownSlot,
        slot,
        # As the command line counts it: the text that the card shows, without its envelope.
        size=slot.size if slot.card is None else len(text.encode("utf-8", "surrogatepass")),
        preview=excerpt(text, PREVIEW),
        text=text[:INSIDE],
        is_cut=slot.card is None or len(text) > INSIDE,
        answers="" if slot.card is None else call_reference(slot.card),
        rule=rule_of(slot.position),
    )


routes = APIRouter(route_class=PageRoute)

# The cards in a window of a box, the characters in a window of a card, and the maximum number of boxes shown
# for a card.
_WINDOW, _CHARACTERS, _REFS = 100, 20_000, 50
_METADATA = 4_000
# JSON is not indented if it has more characters or brackets, or if a line would begin with this many blanks.
_MAX_INDENTED, _MAX_BRACKETS, _BLANKS = 100_000, 400, 32
# Metadata that the page shows elsewhere.
_OTHER_FACTS = frozenset({"type", "role", "author_id", "project_id", "created_at"})


@routes.get("/boxes")
def boxes(read: PageRead, kind: str | None = None, behind: Behind = None) -> HTMLResponse:
    box_kind = check_choice(kind, BOX_KINDS, "box kind")
    position = parse_position(behind, of_boxes=True)
    where = BoxKindFilter(
        kinds=None if box_kind is None else (box_kind,),
        without=() if box_kind is not None else INTERNAL_KINDS,
        behind=position,
    )
    rows = list(BoxViews(read.database, read.project_id).newest(where, limit=PAGE_SIZE + 1))
    older = next_position(rows, "box_id", "updated_at")
    return page(
        read,
        "boxes.html",
        view="Boxes",
        boxes=rows[:PAGE_SIZE],
        kind=box_kind,
        older=older and read.links.boxes(kind=box_kind, behind=older),
    )


@routes.get("/boxes/{box_id}")
def box(read: PageRead, box_id: str, first: From = 0, part: str | None = None) -> HTMLResponse:
    """Show a box from a position on. `part=slots` returns only the rows."""
    views = BoxViews(read.database, read.project_id)
    summary = views.summary(box_id)
    provenance = read.boxes.provenance(summary.box_id)
    slots = views.window(summary.box_id, first, _WINDOW)
    turns = BoxUseStore(read.database, read.project_id).turns_of([summary.box_id])
    rule_of = (lambda _: None) if provenance is None else provenance.rule_of
    return page(
        read,
        "window.html" if part == "slots" else "box.html",
        view="Boxes",
        box=summary,
        provenance=provenance,
        turns=turns.get(summary.box_id, [])[:5],
        first=first,
        size=_WINDOW,
        slots=[make_row(slot, rule_of) for slot in slots],
    )


@routes.get("/cards/{card_id:path}")
def card(read: PageRead, card_id: str, first: From = 0) -> HTMLResponse:
    """Show a card, with its text from a character on."""
    shown_card = read.cards.get(card_id, include_deleted=True)
    refs = list(islice(read.boxes.refs(card_id), _REFS + 1))
    text = readable_text(shown_card)
    turn_id = shown_card.metadata.get("agent_turn_id")
    return page(
        read,
        "card.html",
        view="Boxes",
        card=shown_card,
        gone=shown_card.expires_at is not None and shown_card.expires_at <= datetime.now(UTC),
        text=text[first : first + _CHARACTERS],
        length=len(text),
        first=first,
        size=_CHARACTERS,
        calls=[_describe_call(each) for each in shown_card.tool_calls[:100]]
        if isinstance(shown_card.tool_calls, list)
        else [],
        turn_id=turn_id if isinstance(turn_id, str) else None,
        boxes=refs[:_REFS],
        more_boxes=len(refs) > _REFS,
        metadata=_metadata(shown_card),
    )


def readable_text(card: Card) -> str:
    """Return the text of a card. JSON of moderate size and depth is indented."""
    text = card_text(card.content)
    content = card.content.result if isinstance(card.content, ToolResultContent) else card.content
    # Any other content is JSON that cbx has formatted as text.
    return text if isinstance(content, str | TextContent | None) else indented(text)


def indented(text: str) -> str:
    """Indent JSON, unless it is so long or deep that indentation would multiply its size."""
    if len(text) > _MAX_INDENTED or text.count("{") + text.count("[") > _MAX_BRACKETS:
        return text
    lines = msgspec.json.format(text, indent=2)
    return text if "\n" + " " * _BLANKS in lines else lines


def _describe_call(call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return {"id": None, "name": "unknown format", "arguments": _json_text(call)[:_CHARACTERS]}
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else _json_text(arguments)
    parts = {"id": call.get("id"), "name": function.get("name")}
    texts = {key: each if isinstance(each, str | None) else _json_text(each) for key, each in parts.items()}
    return {**texts, "arguments": text[:_CHARACTERS]}


def _json_text(value: Any) -> str:
    return exact_json.encode(value).decode()


def _metadata(card: Card) -> str:
    others = {key: value for key, value in card.metadata.items() if key not in _OTHER_FACTS}
    text = indented(_json_text(others)) if others else ""
    return text if len(text) <= _METADATA else f"{text[:_METADATA]}…"


# A string that may be an id, or a part of one.
_IDLIKE = re.compile(r"\S{4,255}")

Place = tuple[str, str, str]


@routes.get("/search")
def search(read: PageRead, q: str = "", behind: Behind = None) -> HTMLResponse:
    """Show the cards that contain a text, and the objects with that id."""
    query = q.strip()[:500]
    cards: list[FoundCard] = []
    pattern: re.Pattern[str] | None = None
    places = list(find_by_id(read, query)) if _IDLIKE.fullmatch(query) and behind is None else []
    if query:
        search = CardSearch(query, behind=parse_position(behind))
        pattern, cards = search.pattern, list(search.newest(read.cards, PAGE_SIZE + 1))
    older = next_position(cards, "card_id")
    return page(
        read,
        "search.html",
        asked=query,
        places=places,
        cards=[_search_row(card, pattern) for card in cards[:PAGE_SIZE]],
        is_cut=len(cards) > PAGE_SIZE,
        older=older and read.links.search(q=query, behind=older),
    )


@routes.get("/find")
def find(read: PageRead, id: str) -> Response:
    """Redirect to the page of the object with this id, or show a choice if there are several."""
    places = list(find_by_id(read, id))
    if not places:
        raise NotFound(f"no object with id {id!r} in project {read.project_id!r}")
    if len(places) == 1:
        return RedirectResponse(places[0][2], status_code=303)
    return page(read, "search.html", asked=id, places=places, cards=[], is_cut=False, older=None)


def find_by_id(read: ProjectView, id_part: str) -> Iterator[Place]:
    """Yield the objects that match an id or a part of an id, each with its type, id and address."""
    links = read.links

    def resolve_box(part: str) -> str:
        box_id = read.boxes.resolve(part)
        # `resolve` accepts any UUID.
        read.boxes.require(box_id)
        return box_id

    for what, resolve, address in (
        ("turn", read.turns.resolve, links.turn),
        ("card", read.cards.resolve, links.card),
        ("box", resolve_box, links.box),
        ("batch", read.batches.resolve, links.batch),
        ("agent", lambda whole: read.agents.get(whole).agent_id, links.agent),
    ):
        try:
            ids = [resolve(id_part)]
        except AmbiguousId as ambiguous:
            ids = [str(each) for each in (ambiguous.details or {}).get("candidates", [])]
        except CbxError:
            # No object has this id, or the table does not exist.
            continue
        for each in ids:
            yield what, each, address(each)


def _search_row(card: FoundCard, words: re.Pattern[str] | None) -> dict[str, Any]:
    text = full_text(card)
    line = excerpt(skip_to_match(text, words), PREVIEW)
    return {
        "card": card,
        "box_id": card.box_id,
        "pieces": list(_split_matches(line, words)),
        "text": text[:INSIDE],
        "is_cut": len(text) > INSIDE,
    }


def _split_matches(line: str, words: re.Pattern[str] | None) -> Iterator[tuple[str, bool]]:
    """Split a line into parts, each with True if it matches the search."""
    position = 0
    for match in words.finditer(line) if words else ():
        yield line[position : match.start()], False
        yield match[0], True
        position = match.end()
    yield line[position:], False
