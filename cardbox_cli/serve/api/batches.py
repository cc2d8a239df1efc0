"""Batches of tasks, those of another system's manager too."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.orchestration.batch_progress import BatchView, batch_view, foreign_view
from cardbox_cli.serve.api.answers import encoded
from cardbox_cli.serve.api.document import answers
from cardbox_cli.serve.api.lists import BatchState, Most, paged
from cardbox_cli.serve.http.reading import Read
from cardbox_cli.serve.http.routing import ReadingRoute
from cardbox_cli.serve.listing import Behind, mark_of
from cardbox_cli.store.execution.batch_store import BatchFilter
from cardbox_cli.store.views.batch_views import BatchRow, BatchViews

routes = APIRouter(tags=["batches"], route_class=ReadingRoute)


@routes.get("/batches", responses=answers(list[BatchRow]))
def batches(
    request: Request, read: Read, limit: Most = 50, status: BatchState | None = None, behind: Behind = None
) -> Response:
    """Batches, newest first."""
    where = BatchFilter(status=status, behind=mark_of(behind))
    found = BatchViews(read.database, read.project_id).newest(where, limit=limit + 1)
    return paged(request, found, limit, key="batch_id")


@routes.get("/batches/{batch_id}", responses=answers(BatchView))
def batch(request: Request, read: Read, batch_id: str) -> Response:
    """A batch and, in the order of its tasks, what its children delivered."""
    views = BatchViews(read.database, read.project_id)
    foreign = views.find_foreign(batch_id)
    if foreign is not None:
        return encoded(request, foreign_view(views, foreign))
    runtime = Runtime(read.database, read.project_id, settings=read.settings)
    return encoded(request, batch_view(runtime, runtime.batches.get(batch_id)))
