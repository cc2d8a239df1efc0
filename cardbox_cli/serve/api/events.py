"""What changes, as it changes: server-sent events of one project.

An event `head` says how an agent stands from now on, `batch` how a batch does. What was before is not told:
whoever listens has looked first.
"""

from collections.abc import AsyncIterator
from time import monotonic

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from cardbox_cli.errors import CbxError
from cardbox_cli.model import exact_json
from cardbox_cli.serve.api.document import event_answers
from cardbox_cli.serve.following import SILENT, Following
from cardbox_cli.serve.http.errors import Refused
from cardbox_cli.serve.http.reading import Asker
from cardbox_cli.serve.http.routing import ReadingRoute
from cardbox_cli.serve.http.streams import StreamAnswer
from cardbox_cli.store.views.recent_changes import Standing

routes = APIRouter(tags=["events"], route_class=ReadingRoute)


@routes.get("/events", response_class=StreamingResponse, responses=event_answers())
async def events(request: Request, project: str) -> StreamingResponse:
    """What changes in the project, until the asker goes away or may not look any more, or the server ends."""
    asker = Asker(request, project)
    async with _following(request).follow(asker) as follower:
        first = await follower.look()
    news = _stream(asker, first)
    return StreamAnswer(request, news, media_type="text/event-stream", headers={"Cache-Control": "no-store"})


async def _stream(asker: Asker, seen: Standing) -> AsyncIterator[str]:
    yield "retry: 3000\n\n"
    try:
        async for text in _news(asker, seen):
            yield text
    except (CbxError, Refused):
        # It has begun, so that nothing else can be said: the asker comes back, and is told why.
        return


async def _news(asker: Asker, seen: Standing) -> AsyncIterator[str]:
    said = monotonic()
    following = _following(asker.request)
    async with following.follow(asker) as follower:
        while not following.is_over and not await asker.request.is_disconnected():
            before, seen = seen, await follower.look()
            for name, value in seen.news(before):
                yield f"event: {name}\ndata: {exact_json.encode(value).decode('utf-8', 'replace')}\n\n"
                said = monotonic()
            if monotonic() - said >= SILENT:
                # Proxies end what says nothing, however often we look.
                yield ": nothing new\n\n"
                said = monotonic()
            await follower.changed()


def _following(request: Request) -> Following:
    following: Following = request.app.state.following
    return following
