"""Boxes by windows, and cards."""

from datetime import UTC, datetime
from itertools import islice
from typing import Any

import msgspec
from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from cardbox_cli.model import exact_json
from cardbox_cli.model.boxes import BOX_KINDS
from cardbox_cli.model.cards import Card, card_text
from cardbox_cli.model.content import TextContent, ToolResultContent
from cardbox_cli.serve.http.reading import Looking
from cardbox_cli.serve.listing import LINES, Behind, From, following, mark_of
from cardbox_cli.serve.page.asked import known
from cardbox_cli.serve.page.errors import PageRoute
from cardbox_cli.serve.page.templating import page
from cardbox_cli.serve.page.windows import shown
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.in_use import BoxUseStore
from cardbox_cli.store.views.box_views import BoxKindFilter, BoxViews

routes = APIRouter(route_class=PageRoute)

# Cards of a window of a box, characters of a window of a card, and boxes that are told to hold one.
_WINDOW, _CHARACTERS, _REFS = 100, 20_000, 50
_METADATA = 4_000
# JSON of more characters, or with more that may stand within each other, stays on its line; so does JSON of
# which a line would begin with so many blanks.
_INDENTED, _LEVELS, _BLANKS = 100_000, 400, 32
# What the page tells of a card elsewhere.
_TOLD = frozenset({"type", "role", "author_id", "project_id", "created_at"})


@routes.get("/boxes")
def boxes(look: Looking, kind: str | None = None, behind: Behind = None) -> HTMLResponse:
    """The boxes that changed last."""
    asked = known(kind, BOX_KINDS, "kind of boxes")
    where = BoxKindFilter(kinds=None if asked is None else (asked,), behind=mark_of(behind, of_boxes=True))
    with look.database.snapshot():
        found = list(BoxViews(look.database, look.project_id).newest(where, limit=LINES + 1))
    older = following(found, "box_id", "updated_at")
    return page(
        look,
        "boxes.html",
        view="Boxes",
        boxes=found[:LINES],
        kind=asked,
        older=older and look.links.boxes(kind=asked, behind=older),
    )


@routes.get("/boxes/{box_id}")
def box(look: Looking, box_id: str, first: From = 0, part: str | None = None) -> HTMLResponse:
    """A box from a place on; as a part the rows alone."""
    with look.database.snapshot():
        views = BoxViews(look.database, look.project_id)
        found = views.in_short(box_id)
        provenance = BoxStore(look.database, look.project_id).provenance(found.box_id)
        slots = views.window(found.box_id, first, _WINDOW)
        turns = BoxUseStore(look.database, look.project_id).turns_of([found.box_id])
    rule_of = (lambda _: None) if provenance is None else provenance.rule_of
    return page(
        look,
        "window.html" if part == "slots" else "box.html",
        view="Boxes",
        box=found,
        provenance=provenance,
        turns=turns.get(found.box_id, [])[:5],
        first=first,
        size=_WINDOW,
        slots=[shown(slot, rule_of) for slot in slots],
    )


@routes.get("/cards/{card_id:path}")
def card(look: Looking, card_id: str, first: From = 0) -> HTMLResponse:
    """A card, its text from a character on."""
    with look.database.snapshot():
        found = CardStore(look.database, look.project_id).get(card_id, include_deleted=True)
        refs = list(islice(BoxStore(look.database, look.project_id).refs(card_id), _REFS + 1))
    text = readable(found)
    turn_id = found.metadata.get("agent_turn_id")
    return page(
        look,
        "card.html",
        view="Boxes",
        card=found,
        gone=found.expires_at is not None and found.expires_at <= datetime.now(UTC),
        text=text[first : first + _CHARACTERS],
        length=len(text),
        first=first,
        size=_CHARACTERS,
        calls=_calls(found),
        turn_id=turn_id if isinstance(turn_id, str) else None,
        boxes=refs[:_REFS],
        more_boxes=len(refs) > _REFS,
        metadata=_metadata(found),
    )


def readable(card: Card) -> str:
    """What a card says; JSON of moderate size and depth by lines."""
    text = card_text(card.content)
    return indented(text) if _is_json(card) else text


def _is_json(card: Card) -> bool:
    """Whether the text of a card is JSON that we made of its content: a text stays as it is."""
    said = card.content.result if isinstance(card.content, ToolResultContent) else card.content
    return not isinstance(said, str | TextContent | None)


def indented(text: str) -> str:
    """JSON with a line for each value; as it is where it is long or deep, which indentation multiplies."""
    if len(text) > _INDENTED or text.count("{") + text.count("[") > _LEVELS:
        return text
    lines = msgspec.json.format(text, indent=2)
    return text if "\n" + " " * _BLANKS in lines else lines


def _calls(card: Card) -> list[dict[str, Any]]:
    """The calls that a card makes: each one's id, name and arguments as text."""
    if not isinstance(card.tool_calls, list):
        return []
    return [_call(call) for call in card.tool_calls[:100]]


def _call(call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return {"id": None, "name": "of another form", "arguments": _text(call)[:_CHARACTERS]}
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else _text(arguments)
    return {"id": _word(call.get("id")), "name": _word(function.get("name")), "arguments": text[:_CHARACTERS]}


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) or value is None else _text(value)


def _text(value: Any) -> str:
    return exact_json.encode(value).decode()


def _metadata(card: Card) -> str:
    others = {key: value for key, value in card.metadata.items() if key not in _TOLD}
    text = indented(_text(others)) if others else ""
    return text if len(text) <= _METADATA else f"{text[:_METADATA]}…"
