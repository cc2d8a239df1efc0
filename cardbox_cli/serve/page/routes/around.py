"""What is about no project: where to begin, the projects that there are, the files of pages, and all else."""

from itertools import islice

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from cardbox_cli.errors import NotFound
from cardbox_cli.serve.http.addresses import path_of
from cardbox_cli.serve.options import ServeOptions
from cardbox_cli.serve.page.errors import PageRoute
from cardbox_cli.serve.page.files import ROOT, file
from cardbox_cli.serve.page.links import PREFIX, Links
from cardbox_cli.serve.page.templating import plain_page
from cardbox_cli.store.connection.connection_pool import Lending
from cardbox_cli.store.projects import ProjectsStore

routes = APIRouter(route_class=PageRoute)

_PROJECTS = 500
# What an address with another hash would have is another file.
_FOR_GOOD = {"Cache-Control": "public, max-age=31536000, immutable"}


@routes.get("/")
def begin(request: Request) -> Response:
    """To the project that the server was started for."""
    options: ServeOptions = request.app.state.options
    return RedirectResponse(Links(options.project or options.usual_project).start(), status_code=303)


@routes.get(PREFIX)
def projects(request: Request) -> Response:
    """The projects of the database. Where tokens are asked for, nobody may know of all."""
    options: ServeOptions = request.app.state.options
    if options.asks_for_tokens:
        return begin(request)
    lending: Lending = request.app.state.lending
    with lending.snapshot() as database:
        found = list(islice(ProjectsStore(database).list(), _PROJECTS))
    rows = [{"address": Links(each.project_id).start(), "project": each} for each in found]
    return plain_page(request, "projects.html", rows=rows)


@routes.get(ROOT + "/{name:path}")
def files(name: str) -> Response:
    """A file of the package."""
    body, kind = file(name)
    return Response(body, media_type=kind, headers=_FOR_GOOD)


@routes.get(PREFIX + "/{path:path}")
def nothing(request: Request, path: str) -> Response:
    """There is no other page; one slash too many leads to the page without it."""
    address = path_of(request.scope)
    if address.endswith("/") and not address.endswith("//"):
        query = request.url.query
        return RedirectResponse(f"{address[:-1]}{'?' if query else ''}{query}", status_code=307)
    raise NotFound(f"no page {path!r}")
