"""Pages outside of projects: where to begin, the list of projects, the login, static files, and no page."""

from itertools import islice
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Form, Request
from fastapi.responses import RedirectResponse, Response

from cardbox_cli.errors import NotFound
from cardbox_cli.serve.access import Doorkeeper
from cardbox_cli.serve.addresses import path_of
from cardbox_cli.serve.http.errors import Refused
from cardbox_cli.serve.options import ServeOptions
from cardbox_cli.serve.page.links import PREFIX, Links
from cardbox_cli.serve.page.templating import STATIC, PageRoute, plain_page, static_file
from cardbox_cli.store.connection.connection_pool import Lending
from cardbox_cli.store.projects import ProjectsStore

login_routes = APIRouter(include_in_schema=False)


@login_routes.get("/login")
def form(request: Request, next: str = "/") -> Response:
    """The form."""
    return _form(request, next)


@login_routes.post("/login")
def log_in(request: Request, token: Annotated[str, Form()], next: Annotated[str, Form()] = "/") -> Response:
    """Exchange a token for a cookie, and go where the browser was to go."""
    _check_origin(request)
    doorkeeper: Doorkeeper = request.app.state.doorkeeper
    lending: Lending = request.app.state.lending
    try:
        with doorkeeper.trying(token.strip()), lending.snapshot() as database:
            project_id, cookie = doorkeeper.exchange(database, token.strip())
    except Refused as exc:
        return _form(request, next, trouble=exc.message, status=exc.status)
    response = RedirectResponse(_local(next) or "/", status_code=303)
    doorkeeper.cookies.set(response, project_id, cookie)
    return response


@login_routes.post("/logout")
def log_out(request: Request, project: Annotated[str, Form()]) -> Response:
    """Forget the cookie of a project."""
    _check_origin(request)
    doorkeeper: Doorkeeper = request.app.state.doorkeeper
    response = RedirectResponse("/login", status_code=303)
    doorkeeper.cookies.forget(response, project)
    return response


def _form(request: Request, next: str, *, trouble: str | None = None, status: int = 200) -> Response:
    return plain_page(
        request,
        "login.html",
        code=status,
        title="Log in",
        message="a token of the project opens its pages",
        trouble=trouble,
        here=_local(next) or "/",
    )


def _local(address: str) -> str | None:
    """An address within this server; None for one that leads elsewhere."""
    is_path = address.startswith("/") and not address.startswith(("//", "/\\"))
    return address if is_path and address.isprintable() else None


def _check_origin(request: Request) -> None:
    """Raise Refused for a form that another page has sent."""
    origin = request.headers.get("origin")
    if origin is not None and _place(origin) != request.headers.get("host"):
        raise Refused(403, "the form was sent by another page")


def _place(origin: str) -> str | None:
    """The host and the port of an origin; None of what is no address."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


site_routes = APIRouter(route_class=PageRoute)

_PROJECTS = 500
# What an address with another hash would have is another file.
_FOR_GOOD = {"Cache-Control": "public, max-age=31536000, immutable"}


@site_routes.get("/")
def begin(request: Request) -> Response:
    """To the project that the server was started for."""
    options: ServeOptions = request.app.state.options
    return RedirectResponse(Links(options.project or options.usual_project).start(), status_code=303)


@site_routes.get(PREFIX)
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


@site_routes.get(STATIC + "/{name:path}")
def files(name: str) -> Response:
    """A file of the package."""
    body, kind = static_file(name)
    return Response(body, media_type=kind, headers=_FOR_GOOD)


@site_routes.get(PREFIX + "/{path:path}")
def nothing(request: Request, path: str) -> Response:
    """There is no other page; one slash too many leads to the page without it."""
    address = path_of(request.scope)
    if address.endswith("/") and not address.endswith("//"):
        query = request.url.query
        return RedirectResponse(f"{address[:-1]}{'?' if query else ''}{query}", status_code=307)
    raise NotFound(f"no page {path!r}")
