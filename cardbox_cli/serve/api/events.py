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
from cardbox_cli.serve.reading import Read, read_project
from cardbox_cli.store.views.changes import Changes, ChangeViews

routes = APIRouter(tags=["events"])

# Seconds between two looks, and how many of them may pass in silence: proxies end what says nothing.
_PAUSE = 1.0
_SILENT = 15


@routes.get("/events", response_class=StreamingResponse)
async def events(request: Request, project: str) -> StreamingResponse:
    """What changes in the project, until the asker goes away."""
    first = await to_thread.run_sync(_look, request, project, None)
    state = request.app.state
    if state.streams >= state.options.streams:
        raise Refused(503, "too many askers listen already", headers={"Retry-After": "30"})
    stream = _stream(request, project, first)
    return StreamingResponse(stream, media_type="text/event-stream", headers={"Cache-Control": "no-store"})


async def _stream(request: Request, project: str, seen: Changes) -> AsyncIterator[str]:
    state = request.app.state
    if state.streams >= state.options.streams:
        # Others came in the same moment.
        return
    state.streams += 1
    try:
        yield "retry: 3000\n\n"
        silent = 0
        while not await request.is_disconnected():
            await anyio.sleep(_PAUSE)
            try:
                seen = await to_thread.run_sync(_look, request, project, seen)
            except (CbxError, Refused):
                # Who asks again is told why.
                return
            for name, value in seen.news:
                yield f"event: {name}\ndata: {exact_json.encode(value).decode('utf-8', 'replace')}\n\n"
            silent = 0 if seen.news else silent + 1
            if silent >= _SILENT:
                silent = 0
                yield ": nothing new\n\n"
    finally:
        state.streams -= 1


def _look(request: Request, project: str, before: Changes | None) -> Changes:
    """What has changed since the look before. Raises Refused once the asker may not look any more."""
    looking = read_project(request, project)
    read: Read = next(looking)
    try:
        return ChangeViews(read.database, read.project_id).since(before)
    finally:
        looking.close()  # type: ignore[attr-defined]  # it is a generator
