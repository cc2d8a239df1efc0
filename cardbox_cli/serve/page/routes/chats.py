"""Chats, and one with what its next run carries."""

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from cardbox_cli.chat.chat_view import view
from cardbox_cli.chat.why import explain
from cardbox_cli.serve.http.reading import Looking
from cardbox_cli.serve.page.errors import PageRoute
from cardbox_cli.serve.page.templating import page
from cardbox_cli.store.chats import Room

routes = APIRouter(route_class=PageRoute)

# Chats of the list, and entries of a transcript at once.
_CHATS, _ENTRIES = 200, 50


@routes.get("/chats")
def chats(look: Looking) -> HTMLResponse:
    """The chats, the last used first."""
    with look.database.snapshot():
        found = list(Room(look.database, look.project_id, look.settings).chats.all(limit=_CHATS + 1))
    return page(look, "chats.html", view="Chats", chats=found[:_CHATS], is_cut=len(found) > _CHATS)


@routes.get("/chat")
def chat(look: Looking, key: str, most: Annotated[int, Query(ge=1, le=1000)] = _ENTRIES) -> HTMLResponse:
    """A chat: what was said, what the model carries, its last runs."""
    with look.database.snapshot():
        room = Room(look.database, look.project_id, look.settings)
        seen = view(room, key)
        head = room.chats.get(key)
        entries = room.chats.entries(head, max(head.entries - most, 0))
        why = explain(room, key)
    has_more = len(entries) < head.entries and most < 1000
    return page(
        look,
        "chat.html",
        view="Chats",
        chat=seen,
        why=why,
        entries=entries,
        earlier=look.links.chat(key, most=min(most * 4, 1000)) if has_more else None,
    )
