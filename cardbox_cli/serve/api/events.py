"""What changes, as it changes: server-sent events of one project.

An event `head` says how an agent stands from now on, `batch` how a batch does. What was before is not told:
whoever listens has looked first. The tables are looked at again and again, so that it holds whoever writes,
and behind every pooler.
"""

from collections.abc import AsyncIterator

import anyio
from anyio import to_thread
from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from cardbox_cli.errors import CbxError
from cardbox_cli.model import exact_json
from cardbox_cli.serve.errors import Refused
from cardbox_cli.serve.following import Following
from cardbox_cli.serve.reading import Asker
from cardbox_cli.store.views.changes import ChangeViews, Standing

routes = APIRouter(tags=["events"])

# Seconds between two looks, and how many of them may pass in silence: proxies end what says nothing.
_PAUSE = 1.0
_SILENT = 15


@routes.get("/events", response_class=StreamingResponse)
async def events(request: Request, project: str) -> StreamingResponse:
    """What changes in the project, until the asker goes away."""
    if _is_full(request):
        raise Refused(503, "too many askers listen already", headers={"Retry-After": "30"})
    first = await to_thread.run_sync(_look, request, project)
    stream = _stream(request, project, first)
    return StreamingResponse(stream, media_type="text/event-stream", headers={"Cache-Control": "no-store"})


async def _stream(request: Request, project: str, seen: Standing) -> AsyncIterator[str]:
    yield "retry: 3000\n\n"
    if _is_full(request):
        return
    request.app.state.streams += 1
    try:
        async for text in _news(request, project, seen):
            yield text
    except (CbxError, Refused):
        # It has begun, so that nothing else can be said: the asker comes back, and is told why.
        return
    finally:
        request.app.state.streams -= 1


async def _news(request: Request, project: str, seen: Standing) -> AsyncIterator[str]:
    silent = 0
    while not await request.is_disconnected():
        await anyio.sleep(_PAUSE)
        before, seen = seen, await to_thread.run_sync(_look, request, project)
        news = [] if seen is before else seen.news(before)
        for name, value in news:
            yield f"event: {name}\ndata: {exact_json.encode(value).decode('utf-8', 'replace')}\n\n"
        silent = 0 if news else silent + 1
        if silent >= _SILENT:
            silent = 0
            yield ": nothing new\n\n"


def _is_full(request: Request) -> bool:
    most: int = request.app.state.options.streams
    return bool(request.app.state.streams >= most)


def _look(request: Request, project: str) -> Standing:
    """How the project stands. Raises Refused once the asker may not look any more."""
    following: Following = request.app.state.following
    with Asker(request, project).glance() as read, read.database.snapshot():
        return following.look(ChangeViews(read.database, read.project_id))
