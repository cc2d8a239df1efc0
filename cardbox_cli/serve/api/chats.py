"""Chats: what each carries, and what it kept."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from cardbox_cli.chat.chat_view import ChatView, view
from cardbox_cli.model.chats import Chat
from cardbox_cli.serve.api.answers import encoded
from cardbox_cli.serve.api.document import answers
from cardbox_cli.serve.api.lists import Most, paged
from cardbox_cli.serve.http.reading import Read
from cardbox_cli.serve.http.routing import ReadingRoute
from cardbox_cli.serve.listing import BehindId
from cardbox_cli.store.chats import Room

routes = APIRouter(tags=["chats"], route_class=ReadingRoute)


@routes.get("/chats", responses=answers(list[Chat]))
def chats(request: Request, read: Read, limit: Most = 50, behind: BehindId = None) -> Response:
    """The chats by their keys."""
    found = _room(read).chats.all(limit=limit + 1, behind=behind)
    return paged(request, found, limit, key="chat_key", time=None)


@routes.get("/chats/{chat_key:path}", responses=answers(ChatView))
def chat(request: Request, read: Read, chat_key: str) -> Response:
    """A chat: its active context, what its transcript keeps, its last runs."""
    return encoded(request, view(_room(read), chat_key))


def _room(read: Read) -> Room:
    return Room(read.database, read.project_id, read.settings)
